"""Having every node know the tables, also one that word of them did not reach.

A node that has just started may take others for dead that are not. What they tell it by then is
lost, and it does not ask them again for up to a minute; meanwhile it refuses all requests, and
fails those that others pass on to it. It is told to make what the others have: the same in every
detail, for of two definitions of a table the later one wins, and may be an administrator's.
"""

import time

from kip30.errors import UnavailableError
from kip30_backends.cassandra import schema
from kip30_backends.cassandra.library import Node, Wire
from kip30_backends.cassandra.settings import CassandraSettings

_HEARD = 1.0
"""How long a node may take to hear of tables, in seconds; as a rule it is some milliseconds."""
_PAUSE = 0.1


def ensure(wire: Wire, settings: CassandraSettings, seconds: float) -> None:
    """Make the keyspace and the tables unless they are there. One node makes all of it.

    Raises:
        StoreError: They are not, and are not to be made.
        UnavailableError: They are not, and for *seconds* there were fewer nodes than copies; or
            no node can be reached.
    """
    first = _somebody(wire)
    if schema.missing(wire, settings, first) and _model(wire, settings) is None:
        schema.make(wire, settings, first, seconds)


def spread(wire: Wire, settings: CassandraSettings) -> None:
    """Have nodes that lack tables make them, if others do not tell them soon.

    Raises:
        Exception: Whatever the driver raises, or `ensure`; some nodes may have them by then.
    """
    model = _model(wire, settings)
    if model is None:
        schema.make(wire, settings, _somebody(wire), seconds=0)
    elif settings.create and (lacking := _who_hear_nothing(wire, settings)):
        statements = schema.described(wire, settings, model)
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
            if not schema.missing(wire, settings, node):
                return node
        if len(reached) >= len(list(wire.nodes())) or time.monotonic() > until:
            return None
        time.sleep(_PAUSE)


def _who_hear_nothing(wire: Wire, settings: CassandraSettings) -> list[Node]:
    until = time.monotonic() + _HEARD
    while True:
        lacking = [node for node in wire.reached() if schema.missing(wire, settings, node)]
        if not lacking or time.monotonic() > until:
            return lacking
        time.sleep(_PAUSE)
