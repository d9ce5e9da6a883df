"""For operators: list services and groups, direct elections and members, handle many keys.

The commands `kip30 status`, `services`, `groups`, `pause`, `resume`, `step-down`, `hand-over`,
`terms`, `group evict`, `group admit`, `group bans` and `kv export`, `import`, `tree`, `sweep`,
`delete --recursive` are made of these functions. Those that list or handle many keys use the scans
of `kip30.scanning`, so they need a store that declares ``scanning``, open no session, and see
records of other clients as they are.
"""

from kip30.operations.bans import (
    USUAL_BAN_SECONDS,
    BannedMember,
    admit,
    check_group,
    evict,
    read_bans,
)
from kip30.operations.directive_pruning import prune_directives
from kip30.operations.directives import (
    HOLD_SECONDS,
    DirectedService,
    check_directed,
    pause_service,
    read_directives,
    resume_service,
    step_down_leader,
)
from kip30.operations.directory import Directory, GroupStatus, ServiceStatus, read_directory
from kip30.operations.key_deletion import Deletion, delete_versions
from kip30.operations.key_expiry import LONGEST_TTL_SECONDS, Sweep, set_for, sweep_keys
from kip30.operations.key_import import (
    LONGEST_LINE,
    ConflictRule,
    Import,
    ImportPlan,
    parse_exported,
    plan_import,
    write_import,
)
from kip30.operations.key_scan import KeyScan, StoredKey
from kip30.operations.overview import Overview, OverviewReader, read_overview
from kip30.operations.server_check import ServerCheck, check_servers
from kip30.operations.service_line import WaitingPlace, read_line
from kip30.operations.service_terms import began_at, read_past_terms

__all__ = [
    "HOLD_SECONDS",
    "LONGEST_LINE",
    "LONGEST_TTL_SECONDS",
    "USUAL_BAN_SECONDS",
    "BannedMember",
    "ConflictRule",
    "Deletion",
    "DirectedService",
    "Directory",
    "GroupStatus",
    "Import",
    "ImportPlan",
    "KeyScan",
    "Overview",
    "OverviewReader",
    "ServerCheck",
    "ServiceStatus",
    "StoredKey",
    "Sweep",
    "WaitingPlace",
    "admit",
    "began_at",
    "check_directed",
    "check_group",
    "check_servers",
    "delete_versions",
    "evict",
    "parse_exported",
    "pause_service",
    "plan_import",
    "prune_directives",
    "read_bans",
    "read_directives",
    "read_directory",
    "read_line",
    "read_overview",
    "read_past_terms",
    "resume_service",
    "set_for",
    "step_down_leader",
    "sweep_keys",
    "write_import",
]
