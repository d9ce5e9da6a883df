"""The keyspace and its tables: their definitions, their creation, and which nodes know them.

Cassandra lets two nodes create two tables of one name, with two ids, and later takes one of them
for the table, and the rows of the other one are lost. So clients that create tables at once must
choose the same ids. But an id that follows from the name alone is also that of the former table,
when a keyspace was dropped and created again: a node that was away meanwhile restores its rows.

The moment at which the keyspace's own row was written into the schema is the same for all clients,
and a different one each time. A client that finds an old keyspace without a table alters it first
(to its current definition), because the table may have been dropped alone.

A node may miss any of these changes, or pass them to no other node. The latest moment counts once
most nodes have it, because it is the one that remains when all have it. Until then a node that
lacks it creates the keyspace itself, or alters it, and notifies the nodes that it can reach.

A node that has just started may consider other nodes dead that are not. It loses what they send in
that time, and does not ask again for up to a minute; meanwhile it refuses all requests, and fails
those that others forward to it. kip30 makes such a node create what the others have: the same in
every detail, because of two definitions of a table the later one wins, and may be an
administrator's.
"""

import logging
import re
import time
import uuid
from collections.abc import Sequence
from typing import NamedTuple

from kip30.errors import StoreError, UnavailableError
from kip30_backends.cassandra.client.connections import ClusterConnections, Node, Row
from kip30_backends.cassandra.settings import CassandraSettings, Replication

_log = logging.getLogger(__name__)

_RECENT_MICROSECONDS = 60_000_000
"""The age in microseconds up to which other clients may still be creating the tables."""
_STABLE_SECONDS = 1.0
"""Seconds for which nodes have to agree: until then another client may alter it."""
_STALE_NODE_SECONDS = 2.0
"""Seconds for which a node may differ from most others before it is disregarded."""
_PAUSE = 0.1


class KeyspaceWrite(NamedTuple):
    """The moment at which a keyspace was last written, and a node that knows it."""

    moment: int
    node: Node


_WriteTimes = list[tuple[Node, int | None]]
"""The answer of each node that is reached, in an order that is the same for all clients."""


def agreed(
    connections: ClusterConnections, keyspace: str, create: str, seconds: float
) -> KeyspaceWrite:
    """Return when *keyspace* was last written, once most nodes agree for a while.

    Nodes that do not know it receive the statement *create*.

    Raises:
        UnavailableError: They did not agree within *seconds*, or fewer than most could be reached.
    """
    until = time.monotonic() + seconds
    write_times, since = _WriteTimes(), time.monotonic()
    while time.monotonic() <= until:
        before, write_times, now = write_times, _moments(connections, keyspace), time.monotonic()
        # An answer counts once it has stayed the same: a change may have reached only some nodes.
        if write_times != before:
            since = now
        elif now - since >= _STABLE_SECONDS:
            written = _latest_of_most(connections, write_times)
            if written and (_is_common(write_times) or now - since >= _STALE_NODE_SECONDS):
                return written
            if not written:
                _advance(connections, keyspace, create, write_times)
                since = now
        time.sleep(_PAUSE)
    raise UnavailableError(
        f"the nodes do not agree on keyspace {keyspace}, or most cannot be reached:"
        " `nodetool describecluster` shows whether that passes"
    )


def renew(connections: ClusterConnections, keyspace: str, node: Node) -> None:
    """Give *keyspace* a new moment if it exists and is not young.

    A role without `ALTER` cannot, and leaves it as it is.
    """
    rows = connections.execute(_row_of(keyspace, "durable_writes"), node)
    if not rows or _now(connections, node) - rows[0]["moment"] < _RECENT_MICROSECONDS:
        return
    _alter(connections, keyspace, node, rows[0])


def _alter(connections: ClusterConnections, keyspace: str, node: Node, row: Row) -> None:
    durable = str(row["durable_writes"]).lower()
    try:
        connections.execute(f"ALTER KEYSPACE {keyspace} WITH durable_writes = {durable}", node)
    except Exception as error:  # noqa: BLE001  the driver raises what it likes
        _log.info("keyspace %s keeps its moment: %s", keyspace, error)


def _moments(connections: ClusterConnections, keyspace: str) -> _WriteTimes:
    nodes = sorted(connections.reached(), key=lambda node: str(node.host_id))
    return [(node, _moment(connections.execute(_row_of(keyspace), node))) for node in nodes]


def _moment(rows: Sequence[Row]) -> int | None:
    return rows[0]["moment"] if rows else None


def _latest(write_times: _WriteTimes) -> int | None:
    return max((moment for _, moment in write_times if moment is not None), default=None)


def _is_common(write_times: _WriteTimes) -> bool:
    return len({moment for _, moment in write_times}) == 1


def _latest_of_most(
    connections: ClusterConnections, write_times: _WriteTimes
) -> KeyspaceWrite | None:
    """Return the latest moment if most of all nodes, including unreachable ones, have it."""
    latest = _latest(write_times)
    known = [node for node in connections.known() if node.datacenter == connections.datacenter]
    having = [node for node, moment in write_times if moment == latest]
    if latest is None or 2 * len(having) <= len(known):
        return None
    return KeyspaceWrite(latest, having[0])


def _advance(
    connections: ClusterConnections, keyspace: str, create: str, write_times: _WriteTimes
) -> None:
    """Make a node that does not know the latest moment create a later one."""
    latest = _latest(write_times)
    behind = [node for node, moment in write_times if moment is None or moment != latest]
    for node in behind[:1]:
        connections.execute(create, node)
        for row in connections.execute(_row_of(keyspace, "durable_writes"), node):
            if row["moment"] < (latest or 0):
                _alter(connections, keyspace, node, row)


def _now(connections: ClusterConnections, node: Node) -> int:
    (row,) = connections.execute("SELECT toUnixTimestamp(now()) AS now FROM system.local", node)
    now: int = row["now"]
    return 1000 * now


def _row_of(keyspace: str, *more: str) -> str:
    columns = ", ".join(["WRITETIME(durable_writes) AS moment", *more])
    return (
        f"SELECT {columns} FROM system_schema.keyspaces"  # noqa: S608  a name that was checked
        f" WHERE keyspace_name = '{keyspace.lower()}'"
    )


COPIES = 3
_SOME_DATACENTER = "datacenter1"
_DAY = 86_400
_AGREEMENT = 5.0
"""Seconds that nodes may take, at least, to agree that there is a keyspace."""
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
"""The time without an answer after which another copy is read.

By default that may be half of the nodes' read timeout, longer than calls last: a quorum would not
be read until the nodes have noticed that one of them is cut off.
"""
_OPTIONS = {
    # Any row deleted there would have expired long before.
    "members": f" AND gc_grace_seconds = {_DAY}",
    "leaders": f" AND gc_grace_seconds = {_DAY}",
}


def ddl(settings: CassandraSettings) -> list[str]:
    """Return the statements for an administrator, where clients may not create tables."""
    return [keyspace(settings, COPIES), *tables(settings.keyspace)]


def keyspace(settings: CassandraSettings, copies: int) -> str:
    """Return the statement that creates the keyspace, with *copies* unless settings have it."""
    center = settings.datacenter or _SOME_DATACENTER
    replication = settings.replication or (("", copies),)
    return (
        f"CREATE KEYSPACE IF NOT EXISTS {settings.keyspace} WITH replication ="
        f" {{'class': 'NetworkTopologyStrategy', {_copies(replication, center)}}}"
    )


def tables(keyspace_name: str, moment: int | None = None) -> list[str]:
    """Return the statements that create the tables.

    With the *moment* of the keyspace each has an id that follows from it, so that clients which
    create it at once create the same; without, Cassandra chooses.
    """
    return [
        f"CREATE TABLE IF NOT EXISTS {keyspace_name}.{name} ({columns})"
        f" WITH {_id(f'{keyspace_name}.{name}', moment)}"
        f"speculative_retry = '{_SPECULATED}'{_OPTIONS.get(name, '')}"
        for name, columns in _TABLES.items()
    ]


def _id(table: str, moment: int | None) -> str:
    """Return the option that sets the id of a table; Cassandra reads its name in lower case."""
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
    """Return whether the serial reads of a release miss nothing."""
    numbers = _numbers(version)
    return numbers >= _FIXED.get(numbers[:2], _NEW)


def _numbers(version: str) -> _Numbers:
    return tuple(map(int, _NUMBERS.findall(version)[:3]))


def missing(connections: ClusterConnections, settings: CassandraSettings, node: Node) -> set[str]:
    """Return the tables that *node* does not know."""
    found = connections.execute(
        "SELECT table_name FROM system_schema.tables"  # noqa: S608  a name that was checked
        f" WHERE keyspace_name = '{settings.keyspace.lower()}'",
        node,
    )
    return _TABLES.keys() - {row["table_name"] for row in found}


def make(
    connections: ClusterConnections, settings: CassandraSettings, node: Node, seconds: float
) -> None:
    """Let *node* create the keyspace, and a node that knows it the tables; others usually follow.

    Raises:
        StoreError: The settings do not allow to create them.
        UnavailableError: For *seconds* there were fewer nodes than copies, or nodes did not agree.
    """
    if not settings.create:
        lacking = ", ".join(sorted(missing(connections, settings, node)))
        raise StoreError(
            f"keyspace {settings.keyspace!r} lacks the tables {lacking}:"
            " make them (`kip30 config --ddl` shows how) or set plugin.cassandra.create=true"
        )
    copies = _copies_for(connections)
    _await_ring(connections, settings, node, copies, seconds)
    renew(connections, settings.keyspace, node)
    create = keyspace(settings, copies)
    connections.execute(create, node)
    written = agreed(connections, settings.keyspace, create, max(1.5 * seconds, _AGREEMENT))
    for statement in tables(settings.keyspace, written.moment):
        connections.execute(statement, written.node)


def described(
    connections: ClusterConnections, settings: CassandraSettings, node: Node
) -> list[str]:
    """Return the statements that create what *node* has. Since Cassandra 4."""
    rows = connections.execute(f"DESCRIBE KEYSPACE {settings.keyspace} WITH INTERNALS", node)
    return [
        _CREATE.sub(r"\g<0> IF NOT EXISTS", row["create_statement"])
        for row in rows
        if row["type"] == "keyspace" or (row["type"] == "table" and row["name"] in _TABLES)
    ]


def _copies_for(connections: ClusterConnections) -> int:
    near = [node for node in connections.known() if node.datacenter == connections.datacenter]
    return max(1, min(COPIES, len(near)))


def _await_ring(
    connections: ClusterConnections,
    settings: CassandraSettings,
    node: Node,
    copies: int,
    seconds: float,
) -> None:
    """Wait until *node* sees enough others to hold the *copies*, or those of the settings.

    A conditional write asks most of the nodes in the ring that its coordinator sees, not most of
    the configured copies: in a ring that has only begun to form, one alone may decide it.
    """
    replication = dict(settings.replication or (("", copies),))
    needed = replication.get("", replication.get(connections.datacenter, 0))
    until = time.monotonic() + seconds
    while (seen := _seen_by(connections, node)) < needed:
        if time.monotonic() > until:
            raise UnavailableError(
                f"keyspace {settings.keyspace} is to have {needed} copies in"
                f" {connections.datacenter}, where {node.endpoint} sees {seen} of the nodes:"
                " start the others, or set plugin.cassandra.replication"
            )
        time.sleep(_PAUSE)


def _seen_by(connections: ClusterConnections, node: Node) -> int:
    """Return how many nodes of the data centre *node* has in its ring, including itself."""
    tells_ports = _numbers(node.release_version or "") >= _NEW
    peers = "SELECT data_center, tokens FROM system.peers"
    rows = connections.execute(f"{peers}_v2" if tells_ports else peers, node)
    others = [row for row in rows if row["tokens"] and row["data_center"] == connections.datacenter]
    return 1 + len(others)


def _copies(replication: Replication, center: str) -> str:
    return ", ".join(f"{_quoted(name or center)}: {number}" for name, number in replication)


def _quoted(name: str) -> str:
    return "'{}'".format(name.replace("'", "''"))


_PROPAGATION_SECONDS = 1.0
"""Seconds that tables may take to reach a node; as a rule it is some milliseconds."""


def ensure(connections: ClusterConnections, settings: CassandraSettings, seconds: float) -> None:
    """Create the keyspace and the tables unless they exist. One node creates all of them.

    Raises:
        StoreError: They do not exist, and the settings do not allow to create them.
        UnavailableError: They do not exist, and for *seconds* there were fewer nodes than copies;
            or no node can be reached.
    """
    first = _first_reachable_node(connections)
    if missing(connections, settings, first) and _model(connections, settings) is None:
        make(connections, settings, first, seconds)


def spread(connections: ClusterConnections, settings: CassandraSettings) -> None:
    """Make nodes that lack tables create them, unless other nodes send them soon.

    Raises:
        Exception: Any error of the driver, or of `ensure`; some nodes may have them by then.
    """
    model = _model(connections, settings)
    if model is None:
        make(connections, settings, _first_reachable_node(connections), seconds=0)
    elif settings.create and (lacking := _nodes_without_tables(connections, settings)):
        statements = described(connections, settings, model)
        for node in lacking:
            for statement in statements:
                connections.execute(statement, node)


def _first_reachable_node(connections: ClusterConnections) -> Node:
    """Return a reachable node: every client that reaches the same nodes gets the same one.

    So clients that create tables at once usually all ask that one.
    """
    nodes = sorted(connections.reached(), key=lambda node: str(node.host_id))
    if not nodes:
        raise UnavailableError("no node can be reached")
    return nodes[0]


def _model(connections: ClusterConnections, settings: CassandraSettings) -> Node | None:
    """Return a node that has the tables; None if no node that is reported up has them."""
    until = time.monotonic() + _PROPAGATION_SECONDS
    while True:
        reached = connections.reached()
        for node in reached:
            if not missing(connections, settings, node):
                return node
        if len(reached) >= len(list(connections.nodes())) or time.monotonic() > until:
            return None
        time.sleep(_PAUSE)


def _nodes_without_tables(
    connections: ClusterConnections, settings: CassandraSettings
) -> list[Node]:
    until = time.monotonic() + _PROPAGATION_SECONDS
    while True:
        lacking = [node for node in connections.reached() if missing(connections, settings, node)]
        if not lacking or time.monotonic() > until:
            return lacking
        time.sleep(_PAUSE)
