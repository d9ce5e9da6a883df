"""Reading whole targets, and which of them have changed."""

import sqlite3
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from kip30.records import Entry, Kind, Snapshot, Target, Version
from kip30_backends.embedded.database import KINDS, Database
from kip30_backends.embedded.peers import Peers

_REV = "SELECT max(rev) FROM change"
_OLDEST = "SELECT min(rev) FROM change"
_CHANGES = "SELECT rev, kind, scope, name FROM change WHERE rev > ? AND root = ?"

_VALUE = """
SELECT name, rev, nonce, data FROM kv WHERE root = ? AND namespace = ? AND name = ?
"""
_NAMESPACE = "SELECT name, rev, '', x'' FROM kv WHERE root = ? AND namespace = ?"
_GROUP = "SELECT id, born, nonce, data FROM member WHERE root = ? AND scope = ?"
_SERVICE = """
SELECT candidate, epoch, nonce, data FROM service
WHERE root = ? AND scope = ? AND candidate IS NOT NULL
"""
_HOLDERS = {
    Kind.GROUP: """
SELECT DISTINCT session.id, boot, deadline FROM member JOIN session ON session.id = session
WHERE root = ? AND scope = ?
""",
    Kind.SERVICE: """
SELECT session.id, boot, deadline FROM service JOIN session ON session.id = session
WHERE root = ? AND scope = ?
""",
}


class Changes(NamedTuple):
    """What happened up to *rev*: the newest revision of each target; None if too much did."""

    rev: int
    newest: dict[Target, int] | None


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

    def changes_since(self, rev: int) -> Changes:
        """Return what has changed after *rev*; negative: everything."""
        return self._database.read(lambda connection: self._changes(connection, rev))

    def _free_from_dead(self, target: Target) -> None:
        parameters = (self._root, target.scope.encode())
        query = _HOLDERS[target.kind]
        holders = self._database.read(lambda c: c.execute(query, parameters).fetchall())
        dead = [row[0] for row in holders if not self._peers.is_alive(*row)]
        if dead:
            self._database.write(partial(self._peers.spare_living, sessions=dead))

    def _stored(self, connection: sqlite3.Connection, target: Target) -> Snapshot:
        connection.execute("BEGIN")
        rev: int = connection.execute(_REV).fetchone()[0]
        query, parameters = self._query(target)
        rows = connection.execute(query, parameters).fetchall()
        entries = {
            name.decode(): Entry(Version(version), nonce, data)
            for name, version, nonce, data in rows
        }
        return Snapshot(rev, entries)

    def _query(self, target: Target) -> tuple[str, tuple[Any, ...]]:
        place = (self._root, target.scope.encode())
        match target.kind:
            case Kind.VALUE:
                return _VALUE, (*place, target.name.encode())
            case Kind.NAMESPACE:
                return _NAMESPACE, place
            case Kind.GROUP:
                return _GROUP, place
            case Kind.SERVICE:
                return _SERVICE, place

    def _changes(self, connection: sqlite3.Connection, seen: int) -> Changes:
        connection.execute("BEGIN")
        rev: int = connection.execute(_REV).fetchone()[0]
        if rev == seen:
            return Changes(rev, {})
        if connection.execute(_OLDEST).fetchone()[0] > seen + 1:
            return Changes(rev, None)
        newest: dict[Target, int] = {}
        for at, kind, scope, name in connection.execute(_CHANGES, (seen, self._root)):
            for target in _TARGETS[kind](scope.decode(), name.decode()):
                newest[target] = at
        return Changes(rev, newest)


_TARGETS: dict[int, Callable[[str, str], list[Target]]] = {
    KINDS[Kind.VALUE]: lambda scope, name: [
        Target(Kind.VALUE, scope, name),
        Target(Kind.NAMESPACE, scope),
    ],
    KINDS[Kind.GROUP]: lambda scope, _: [Target(Kind.GROUP, scope)],
    KINDS[Kind.SERVICE]: lambda scope, _: [Target(Kind.SERVICE, scope)],
}
