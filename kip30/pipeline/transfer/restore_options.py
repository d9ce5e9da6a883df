"""The options of the jobs ``restore`` and ``migrate``."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kip30.driver import Capability
from kip30.driver.scanning import Layout
from kip30.errors import UnsupportedError, UsageError
from kip30.names import check_namespace
from kip30.pipeline.run.directory import read_manifest
from kip30.pipeline.run.manifest import MIGRATE_JOB
from kip30.pipeline.spark.source import SPAN_ROWS
from kip30.pipeline.stores.endpoints import SnapshotEndpoint, StoreEndpoint, require
from kip30.pipeline.write.outcomes import OnConflict

RESTORE = "restore"

_BACKUPS = {
    "zookeeper": "the commands `snapshot` and `restore` of ZooKeeper's admin server",
    "etcd": "`etcdctl snapshot save` and `etcdutl snapshot restore`",
    "consul": "`consul snapshot save` and `consul snapshot restore`, or `consul kv export` and"
    " `consul kv import`",
    "cassandra": "`nodetool snapshot` and `nodetool import`",
}
"""Tools that restore records of any program, by store: see docs/pipeline.md."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreOptions:
    """The source and the target.

    Attributes:
        source: A snapshot, or part of a store.
        target: The store.
        out: The folder of the run.
        resume: Whether to continue the run in *out*.
        into: The namespace for the records of another program; required for these.
        moves: Namespaces, and where their keys go, those below them included; the first one that
            fits a key counts. Other keys keep their namespaces.
        on_conflict: See `OnConflict`.
        rate: How many writes a second all tasks together may do; None: as many as they can.
        fence: Whether a former driver of this run can write nothing once another has begun.
        span_rows: About how many rows of a store are a span.
        request_seconds: How long a request of a scan may take.
        accept_stores: Stores that *target* may be from now on, as the error names them that is
            raised if it is another store than before. All is written to it again.
    """

    source: SnapshotEndpoint | StoreEndpoint
    target: StoreEndpoint
    out: Path
    resume: bool = False
    into: str | None = None
    moves: tuple[tuple[str, str], ...] = ()
    on_conflict: OnConflict = OnConflict.KEEP
    rate: float | None = None
    fence: bool = True
    span_rows: int = SPAN_ROWS
    request_seconds: float | None = None
    accept_stores: tuple[str, ...] = ()

    @property
    def job(self) -> str:
        """The name of the job."""
        return RESTORE if isinstance(self.source, SnapshotEndpoint) else MIGRATE_JOB

    def arguments(self) -> dict[str, Any]:
        """Return what decides the result."""
        return {
            "source": self.source.text,
            "target": self.target.text,
            "into": self.into,
            "moves": [list(move) for move in self.moves],
            "on_conflict": self.on_conflict.value,
        }

    def check(self) -> None:
        """Raise if these contradict each other.

        Raises:
            UsageError: They do; the message says what to write.
            InvalidNameError: *into*, or one of *moves*, cannot be a namespace.
            UnsupportedError: A store does not offer what this needs.
            StoreError: The manifest of the snapshot cannot be read.
            ConfigError: The configuration of a store is wrong.
        """
        if self.target.under:
            raise UsageError(f"{self.target.text}: keys keep their namespaces: leave out the '#'")
        if self.rate is not None and not self.rate > 0:
            raise UsageError(f"a rate of {self.rate} writes a second: give more than 0")
        if _layout(self.source) is Layout.RAW and self.into is None:
            raise UsageError(_needs_mapping(self.source))
        if _layout(self.source) is not Layout.RAW and self.into is not None:
            raise UsageError(f"{self.source.text} is not raw: its keys keep their namespaces")
        if self.moves and self.into is not None:
            raise UsageError(
                "--into and --map contradict each other: raw records have no namespace"
            )
        for name in (self.into or "", *(name for move in self.moves for name in move)):
            check_namespace(name)
        require(self.source, Capability.SCANNING)
        if self.fence:
            self._check_fence()

    def _check_fence(self) -> None:
        try:
            require(self.target, Capability.FENCING)
        except UnsupportedError as error:
            raise UnsupportedError(f"{error}. With --no-fence it can be written to") from None


def _needs_mapping(source: SnapshotEndpoint | StoreEndpoint) -> str:
    """Return what to do with *source*, whose records are raw."""
    advice = f"{source.text} is raw: --into NAMESPACE says which keys its records become"
    if isinstance(source, StoreEndpoint):
        return advice
    store = read_manifest(source.folder).source.get("store", "")
    tools = _BACKUPS.get(store, "the backup of the store itself")
    return f"{advice}; nothing writes them back as they were: for that use {tools}"


def _layout(source: SnapshotEndpoint | StoreEndpoint) -> Layout:
    if isinstance(source, StoreEndpoint):
        return source.layout
    return Layout(read_manifest(source.folder).source.get("layout", Layout.KIP30.value))
