"""Reading targets: as rows, and which of them have changed.

A watch delivers a state for each change of a group or a namespace, and states are immutable. With
ten thousand entries a copy takes longer than the rest of an event, so a state that differs little
from an earlier one refers to it (`LayeredEntries`).

SQLite checks no types: in a row of another program a column of blobs may hold text or numbers, and
text that is not UTF-8. Such a row is set apart and hides no record.
"""

import sqlite3
from collections.abc import Callable, Container, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple, cast

from typing_extensions import override

from kip30.driver.records import Delta, Entry, Kind, Snapshot, Target, Version
from kip30.errors import StoreError
from kip30_backends.embedded.database import KINDS, Database
from kip30_backends.embedded.liveness import SessionLiveness

_FEW = 128
"""Maximum number of changes over a dict: beyond them it is copied."""


class LayeredEntries(Mapping[str, Entry]):
    """The entries of an immutable dict with few changes."""

    __slots__ = ("_base", "_changes", "_size")

    def __init__(self, base: dict[str, Entry], changes: dict[str, Entry | None], size: int) -> None:
        """Start with *size* entries: *base* with *changes*, where None removes an entry."""
        self._base = base
        self._changes = changes
        self._size = size

    @override
    def __getitem__(self, name: str) -> Entry:
        entry = self._changes[name] if name in self._changes else self._base[name]
        if entry is None:
            raise KeyError(name)
        return entry

    @override
    def __contains__(self, name: object) -> bool:
        changes: Mapping[object, Entry | None] = cast(
            "Mapping[object, Entry | None]", self._changes
        )
        return changes[name] is not None if name in changes else name in self._base

    @override
    def __iter__(self) -> Iterator[str]:
        changes = self._changes
        yield from (name for name in self._base if name not in changes)
        yield from (name for name, entry in changes.items() if entry is not None)

    @override
    def __len__(self) -> int:
        return self._size

    def over(self) -> tuple[dict[str, Entry], dict[str, Entry | None]]:
        """Return what it is made of."""
        return self._base, self._changes


def changed(before: Mapping[str, Entry], now: Mapping[str, Entry | None]) -> Mapping[str, Entry]:
    """Return the entries *before*, changed by *now*, where None removes one."""
    base, changes = before.over() if isinstance(before, LayeredEntries) else (dict(before), {})
    changes = {**changes, **now}
    if len(changes) > _FEW or len(changes) > len(base):
        return _flat(base, changes)
    came = sum(name not in before for name, entry in now.items() if entry is not None)
    went = sum(name in before for name, entry in now.items() if entry is None)
    return LayeredEntries(base, changes, len(before) + came - went)


def _flat(base: dict[str, Entry], changes: dict[str, Entry | None]) -> dict[str, Entry]:
    entries = dict(base)
    for name, entry in changes.items():
        if entry is None:
            entries.pop(name, None)
        else:
            entries[name] = entry
    return entries


UNREADABLE = (sqlite3.OperationalError, UnicodeDecodeError, AttributeError, TypeError)
"""Errors of reading a row that kip30 has not written, or of decoding its names."""

_ADVICE = "another program wrote it: delete or replace it with that"


class Content(NamedTuple):
    """The records among some rows by name, and why the other rows are not records."""

    entries: dict[str, Entry]
    unreadable: dict[str, str]


class _Undecodable(bytes):
    """Text that is not UTF-8."""


def records(
    connection: sqlite3.Connection, query: str, parameters: Sequence[Any], *, name: str = ""
) -> Content:
    """Return what *query* finds: rows of a name, a version, a nonce and data.

    A row that is found by *name* counts under that name, even if its own name cannot be read.
    """
    try:
        return Content(dict(map(_record, connection.execute(query, parameters))), {})
    except UNREADABLE:
        return _judged(connection, query, parameters, name)


def entry(version: int, nonce: str, data: bytes) -> Entry:
    """Return the record with these columns.

    Raises:
        TypeError: They are not those of a record.
    """
    # By type, not `isinstance`: this is done for each row, and SQLite gives no subclasses.
    if type(data) is bytes and type(nonce) is str and type(version) is int:
        return Entry(Version(version), nonce, data)
    raise TypeError(_fault(version, nonce, data))


def foreign(what: str, reason: object) -> StoreError:
    """Return the error for *what*, which a caller requested by name and which is not a record."""
    return StoreError(f"{what} cannot be read: {reason}: {_ADVICE}")


@contextmanager
def any_text(connection: sqlite3.Connection) -> Generator[None]:
    """Let *connection* also read text that is not UTF-8."""
    before = connection.text_factory
    connection.text_factory = _text
    try:
        yield
    finally:
        connection.text_factory = before


def _record(row: tuple[bytes, int, str, bytes]) -> tuple[str, Entry]:
    return row[0].decode(), entry(*row[1:])


def _judged(
    connection: sqlite3.Connection, query: str, parameters: Sequence[Any], called: str
) -> Content:
    found = Content({}, {})
    with any_text(connection):
        for row in connection.execute(query, parameters):
            try:
                name, record = _record(row)
            except (UnicodeDecodeError, AttributeError, TypeError) as error:
                found.unreadable[called or _shown(row[0])] = _reason(row[0], error)
            else:
                found.entries[name] = record
    return found


def _reason(name: object, error: Exception) -> str:
    if type(name) is not bytes:
        return f"its name is {_kind(name)}"
    return str(error) if isinstance(error, TypeError) else "its name is not UTF-8"


def _fault(version: object, nonce: object, data: object) -> str:
    if type(version) is not int:
        return f"its version is {_kind(version)}"
    if type(nonce) is not str:
        return f"its nonce is {_kind(nonce)}"
    return f"its data is {_kind(data)}"


def _kind(value: object) -> str:
    """Return what SQLite calls the type of *value*."""
    kinds: dict[type[object], str] = {
        bytes: "a blob",
        str: "text",
        int: "a number",
        float: "a number",
    }
    return kinds.get(type(value), "NULL" if value is None else "text that is not UTF-8")


def _shown(name: object) -> str:
    """Return *name* in a printable form that differs from the names of records beside it."""
    if type(name) is bytes:
        return name.decode(errors="backslashreplace")
    return repr(bytes(name) if isinstance(name, bytes) else name)


def _text(raw: bytes) -> object:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return _Undecodable(raw)


_REV = "SELECT max(rev) FROM change"
_OLDEST = "SELECT min(rev) FROM change"
_CHANGES = "SELECT kind, scope, name FROM change WHERE rev > ? AND root = ?"

_VALUE = """
SELECT name, rev, nonce, data FROM kv WHERE root = ? AND namespace = ? AND name = ?
"""
# Only the names, as lists have them: a read of a value finds out whether it can be read.
_NAMESPACE = "SELECT name, 0, '', x'' FROM kv WHERE root = ? AND namespace = ?"
_GROUP = "SELECT id, born, nonce, data FROM member WHERE root = ? AND scope = ?"
_MEMBER = "SELECT id, born, nonce, data FROM member WHERE root = ? AND scope = ? AND id = ?"
_SERVICE = """
SELECT candidate, epoch, nonce, data FROM service
WHERE root = ? AND scope = ? AND candidate IS NOT NULL
"""
_HOLDERS = {
    Kind.GROUP: """
SELECT DISTINCT session.id, boot, deadline FROM member JOIN session ON session.id = session
WHERE root = ? AND scope = ?
""",
    Kind.MEMBER: """
SELECT session.id, boot, deadline FROM member JOIN session ON session.id = session
WHERE root = ? AND scope = ? AND member.id = ?
""",
    Kind.SERVICE: """
SELECT session.id, boot, deadline FROM service JOIN session ON session.id = session
WHERE root = ? AND scope = ?
""",
}


_ONE_OF_MANY = {
    Kind.NAMESPACE: f"{_NAMESPACE} AND name = ?",
    Kind.GROUP: _MEMBER,
}
"""Queries that read one record of a target that has many."""
_READ_ONE_BY_ONE = 500
"""Most changed records that are read one by one; if more changed, the whole target is read."""


class ChangedStates(NamedTuple):
    """The states, as of *rev*, of the targets that were requested or have changed."""

    rev: int
    states: dict[Target, Snapshot]


class TargetStates:
    """The targets of one root, as the database has them.

    Attributes:
        root: The root.
    """

    def __init__(self, database: Database, root: int, liveness: SessionLiveness) -> None:
        """Read from *database* what belongs to *root*."""
        self._database = database
        self.root = root
        self._liveness = liveness

    def current(self, target: Target) -> Snapshot:
        """Return the state of *target*, after deleting the claims of dead sessions on it."""
        if target.kind in _HOLDERS:
            self._end_dead_holders(target)
        return self.stored(target)

    def stored(self, target: Target) -> Snapshot:
        """Return the state of *target* as it is stored."""
        return self._database.read(lambda connection: self._stored(connection, target))

    def check(self) -> None:
        """Raise what `Connections.refuse` raises."""
        self._database.connections.refuse()

    def news(
        self, seen: int, delivered: Mapping[Target, Snapshot], fresh: Iterable[Target]
    ) -> ChangedStates:
        """Return, as of one moment, the states of *fresh* and the changed ones of *delivered*.

        The latter are states as of the revision *seen*; if that is negative, all are read as a
        whole.
        """
        return self._database.read(partial(self._news, seen, delivered, fresh))

    def _end_dead_holders(self, target: Target) -> None:
        parameters = self._query(target)[1]
        query = _HOLDERS[target.kind]
        holders = self._database.read(lambda c: c.execute(query, parameters).fetchall())
        dead = [row[0] for row in holders if not self._liveness.is_alive(*row)]
        if dead:
            self._database.write(partial(self._liveness.end_dead, sessions=dead))

    def _stored(self, connection: sqlite3.Connection, target: Target) -> Snapshot:
        rev = begin(connection)
        return self._whole(connection, target, rev)

    def _whole(self, connection: sqlite3.Connection, target: Target, rev: int) -> Snapshot:
        query, parameters = self._query(target)
        return Snapshot(rev, *records(connection, query, parameters, name=target.name))

    def _query(self, target: Target) -> tuple[str, tuple[Any, ...]]:
        place = (self.root, target.scope.encode())
        match target.kind:
            case Kind.VALUE:
                return _VALUE, (*place, target.name.encode())
            case Kind.NAMESPACE:
                return _NAMESPACE, place
            case Kind.GROUP:
                return _GROUP, place
            case Kind.MEMBER:
                return _MEMBER, (*place, target.name.encode())
            case Kind.SERVICE:
                return _SERVICE, place

    def _news(
        self,
        seen: int,
        delivered: Mapping[Target, Snapshot],
        fresh: Iterable[Target],
        connection: sqlite3.Connection,
    ) -> ChangedStates:
        rev = begin(connection)
        states: dict[Target, Snapshot] = {}
        if rev != seen:
            try:
                altered = self._changed_names(connection, seen, delivered)
            except UNREADABLE:  # another program wrote a change, of an unknown target
                altered = dict.fromkeys(list(delivered))
            for target, names in altered.items():
                before = delivered.get(target)  # none if its last watch was closed just now
                state = before and self._after(connection, target, before, names, rev)
                if state is not None:
                    states[target] = state
        for target in fresh:
            if target not in states:
                states[target] = delivered.get(target) or self._whole(connection, target, rev)
        return ChangedStates(rev, states)

    def _changed_names(
        self, connection: sqlite3.Connection, seen: int, delivered: Mapping[Target, Snapshot]
    ) -> dict[Target, set[str] | None]:
        """Return which of *delivered* changed after *seen*, with the names; None if not known."""
        if is_forgotten(connection, seen):
            return dict.fromkeys(list(delivered))  # a copy: watches are closed meanwhile
        changed: dict[Target, set[str] | None] = {}
        for kind, scope, name in connection.execute(_CHANGES, (seen, self.root)):
            for target in targets_of(kind, scope, name):
                if target in delivered:
                    names = changed.setdefault(target, set())
                    if names is not None:
                        names.add(name.decode())
        return changed

    def _after(
        self,
        connection: sqlite3.Connection,
        target: Target,
        before: Snapshot,
        names: set[str] | None,
        rev: int,
    ) -> Snapshot | None:
        """Return the state of *target*, of which *names* have changed since *before*.

        None if it is the same: an update of a value does not change a set of keys.
        """
        one = _ONE_OF_MANY.get(target.kind)
        if one is None or names is None or len(names) > _READ_ONE_BY_ONE:
            return self._whole(connection, target, rev)
        found, unreadable = self._each(connection, one, target.scope, names)
        for name in before.unreadable.keys() - names:
            unreadable[name] = before.unreadable[name]
        same_names = _same_names(names, before.entries, found)
        if target.kind is Kind.NAMESPACE and same_names and unreadable == before.unreadable:
            return None
        entries = changed(before.entries, {name: found.get(name) for name in names})
        return Snapshot(rev, entries, unreadable, Delta(before.order, frozenset(names)))

    def _each(
        self, connection: sqlite3.Connection, one: str, scope: str, names: Iterable[str]
    ) -> Content:
        """Return the records of *names*, each of which the query *one* finds on its own."""
        found = Content({}, {})
        for name in names:
            place = (self.root, scope.encode(), name.encode())
            entries, unreadable = records(connection, one, place, name=name)
            found.entries.update(entries)
            found.unreadable.update(unreadable)
        return found


def _same_names(names: Iterable[str], one: Container[str], other: Container[str]) -> bool:
    """Return whether each of *names* is in both or in neither."""
    return all((name in one) == (name in other) for name in names)


def is_forgotten(connection: sqlite3.Connection, seen: int) -> bool:
    """Return whether the log of changes lacks some of those after revision *seen*."""
    return seen < 0 or bool(connection.execute(_OLDEST).fetchone()[0] > seen + 1)


def begin(connection: sqlite3.Connection) -> int:
    """Begin to read one moment; return its revision."""
    connection.execute("BEGIN")
    rev: int = connection.execute(_REV).fetchone()[0]
    return rev


def targets_of(kind: int, scope: bytes, name: bytes) -> list[Target]:
    """Return what a row of the log of changes says has changed.

    Raises:
        UnicodeDecodeError, AttributeError, TypeError: Another program wrote the row.
    """
    return _TARGETS.get(kind, _no_targets)(scope.decode(), name.decode())


def _no_targets(_scope: str, _name: str) -> list[Target]:
    return []


_TARGETS: dict[int, Callable[[str, str], list[Target]]] = {
    KINDS[Kind.VALUE]: lambda scope, name: [
        Target(Kind.VALUE, scope, name),
        Target(Kind.NAMESPACE, scope),
    ],
    KINDS[Kind.GROUP]: lambda scope, name: [
        Target(Kind.GROUP, scope),
        Target(Kind.MEMBER, scope, name),
    ],
    KINDS[Kind.SERVICE]: lambda scope, _: [Target(Kind.SERVICE, scope)],
}
