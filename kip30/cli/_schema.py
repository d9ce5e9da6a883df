"""Output of ``--json``: the fields of every command's objects, and of an error."""

from collections.abc import Mapping
from typing import NamedTuple


class Field(NamedTuple):
    """A field of a JSON object: its name, its type, and its meaning."""

    name: str
    type: str
    meaning: str


_BYTES = "text; `{}_base64` instead if it is not UTF-8"
_VALUE = Field("value", "text or null", f"the value, {_BYTES.format('value')}; null: no such key")
_VERSION = Field("version", "text or null", "the version; an opaque token, not a number")
_STORED_VALUE = Field("value", "text", f"the value, {_BYTES.format('value')}")
_STORED_VERSION = Field("version", "text", "the version; an opaque token, not a number")
_BYTES_FIELD = Field("bytes", "number", "the size of the value")
_DRY_RUN = Field("dry_run", "boolean", "whether nothing was changed")
_KEY = Field("key", "text", "the whole key")
_LEADER = "`id`: text; `epoch`: number; `data`: text, or `data_base64`"
_LINE = "objects: `id`, `candidate`, `host`, `pid`, `since`, `priority`, `readable`; null: none"
_PAUSE = "`by`, `at`, `reason`, and `until` or null; null: it is not paused"
_GROUP_STATE = "the state of the group, with a list `members`; null: no such group"
_MEMBERS = "a list of objects with `id`: text, and `data`: text, or `data_base64`"
_JOBS = ("snapshot", "restore", "migrate", "diff", "repair", "preflight")
_WAVE = (
    Field("wave", "number", "in a line of a wave: its number"),
    Field("spans", "number", "how many spans are done"),
    Field("planned", "number", "how many there are"),
    Field("rows", "number", "how many rows the wave had"),
    Field("size", "number", "how many bytes its files have"),
    Field("seconds", "number", "how long it took"),
    Field("seconds_left", "number", "about how long the rest takes"),
    Field("rows_per_second", "number", "its speed"),
)
_FEED = (
    Field("changes", "number", "in a line of a feed: how many changes are applied"),
    Field("waiting", "number", "how many are read and not applied"),
    Field("seconds", "number", "how far the feed is behind the store"),
    Field("gaps", "number", "how many times changes were missed and all states compared"),
)
_REPORT = (
    Field("job", "text", "in the last line, the report: the job"),
    Field("run", "text", "the id of the run"),
    Field("ending", "text", "`done`, `findings`, or `incomplete`"),
    Field("counts", "object", "what was counted, by name; by a feed, in this call"),
    Field("totals", "object", "what all calls of a feed counted, by name; of other jobs empty"),
    Field("facts", "object", "what else there is to know: store, position, consistency"),
    Field("waves", "list", "an object for each wave"),
    Field("findings", "list", "up to 1,000 objects with `key`, `outcome`, `detail`: text"),
    Field("reason", "text", "why it is incomplete, or what to look at; may be empty"),
)
_LEADING = (
    Field("service", "text", "the service"),
    Field("leader", "object or null", f"{_LEADER}; null: no one leads"),
)
_DIRECTED = (
    Field("service", "text", "the service"),
    Field("leader", "text or null", "the id of the candidate that leads; null: no one does"),
    Field("epoch", "number or null", "the epoch of its term; null: no one leads"),
    Field("pause", "object or null", _PAUSE),
)
_MEMBER = (
    Field("group", "text", "the group"),
    Field("id", "text", "the id of the member"),
    Field("is_member", "boolean", "whether a member had that id, just before"),
    Field("ban", "object or null", "`id`, `until`, `at`, `by` and `reason`; null: it has none"),
)
_BANS = "objects with `group`, `id`, `until`, `at`, `by`, `reason` and `is_member`"
_WRITTEN = (_KEY, Field("version", "text", "the new version; an opaque token"))

SCHEMA: Mapping[str, tuple[Field, ...]] = {
    "coordinate-status": (
        Field("group", "text", "the group"),
        Field("state", "object or null", _GROUP_STATE),
    ),
    "leader": _LEADING,
    "leader --all": (
        *_LEADING,
        Field("line", "list or null", _LINE),
        Field("pause", "object or null", _PAUSE),
        Field(
            "since", "number or null", "when its term began, in seconds since 1970; null: not noted"
        ),
    ),
    "pause": _DIRECTED,
    "resume": _DIRECTED,
    "step-down": _DIRECTED,
    "hand-over": _DIRECTED,
    "terms": (
        Field("service", "text", "the service"),
        Field("id", "text", "a random text, which tells the term from others"),
        Field("epoch", "number", "the epoch"),
        Field("candidate", "text", "the leader"),
        Field("since", "number", "when the term began, in seconds since 1970"),
        Field("until", "number or null", "when it ended; null: it lasts"),
        Field("ended", "text", "why it has ended; empty while it lasts"),
    ),
    "terms --directives": (
        Field("service", "text", "the service"),
        Field("number", "number", "the number of the directive"),
        Field("at", "number", "when, in seconds since 1970"),
        Field("by", "text", "the operator, as user and host"),
        Field("action", "text", "what was asked, and the outcome"),
    ),
    "status": (
        Field("at", "number", "when, in seconds since 1970"),
        Field("store", "text", "the name of the store"),
        Field("place", "text or null", "its addresses or directory, as the setting has it"),
        Field("read_ms", "number or null", "how long the read took; null: no answer"),
        Field("services", "number or null", "how many services there are"),
        Field("led", "number or null", "how many of them have a leader"),
        Field("groups", "number or null", "how many groups have members"),
        Field("members", "number or null", "how many members they have"),
        Field("paused", "list", "services that are paused, with or without a leader"),
        Field("long_paused", "list", "those of them that were paused more than a day ago"),
        Field("banned", "list", _BANS),
        Field("staying", "list", "those of them that are members for a session timeout"),
        Field("leaderless", "list", "services without a leader though candidates wait"),
        Field("unreadable", "number or null", "how many records cannot be read"),
        Field("unreadable_keys", "list", "up to 10 of them, as they are in the store"),
        Field("error", "text or null", "of a watch: why the store does not answer"),
    ),
    "services": (
        Field("service", "text", "the service"),
        Field("leader", "text or null", "the id of its leader; null: none, or see `readable`"),
        Field("epoch", "number or null", "the newest epoch; null: the store keeps none"),
        Field("waiting", "number", "how many candidates wait in line; 0 on Cassandra"),
        Field("readable", "boolean", "false: it has a leader, whose record cannot be read"),
    ),
    "groups": (
        Field("group", "text", "the group"),
        Field("members", "number", "how many members it has"),
        Field("banned", "number", "how many ids are banned from it"),
    ),
    "group list": (
        Field("group", "text", "the group"),
        Field("members", "list", _MEMBERS),
    ),
    "group watch": (
        Field("group", "text", "the group"),
        Field("joined", "list", "ids of members that joined since the last line"),
        Field("left", "list", "ids of members that left"),
        Field("updated", "list", "ids of members whose data changed"),
        Field("members", "list", _MEMBERS),
    ),
    "group bans": _MEMBER,
    "group evict": _MEMBER,
    "group admit": _MEMBER,
    "kv get": (_KEY, _VALUE, _VERSION),
    "kv put": _WRITTEN,
    "kv set": _WRITTEN,
    "kv update": _WRITTEN,
    "kv delete": (_KEY,),
    "kv delete --recursive": (
        Field("namespace", "text", "the namespace"),
        Field("deleted", "number", "how many keys were deleted"),
        Field("changed", "number", "how many stay, because they have changed"),
        Field("gone", "number", "how many others have deleted meanwhile"),
        Field("unknown", "number", "how many may have been deleted: the answer was lost"),
        Field("left", "number", "how many were not tried, because the store did not answer"),
        Field("kept", "number", "how many cannot be deleted"),
        _DRY_RUN,
    ),
    "kv list": (_KEY,),
    "kv tree": (_KEY, _BYTES_FIELD, _STORED_VERSION),
    "kv tree --values": (_KEY, _STORED_VALUE, _STORED_VERSION),
    "kv import": (
        Field("created", "number", "how many keys were created"),
        Field("updated", "number", "how many got another value"),
        Field("kept", "number", "how many keep another value"),
        Field("equal", "number", "how many had this value already"),
        Field("failed", "number", "how many were not written, or perhaps not"),
        _DRY_RUN,
    ),
    "kv sweep": (
        Field("deleted", "number", "how many keys were deleted, because their time was over"),
        Field("waiting", "number", "how many keys have time left"),
        Field("changed", "number", "how many were written again or deleted before, and do not end"),
        Field("kept", "number", "how many cannot be deleted, or not be read"),
        _DRY_RUN,
    ),
    "kv watch": (_KEY, _VALUE, _VERSION),
    "kv watch --keys": (
        Field("namespace", "text", "the namespace"),
        Field("added", "list", "keys that were added since the last line"),
        Field("removed", "list", "keys that were removed"),
        Field("keys", "list", "all present keys"),
    ),
    "backends": (
        Field("name", "text", "the name of the store"),
        Field("installed", "boolean or null", "null: a plugin that was not loaded"),
        Field("problem", "text or null", "why it cannot be used, or was not loaded"),
        Field("capabilities", "list", "what it offers beyond what every store does"),
        Field("name_bytes", "number or null", "the longest name, in bytes"),
        Field("value_bytes", "number or null", "the largest value, in bytes"),
    ),
    "config": (
        Field("key", "text", "the setting"),
        Field("kind", "text", "what its value is"),
        Field("default", "text, number, boolean or null", "null: there is none"),
        Field("required", "boolean", "whether it must be set"),
        Field("meaning", "text", "what it means"),
        Field("aliases", "list", "other keys that mean the same"),
        Field("secret", "boolean", "whether its value is never shown"),
    ),
    "config --effective": (
        Field("key", "text", "the setting"),
        Field("value", "text, number, boolean or null", "`***` for what must not be shown"),
        Field(
            "origin",
            "text",
            "`file:line` or `--set`, in () after an alias; `--backend`; `default` and why",
        ),
    ),
    "config --check": (
        Field("backend", "text or null", "the store; null: a plugin that was not loaded"),
        Field("unchecked", "text or null", "what was not checked, and why"),
    ),
    "config --diff": (
        Field("key", "text", "the setting"),
        Field("left", "text, number, boolean or null", "its value in A; null: there is none"),
        Field("right", "text, number, boolean or null", "its value in B"),
        Field("left_origin", "text or null", "as `origin`; null: A's store has no such setting"),
        Field("right_origin", "text or null", "the same of B"),
    ),
    "config --ddl": (Field("statement", "text", "one statement"),),
    "doctor": (
        Field("step", "text", "what was tried"),
        Field("verdict", "text", "`ok`, `FAILED`, or `-` for what the store does not offer"),
        Field("detail", "text", "what was found"),
        Field("milliseconds", "number", "how long it took"),
        Field("exit", "number", "the exit code of this step"),
    ),
    "doctor --each-server": (
        Field("server", "text", "its address, or the name of a store without servers"),
        Field("verdict", "text", "`ok` or `FAILED`"),
        Field("version", "text or null", "its version; null: it could not be asked"),
        Field("role", "text or null", "such as `leader`; null: the store does not tell"),
        Field("median_ms", "number or null", "the median of 20 reads; null: it failed"),
        Field("worst_ms", "number or null", "the longest of them"),
        Field("clock", "text or null", "how clocks differ; null: the store does not tell"),
        Field("detail", "text", "what went wrong"),
        Field("exit", "number", "the exit code for this server"),
    ),
    "prune": (
        Field("services", "number", "how many services had remains that were removed"),
        Field("groups", "number", "how many groups"),
        Field("namespaces", "number", "how many namespaces"),
        Field("directives", "number", "how many records of directives that asked nothing"),
        _DRY_RUN,
    ),
    **{f"pipeline {job}": _WAVE + _REPORT for job in _JOBS},
    "pipeline feed": _FEED + _REPORT,
    "pipeline verify": (
        Field("files", "number", "how many files were read"),
        Field("bytes", "number", "how many bytes they should have"),
        Field("damaged", "list", "what is wrong with each file that is not as it was written"),
    ),
    "pipeline status": (
        Field("job", "text", "the job"),
        Field("run", "text", "the id of the run"),
        Field("state", "text", "`running`, `stopped` or `done`"),
        Field("pid", "number or null", "the process that works in the folder"),
        Field("created", "number", "when the run began, in seconds since 1970"),
        Field("spans", "number", "how many spans are done"),
        Field("planned", "number or null", "how many there are; null: there is no plan yet"),
        Field("rows", "number", "how many rows are done"),
        Field("bytes", "number", "how many bytes their files have"),
        Field("counts", "object", "what was counted, by name"),
        Field("parts", "list", "the same for the runs within it: the snapshot of a migration"),
    ),
    "pipeline bundle": (
        Field("files", "list", "the files that were written"),
        Field("command", "text", "how spark-submit is called"),
    ),
    "pipeline prepare": (
        Field("file", "text", "the archive that was written"),
        Field("bytes", "number", "its size"),
        Field("seconds", "number", "how long it took"),
    ),
}
"""The fields of each command's objects, in the order of the command line's documentation."""

ERROR = (
    Field("kind", "text", "what the exit code means: `refused`, `usage`, `unavailable`, …"),
    Field("type", "text", "the class of the error, such as `VersionConflictError`"),
    Field("message", "text", "what went wrong"),
    Field("advice", "text", "what to do about it; may be empty"),
    Field("exit", "number", "the exit code"),
)
"""The fields of the object ``error``, which is the last line of stderr."""
