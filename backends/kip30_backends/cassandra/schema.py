"""The keyspace and its tables: what they are, making them, and which servers may hold them."""

import re
import time
import uuid
from collections.abc import Sequence

from kip30.errors import StoreError, UnavailableError
from kip30_backends.cassandra import births
from kip30_backends.cassandra.library import Node, Wire
from kip30_backends.cassandra.settings import CassandraSettings, Replication

COPIES = 3
_SOME_DATACENTER = "datacenter1"
_DAY = 86_400
_PAUSE = 0.1
_AGREEMENT = 5.0
"""How long nodes may take to agree that there is a keyspace, in seconds, at least."""
_NUMBERS = re.compile(r"\d+")
_CREATE = re.compile(r"^CREATE (KEYSPACE|TABLE)")

_Numbers = tuple[int, ...]
_FIXED: dict[_Numbers, _Numbers] = {(3, 0): (3, 0, 24), (3, 11): (3, 11, 10)}
"""The first releases of old lines whose serial reads miss nothing (CASSANDRA-12126)."""
_NEW: _Numbers = (4, 0)

_TABLES = {
    "records": "root text, namespace text, name text,"
    " rev bigint static, fences map<text, bigint> static, done map<text, bigint> static,"
    " version bigint, nonce text, data blob,"
    " PRIMARY KEY ((root, namespace), name)",
    "members": "root text, in_group text, id text,"
    " rev bigint static,"
    " version bigint, nonce text, data blob, beat bigint,"
    " PRIMARY KEY ((root, in_group), id)",
    "leaders": "root text, service text, seat tinyint,"
    " epoch bigint static, fenced set<text> static,"
    " candidate text, nonce text, data blob, beat bigint,"
    " PRIMARY KEY ((root, service), seat)",
}
_SPECULATED = "100ms"
"""After which another copy is asked for what one does not tell.

By default that may be half of the nodes' read timeout, longer than calls last: a quorum would not
be read until the nodes have noticed that one of them is cut off.
"""
_OPTIONS = {
    # Whatever is deleted there would have expired long before.
    "members": f" AND gc_grace_seconds = {_DAY}",
    "leaders": f" AND gc_grace_seconds = {_DAY}",
}


def ddl(settings: CassandraSettings) -> list[str]:
    """Return what an administrator has to execute where clients may not make tables."""
    return [keyspace(settings, COPIES), *tables(settings.keyspace)]


def keyspace(settings: CassandraSettings, copies: int) -> str:
    """Return the statement that makes the keyspace, with so many *copies* unless settings tell."""
    center = settings.datacenter or _SOME_DATACENTER
    replication = settings.replication or (("", copies),)
    return (
        f"CREATE KEYSPACE IF NOT EXISTS {settings.keyspace} WITH replication ="
        f" {{'class': 'NetworkTopologyStrategy', {_copies(replication, center)}}}"
    )


def tables(keyspace_name: str, moment: int | None = None) -> list[str]:
    """Return the statements that make the tables.

    With the *moment* of the keyspace each has an id that follows from it, so that clients which
    make it at once make the same; without, Cassandra chooses.
    """
    return [
        f"CREATE TABLE IF NOT EXISTS {keyspace_name}.{name} ({columns})"
        f" WITH {_id(f'{keyspace_name}.{name}', moment)}"
        f"speculative_retry = '{_SPECULATED}'{_OPTIONS.get(name, '')}"
        for name, columns in _TABLES.items()
    ]


def _id(table: str, moment: int | None) -> str:
    """Return the option that sets the id of a table, whose name Cassandra reads in lower case."""
    if moment is None:
        return ""
    return f"id = {uuid.uuid5(uuid.NAMESPACE_URL, f'kip30:{table.lower()}:{moment}')} AND "


def check_versions(nodes: Sequence[Node]) -> None:
    """Require servers whose conditional writes can be relied on.

    Raises:
        StoreError: One of *nodes* is too old.
    """
    for node in nodes:
        version = str(node.release_version or "")
        if version and not is_recent(version):
            raise StoreError(
                f"Cassandra {version} at {node.endpoint} is too old: its serial reads miss writes"
                " (CASSANDRA-12126); kip30 needs 3.0.24, 3.11.10, 4.0, or later"
            )


def is_recent(version: str) -> bool:
    """Say whether a release has serial reads that miss nothing."""
    numbers = _numbers(version)
    return numbers >= _FIXED.get(numbers[:2], _NEW)


def _numbers(version: str) -> _Numbers:
    return tuple(map(int, _NUMBERS.findall(version)[:3]))


def missing(wire: Wire, settings: CassandraSettings, node: Node) -> set[str]:
    """Return the tables that *node* does not know."""
    found = wire.execute(
        "SELECT table_name FROM system_schema.tables"  # noqa: S608  a name that was checked
        f" WHERE keyspace_name = '{settings.keyspace.lower()}'",
        node,
    )
    return _TABLES.keys() - {row["table_name"] for row in found}


def make(wire: Wire, settings: CassandraSettings, node: Node, seconds: float) -> None:
    """Have *node* make the keyspace, and one that knows it the tables; others hear of it as a rule.

    Raises:
        StoreError: They are not to be made.
        UnavailableError: For *seconds* there were fewer nodes than copies, or nodes did not agree.
    """
    if not settings.create:
        lacking = ", ".join(sorted(missing(wire, settings, node)))
        raise StoreError(
            f"keyspace {settings.keyspace!r} lacks the tables {lacking}:"
            " make them (`kip30 config --ddl` shows how) or set plugin.cassandra.create=true"
        )
    copies = _copies_for(wire)
    _await_ring(wire, settings, node, copies, seconds)
    births.renew(wire, settings.keyspace, node)
    create = keyspace(settings, copies)
    wire.execute(create, node)
    birth = births.agreed(wire, settings.keyspace, create, max(1.5 * seconds, _AGREEMENT))
    for statement in tables(settings.keyspace, birth.moment):
        wire.execute(statement, birth.node)


def described(wire: Wire, settings: CassandraSettings, node: Node) -> list[str]:
    """Return the statements that make keyspace and tables as *node* has them. Since Cassandra 4."""
    rows = wire.execute(f"DESCRIBE KEYSPACE {settings.keyspace} WITH INTERNALS", node)
    return [
        _CREATE.sub(r"\g<0> IF NOT EXISTS", row["create_statement"])
        for row in rows
        if row["type"] == "keyspace" or (row["type"] == "table" and row["name"] in _TABLES)
    ]


def _copies_for(wire: Wire) -> int:
    near = [node for node in wire.known() if node.datacenter == wire.datacenter]
    return max(1, min(COPIES, len(near)))


def _await_ring(
    wire: Wire, settings: CassandraSettings, node: Node, copies: int, seconds: float
) -> None:
    """Wait until *node* has met enough others to hold the *copies*, or those of the settings.

    A conditional write asks most of the nodes in the ring that its coordinator sees, not most of
    the copies there ought to be: in a ring that has only begun to form, one alone may decide it.
    """
    replication = dict(settings.replication or (("", copies),))
    needed = replication.get("", replication.get(wire.datacenter, 0))
    until = time.monotonic() + seconds
    while (seen := _seen_by(wire, node)) < needed:
        if time.monotonic() > until:
            raise UnavailableError(
                f"keyspace {settings.keyspace} is to have {needed} copies in {wire.datacenter},"
                f" where {node.endpoint} sees {seen} of the nodes: start the others,"
                " or set plugin.cassandra.replication"
            )
        time.sleep(_PAUSE)


def _seen_by(wire: Wire, node: Node) -> int:
    """Return how many nodes of the data centre *node* has in its ring, with itself."""
    tells_ports = _numbers(node.release_version or "") >= _NEW
    peers = "SELECT data_center, tokens FROM system.peers"
    rows = wire.execute(f"{peers}_v2" if tells_ports else peers, node)
    others = [row for row in rows if row["tokens"] and row["data_center"] == wire.datacenter]
    return 1 + len(others)


def _copies(replication: Replication, center: str) -> str:
    return ", ".join(f"{_quoted(name or center)}: {number}" for name, number in replication)


def _quoted(name: str) -> str:
    return "'{}'".format(name.replace("'", "''"))
