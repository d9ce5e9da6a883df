"""When a keyspace was made or altered, from which the ids of its tables follow.

Cassandra lets two nodes make two tables of one name, with two ids, and later takes one of them for
the table, and the rows of the other one are lost. So clients that make tables at once have to
choose the same ids. But an id that follows from the name alone is that of the former table, too,
when a keyspace was dropped and made again: a node that was away meanwhile brings back its rows.

The moment at which the keyspace's own row was written into the schema is the same for all clients,
and another one each time. A client that finds an old keyspace without a table alters it first (to
what it is), for the table may have been dropped alone.
and another one each time. Who finds a keyspace that has been there for long, without a table,
alters it first (to what it is), for the table may have been dropped alone.

A node may not hear of any of this, or tell it to no other: the latest moment counts once most nodes
have it, for it is the one that is left when all have heard. Until then a node that has not got it
makes the keyspace itself, or alters it, and tells those that it can talk to.
"""

import logging
import time
from collections.abc import Sequence
from typing import NamedTuple

from kip30.errors import UnavailableError
from kip30_backends.cassandra.library import Node, Row, Wire

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
