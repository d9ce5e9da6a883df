"""The keyspace and its tables: what they are, making them, and which nodes know them.

Cassandra lets two nodes make two tables of one name, with two ids, and later takes one of them for
the table, and the rows of the other one are lost. So clients that make tables at once have to
choose the same ids. But an id that follows from the name alone is that of the former table, too,
when a keyspace was dropped and made again: a node that was away meanwhile brings back its rows.

The moment at which the keyspace's own row was written into the schema is the same for all clients,
and another one each time. A client that finds an old keyspace without a table alters it first (to
what it is), because the table may have been dropped alone.

A node may miss the news of any of this, or pass it to no other node. The latest moment counts once
most nodes have it, because it is the one that is left when all have it. Until then a node that
lacks it makes the keyspace itself, or alters it, and tells those that it can reach.

A node that has just started may take others for dead that are not. It loses what they send by then,
and does not ask again for up to a minute; meanwhile it refuses all requests, and fails those that
others pass on to it. Such a node is made to create what the others have: the same in every detail,
because of two definitions of a table the later one wins, and may be an administrator's.
"""

import logging
import re
import time
import uuid
from collections.abc import Sequence
from typing import NamedTuple

from kip30.errors import StoreError, UnavailableError
from kip30_backends.cassandra.client.library import Node, Row, Wire
from kip30_backends.cassandra.settings import CassandraSettings, Replication

_log = logging.getLogger(__name__)

_YOUNG = 60_000_000
"""Up to which age in microseconds the other clients may just be making the tables."""
_QUIET = 1.0
"""How long nodes have to agree, in seconds: until then another client may alter it."""
_DEAF = 2.0
"""How long a node may differ from most others, in seconds, until it is taken to hear nothing."""
_PAUSE = 0.1


class Birth(NamedTuple):
    """When a keyspace was written last, and a node that knows it."""

    moment: int
    node: Node


_Met = list[tuple[Node, int | None]]
"""What each node that is reached says, in an order that is the same for all clients."""


def agreed(wire: Wire, keyspace: str, create: str, seconds: float) -> Birth:
    """Return when *keyspace* was written last, once most nodes agree for a while.

    Nodes that do not hear of it receive the statement *create*.

    Raises:
        UnavailableError: For *seconds* they did not, or fewer than most could be reached.
    """
    until = time.monotonic() + seconds
    met, since = _Met(), time.monotonic()
    while time.monotonic() <= until:
        before, met, now = met, _moments(wire, keyspace), time.monotonic()
        if met != before:
            since = now
        elif now - since >= _QUIET:
            birth = _latest_of_most(wire, met)
            if birth and (_is_common(met) or now - since >= _DEAF):
                return birth
            if not birth:
                _advance(wire, keyspace, create, met)
                since = now
        time.sleep(_PAUSE)
    raise UnavailableError(
        f"the nodes do not agree on keyspace {keyspace}, or most cannot be reached:"
        " `nodetool describecluster` shows whether that passes"
    )


def renew(wire: Wire, keyspace: str, node: Node) -> None:
    """Give *keyspace* another moment if it is there and not young.

    A role without `ALTER` leaves it as it is.
    """
    rows = wire.execute(_row_of(keyspace, "durable_writes"), node)
    if not rows or _now(wire, node) - rows[0]["moment"] < _YOUNG:
        return
    _alter(wire, keyspace, node, rows[0])


def _alter(wire: Wire, keyspace: str, node: Node, row: Row) -> None:
    durable = str(row["durable_writes"]).lower()
    try:
        wire.execute(f"ALTER KEYSPACE {keyspace} WITH durable_writes = {durable}", node)
    except Exception as error:  # noqa: BLE001  the driver raises what it likes
        _log.info("keyspace %s keeps its moment: %s", keyspace, error)


def _moments(wire: Wire, keyspace: str) -> _Met:
    nodes = sorted(wire.reached(), key=lambda node: str(node.host_id))
    return [(node, _moment(wire.execute(_row_of(keyspace), node))) for node in nodes]


def _moment(rows: Sequence[Row]) -> int | None:
    return rows[0]["moment"] if rows else None


def _latest(met: _Met) -> int | None:
    return max((moment for _, moment in met if moment is not None), default=None)


def _is_common(met: _Met) -> bool:
    return len({moment for _, moment in met}) == 1


def _latest_of_most(wire: Wire, met: _Met) -> Birth | None:
    """Return the latest moment if most of all nodes, also of those not reached, have it."""
    latest = _latest(met)
    known = [node for node in wire.known() if node.datacenter == wire.datacenter]
    having = [node for node, moment in met if moment == latest]
    if latest is None or 2 * len(having) <= len(known):
        return None
    return Birth(latest, having[0])


def _advance(wire: Wire, keyspace: str, create: str, met: _Met) -> None:
    """Have a node that has not heard of the latest moment make a later one."""
    latest = _latest(met)
    behind = [node for node, moment in met if moment is None or moment != latest]
    for node in behind[:1]:
        wire.execute(create, node)
        for row in wire.execute(_row_of(keyspace, "durable_writes"), node):
            if row["moment"] < (latest or 0):
                _alter(wire, keyspace, node, row)


def _now(wire: Wire, node: Node) -> int:
    (row,) = wire.execute("SELECT toUnixTimestamp(now()) AS now FROM system.local", node)
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
    renew(wire, settings.keyspace, node)
    create = keyspace(settings, copies)
    wire.execute(create, node)
    birth = agreed(wire, settings.keyspace, create, max(1.5 * seconds, _AGREEMENT))
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


_HEARD = 1.0
"""How long a node may take to hear of tables, in seconds; as a rule it is some milliseconds."""


def ensure(wire: Wire, settings: CassandraSettings, seconds: float) -> None:
    """Make the keyspace and the tables unless they are there. One node makes all of it.

    Raises:
        StoreError: They are not, and are not to be made.
        UnavailableError: They are not, and for *seconds* there were fewer nodes than copies; or
            no node can be reached.
    """
    first = _somebody(wire)
    if missing(wire, settings, first) and _model(wire, settings) is None:
        make(wire, settings, first, seconds)


def spread(wire: Wire, settings: CassandraSettings) -> None:
    """Have nodes that lack tables make them, if others do not tell them soon.

    Raises:
        Exception: Any error of the driver, or of `ensure`; some nodes may have them by then.
    """
    model = _model(wire, settings)
    if model is None:
        make(wire, settings, _somebody(wire), seconds=0)
    elif settings.create and (lacking := _who_hear_nothing(wire, settings)):
        statements = described(wire, settings, model)
        for node in lacking:
            for statement in statements:
                wire.execute(statement, node)


def _somebody(wire: Wire) -> Node:
    """Return a node that is reached: of the same ones the same for every client.

    Of clients that make tables at once, as a rule, all ask that one.
    """
    nodes = sorted(wire.reached(), key=lambda node: str(node.host_id))
    if not nodes:
        raise UnavailableError("no node can be reached")
    return nodes[0]


def _model(wire: Wire, settings: CassandraSettings) -> Node | None:
    """Return a node that has the tables; None if none has, of those that are said to be up."""
    until = time.monotonic() + _HEARD
    while True:
        reached = wire.reached()
        for node in reached:
            if not missing(wire, settings, node):
                return node
        if len(reached) >= len(list(wire.nodes())) or time.monotonic() > until:
            return None
        time.sleep(_PAUSE)


def _who_hear_nothing(wire: Wire, settings: CassandraSettings) -> list[Node]:
    until = time.monotonic() + _HEARD
    while True:
        lacking = [node for node in wire.reached() if missing(wire, settings, node)]
        if not lacking or time.monotonic() > until:
            return lacking
        time.sleep(_PAUSE)
