"""A model of a store: linearizable, with sessions, fences and watches. It is the truth of a run.

Requests are served as events, one after the other, each at one moment of the virtual time. So what
the store has granted at a moment is known, and checks compare it with what clients believe.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from typing_extensions import override

from kip30 import Fence
from kip30.driver.kit import refusals
from kip30.driver.kit.key_claims import ClaimRequest, Refused
from kip30.driver.record_format import EnvelopeContent
from kip30.driver.records import (
    Entry,
    HeldByOther,
    Kind,
    NamePage,
    Snapshot,
    Target,
    Version,
    Write,
)
from kip30.errors import UnavailableError
from kip30.names import Key
from kip30_conformance.simulation.dialects import PLAIN, StoreDialect
from kip30_conformance.simulation.scheduler import Simulation

_ENDED = "the session has ended in the store"
_DELAY_RETRY_SECONDS = 0.5
_TABLE_OF = {Kind.VALUE: Kind.NAMESPACE, Kind.MEMBER: Kind.GROUP}
"""Of what is one record, the kind of the table that it is in."""


class Table(NamedTuple):
    """The name of a table: the records of a namespace, a group or a service, below a root."""

    root: str
    kind: Kind
    scope: str


def table_of(root: str, target: Target) -> Table:
    """Return the table of *target* below *root*."""
    return Table(root, _TABLE_OF.get(target.kind, target.kind), target.scope)


_Watched = tuple[Table, str | None]
"""A table, and the name of the one record of it that is watched; None for all."""


def _watched(root: str, target: Target) -> _Watched:
    return table_of(root, target), target.name if target.kind in _TABLE_OF else None


class ModelRecord(NamedTuple):
    """A record, and the session that it ends with; None if it ends with none."""

    entry: Entry
    session: int | None


class LockDelayed(Refused):
    """The answer to a claim of a service that is granted to no client yet."""

    @classmethod
    def at(cls, revision: int) -> "LockDelayed":
        """Return the answer at *revision*."""
        return cls(revision, EnvelopeContent("", "", b""), 0)

    @override
    def held(self) -> HeldByOther:
        return HeldByOther(Snapshot(self.order, {}), _DELAY_RETRY_SECONDS)


class ModelGrant(NamedTuple):
    """A claim that was granted, and the revision at which it was."""

    entry: Entry
    order: int


@dataclass
class _Session:
    """The store's record of a session.

    Attributes:
        seconds: How long it lasts without a renewal.
        renewed_at: The virtual time of the last renewal.
    """

    seconds: float
    renewed_at: float


@dataclass
class ModelStore:
    """The server. All methods are called by events, or by threads between two of their steps.

    Attributes:
        simulation: Where it runs.
        dialect: Its peculiarities.
        revision: Counts changes.
        is_down: Whether it serves no requests. Sessions last longer then.
        on_expiry: Called with a session that is about to end because it was not renewed.
        on_grant: Called with a table and what was granted in it.
    """

    simulation: Simulation
    dialect: StoreDialect = PLAIN
    revision: int = 0
    is_down: bool = False
    on_expiry: list[Callable[[int], object]] = field(default_factory=list[Callable[[int], object]])
    on_grant: list[Callable[[Table, str, Entry], object]] = field(
        default_factory=list[Callable[[Table, str, Entry], object]]
    )
    _tables: defaultdict[Table, dict[str, ModelRecord]] = field(
        default_factory=lambda: defaultdict[Table, dict[str, ModelRecord]](dict)
    )
    _sessions: dict[int, _Session] = field(default_factory=dict[int, _Session])
    _opened: int = 0
    # When each service can be claimed again.
    _free_at: dict[Table, float] = field(default_factory=dict[Table, float])
    _watchers: defaultdict[_Watched, dict[Callable[[], object], None]] = field(
        default_factory=lambda: defaultdict[_Watched, dict[Callable[[], object], None]](dict)
    )

    # -- sessions

    def open_session(self, seconds: float) -> int:
        """Return the number of a new session, which ends after *seconds* without a renewal."""
        self._opened += 1
        self._sessions[self._opened] = _Session(seconds, self.simulation.now)
        self._look_at(self._opened)
        return self._opened

    def renew(self, session: int) -> bool:
        """Let *session* last longer; false if it has ended."""
        found = self._sessions.get(session)
        if found is not None:
            found.renewed_at = self.simulation.now
        return found is not None

    def close_session(self, session: int) -> None:
        """Remove all records of *session*, and delay no service. Nothing happens if it has ended.

        A client that closes gives up what it holds before it ends its session.
        """
        self._removed_with(session)

    def end_session(self, session: int) -> None:
        """Remove all records of *session*. Nothing happens if it has ended."""
        for table in self._removed_with(session):
            self._free_at[table] = self.simulation.now + self.dialect.delay_seconds

    def terms_of(self, session: int) -> set[Fence]:
        """Return the services that *session* leads, with their epochs."""
        return {
            Fence(table.scope, row.entry.version.major)
            for table, rows in self._tables.items()
            for row in rows.values()
            if row.session == session and table.kind is Kind.SERVICE
        }

    def has_restarted(self) -> None:
        """Give all sessions their whole time again, if the dialect does."""
        if self.dialect.lengthens_sessions:
            for session in self._sessions.values():
                session.renewed_at = self.simulation.now

    def _removed_with(self, session: int) -> set[Table]:
        """Remove *session* with its records, and return the tables in which there were any."""
        if self._sessions.pop(session, None) is None:
            return set()
        found = [
            (table, name)
            for table, rows in self._tables.items()
            for name, row in rows.items()
            if row.session == session
        ]
        for table, name in found:
            self._remove(table, name)
        return {table for table, _ in found}

    def _look_at(self, session: int) -> None:
        """End *session* if it is due, else look again when it may be."""
        found = self._sessions.get(session)
        if found is None:
            return
        due = found.renewed_at + found.seconds
        if due > self.simulation.now or self.is_down:
            later = max(due, self.simulation.now + 0.05)
            self.simulation.at(later, lambda: self._look_at(session))
            return
        for expire in self.on_expiry:
            expire(session)
        self.end_session(session)

    # -- claims

    def claim(self, wanted: ClaimRequest[Table], session: int) -> ModelGrant | Refused:
        """Grant an id, or a service, which has one holder, to *session*."""
        if session not in self._sessions:
            raise UnavailableError(_ENDED)
        rows = self._rows(wanted.at)
        holder = next(iter(rows), wanted.name) if wanted.at.kind is Kind.SERVICE else wanted.name
        row = rows.get(holder)
        if row is None:
            is_delayed = wanted.at.kind is Kind.SERVICE and self._is_delayed(wanted.at)
            return LockDelayed.at(self.revision) if is_delayed else self._grant(wanted, session)
        version, nonce, data = row.entry
        if (row.session, nonce) != (session, wanted.nonce):
            return Refused(self.revision, EnvelopeContent(nonce, holder, data), version.major)
        return ModelGrant(row.entry, self.revision)

    def replace(self, wanted: ClaimRequest[Table], held: Entry) -> ModelGrant | None:
        """Replace the record *held*; None if it is gone."""
        row = self._rows(wanted.at).get(wanted.name)
        if row is None or row.entry.version != held.version:
            return None
        if row.entry.nonce != held.nonce:
            raise refusals.other_record(wanted.name)
        entry = wanted.entry(held.version.major)
        self._put(wanted.at, wanted.name, ModelRecord(entry, row.session))
        return ModelGrant(entry, self.revision)

    def release(self, table: Table, name: str, held: Entry) -> None:
        """Remove the record *held*, or what has replaced it, unless it is of another claim."""
        row = self._rows(table).get(name)
        if row is not None and row.entry.version == held.version:
            self._remove(table, name)

    def delete(self, table: Table, name: str) -> None:
        """Remove a record as an operator might, behind the back of its client."""
        if name in self._rows(table):
            self._remove(table, name)

    def _is_delayed(self, table: Table) -> bool:
        return self.simulation.now < self._free_at.get(table, 0.0)

    def _grant(self, wanted: ClaimRequest[Table], session: int) -> ModelGrant:
        entry = wanted.entry(self.revision + 1)
        for granted in self.on_grant:
            granted(wanted.at, wanted.name, entry)
        self._put(wanted.at, wanted.name, ModelRecord(entry, session))
        return ModelGrant(entry, self.revision)

    # -- values

    def read(self, root: str, keys: Sequence[Key]) -> list[Entry | None]:
        """Return the record of each of *keys*."""
        return [self._entry(root, key) for key in keys]

    def write(self, root: str, write: Write) -> Version:
        """Write one record if all conditions are met; see `StorageDriver.write`."""
        self._check_fence(root, write)
        before = self._version(root, write.key)
        unmet = refusals.unmet_guard(write, lambda key: self._version(root, key)) or refusals.unmet(
            write, before
        )
        if unmet is not None:
            raise unmet
        table = Table(root, Kind.NAMESPACE, write.key.namespace)
        if write.data is None:
            self._remove(table, write.key.name)
        else:
            version = Version(self.revision + 1)
            self._put(
                table, write.key.name, ModelRecord(Entry(version, write.nonce, write.data), None)
            )
        return Version(self.revision)

    def names(self, table: Table, after: str, limit: int) -> NamePage:
        """Return the next names of *table*, in the order of their bytes."""
        names = sorted(self._rows(table), key=str.encode)
        later = [name for name in names if name.encode() > after.encode()]
        return NamePage(later[:limit], is_last=len(later) <= limit)

    def _check_fence(self, root: str, write: Write) -> None:
        fence = write.fence
        if fence is None:
            return
        rows = self._rows(Table(root, Kind.SERVICE, fence.service))
        if not any(row.entry.version.major == fence.epoch for row in rows.values()):
            raise refusals.fenced(fence)

    def _version(self, root: str, key: Key) -> Version | None:
        entry = self._entry(root, key)
        return entry and entry.version

    def _entry(self, root: str, key: Key) -> Entry | None:
        row = self._rows(Table(root, Kind.NAMESPACE, key.namespace)).get(key.name)
        return row and row.entry

    # -- observing

    def look(self, root: str, target: Target) -> Snapshot:
        """Return the present state of *target* below *root*."""
        rows = self._rows(table_of(root, target))
        if target.kind in _TABLE_OF:
            rows = {target.name: rows[target.name]} if target.name in rows else {}
        return self._snapshot(rows)

    def watch(self, root: str, target: Target, changed: Callable[[], object]) -> None:
        """Call *changed* after each change of *target* below *root*."""
        self._watchers[_watched(root, target)][changed] = None

    def unwatch(self, root: str, target: Target, changed: Callable[[], object]) -> None:
        """Undo `watch`; nothing happens if that was done."""
        watched = _watched(root, target)
        self._watchers[watched].pop(changed, None)
        if not self._watchers[watched]:
            del self._watchers[watched]

    def _rows(self, table: Table) -> Mapping[str, ModelRecord]:
        return self._tables.get(table, {})

    def _snapshot(self, rows: Mapping[str, ModelRecord]) -> Snapshot:
        return Snapshot(self.revision, {name: row.entry for name, row in rows.items()})

    def _put(self, table: Table, name: str, row: ModelRecord) -> None:
        self._tables[table][name] = row
        self._has_changed(table, name)

    def _remove(self, table: Table, name: str) -> None:
        del self._tables[table][name]
        if not self._tables[table]:
            del self._tables[table]
        self._has_changed(table, name)

    def _has_changed(self, table: Table, name: str) -> None:
        self.revision += 1
        for watched in ((table, None), (table, name)):
            for changed in list(self._watchers.get(watched, ())):
                changed()
