"""For operators: list the services and groups of a store; export, import and delete many keys.

The commands `kip30 status`, `services`, `groups` and `kv export`, `import`, `tree`, `delete
--recursive` are made of these functions. Reading uses the scans of `kip30.scanning`, so it needs a
store that declares ``scanning``, opens no session, and sees records of other clients as they are.
`check_servers` needs no ``scanning``.
"""

from kip30.operations.directory import Directory, GroupStatus, ServiceStatus, read_directory
from kip30.operations.key_deletion import Deletion, delete_versions
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

__all__ = [
    "LONGEST_LINE",
    "ConflictRule",
    "Deletion",
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
    "WaitingPlace",
    "check_servers",
    "delete_versions",
    "parse_exported",
    "plan_import",
    "read_directory",
    "read_line",
    "read_overview",
    "write_import",
]
