"""Reading whole targets, and which of them have changed."""

import sqlite3
from collections.abc import Callable, Container, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

from kip30.driver.records import Delta, Kind, Snapshot, Target
from kip30_backends.embedded.database import KINDS, Database
from kip30_backends.embedded.layers import changed
from kip30_backends.embedded.peers import Peers
from kip30_backends.embedded.rows import UNREADABLE, Records, records

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
"""How one record is read of a target that has many."""
_READ_ONE_BY_ONE = 500
"""How many changed records are read on their own; of more, the target is read as a whole."""


class News(NamedTuple):
    """The states, as of *rev*, of the targets that were requested or have changed."""

    rev: int
    states: dict[Target, Snapshot]


class States:
    """The targets of one root, as the database has them."""

    def __init__(self, database: Database, root: int, peers: Peers) -> None:
        """Read from *database* what belongs to *root*."""
        self._database = database
        self._root = root
        self._peers = peers

    def current(self, target: Target) -> Snapshot:
        """Return the state of *target*, after freeing what the dead hold of it."""
        if target.kind in _HOLDERS:
            self._free_from_dead(target)
        return self.stored(target)

    def stored(self, target: Target) -> Snapshot:
        """Return the state of *target* as it is written."""
        return self._database.read(lambda connection: self._stored(connection, target))

    def check(self) -> None:
        """Raise what `Connections.refuse` raises."""
        self._database.connections.refuse()

    def news(self, seen: int, told: Mapping[Target, Snapshot], fresh: Iterable[Target]) -> News:
        """Return, as of one moment, the states of *fresh* and of those *told* that have changed.

        *told* are states as of the revision *seen*; if that is negative, each is read as a whole.
        """
        return self._database.read(partial(self._news, seen, told, fresh))

    def _free_from_dead(self, target: Target) -> None:
        parameters = self._query(target)[1]
        query = _HOLDERS[target.kind]
        holders = self._database.read(lambda c: c.execute(query, parameters).fetchall())
        dead = [row[0] for row in holders if not self._peers.is_alive(*row)]
        if dead:
            self._database.write(partial(self._peers.spare_living, sessions=dead))

    def _stored(self, connection: sqlite3.Connection, target: Target) -> Snapshot:
        rev = _begin(connection)
        return self._whole(connection, target, rev)

    def _whole(self, connection: sqlite3.Connection, target: Target, rev: int) -> Snapshot:
        query, parameters = self._query(target)
        return Snapshot(rev, *records(connection, query, parameters, name=target.name))

    def _query(self, target: Target) -> tuple[str, tuple[Any, ...]]:
        place = (self._root, target.scope.encode())
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
        told: Mapping[Target, Snapshot],
        fresh: Iterable[Target],
        connection: sqlite3.Connection,
    ) -> News:
        rev = _begin(connection)
        states: dict[Target, Snapshot] = {}
        if rev != seen:
            try:
                altered = self._changed_names(connection, seen, told)
            except UNREADABLE:  # a change that another program wrote: it may be of anything
                altered = dict.fromkeys(list(told))
            for target, names in altered.items():
                before = told.get(target)  # none if its last watch was closed just now
                state = before and self._after(connection, target, before, names, rev)
                if state is not None:
                    states[target] = state
        for target in fresh:
            if target not in states:
                states[target] = told.get(target) or self._whole(connection, target, rev)
        return News(rev, states)

    def _changed_names(
        self, connection: sqlite3.Connection, seen: int, told: Mapping[Target, Snapshot]
    ) -> dict[Target, set[str] | None]:
        """Return what of *told* has changed after *seen*, with the names; None if not known."""
        if seen < 0 or connection.execute(_OLDEST).fetchone()[0] > seen + 1:
            return dict.fromkeys(list(told))  # a copy: watches are closed meanwhile
        changed: dict[Target, set[str] | None] = {}
        for kind, scope, name in connection.execute(_CHANGES, (seen, self._root)):
            named = name.decode()
            for target in _TARGETS.get(kind, _no_targets)(scope.decode(), named):
                if target in told:
                    names = changed.setdefault(target, set())
                    if names is not None:
                        names.add(named)
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
    ) -> Records:
        """Return the records of *names*, each of which the query *one* finds on its own."""
        found = Records({}, {})
        for name in names:
            place = (self._root, scope.encode(), name.encode())
            entries, unreadable = records(connection, one, place, name=name)
            found.entries.update(entries)
            found.unreadable.update(unreadable)
        return found


def _same_names(names: Iterable[str], one: Container[str], other: Container[str]) -> bool:
    """Say whether each of *names* is either in both or in neither."""
    return all((name in one) == (name in other) for name in names)


def _begin(connection: sqlite3.Connection) -> int:
    """Begin to read as of one moment; return its revision."""
    connection.execute("BEGIN")
    rev: int = connection.execute(_REV).fetchone()[0]
    return rev


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
