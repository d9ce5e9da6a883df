"""What time it is at each node: a row ends by the clock of the node that is asked for it."""

import time
from collections.abc import Sequence
from concurrent.futures import Future, wait
from typing import NamedTuple

from kip30.driver.kit.futures import fail
from kip30.errors import StoreError, UnavailableError
from kip30_backends.cassandra.library import Node, Row, Statement, Wire

_MUCH = 1.0


class Reading(NamedTuple):
    """How many seconds the clock of *node* is ahead of the one here, give or take *doubt*."""

    node: str
    ahead: float
    doubt: float


def read(wire: Wire, statement: Statement, seconds: float) -> list[Reading]:
    """Ask all nodes at once for the time, and return what came of it in so many *seconds*."""
    asked = [_asked(wire, statement, node) for node in wire.nodes()]
    wait(asked, seconds)
    return [one.result() for one in asked if one.done() and one.exception() is None]


def judge(readings: Sequence[Reading], margin_seconds: float) -> str:
    """Say how well clocks agree.

    Raises:
        StoreError: Those of two nodes are further apart than the margin of a lease.
    """
    first, last = min(readings, key=_ahead), max(readings, key=_ahead)
    apart = last.ahead - first.ahead
    if apart - first.doubt - last.doubt > margin_seconds:
        raise StoreError(
            f"the clock of Cassandra at {last.node} is {apart:.1f} s ahead of the one at"
            f" {first.node}: claims may end there while their holders still rely on them;"
            " have NTP set the clocks of all nodes"
        )
    return f"{_agreement(readings, apart)}this one {_here((first.ahead + last.ahead) / 2)}"


def _ahead(reading: Reading) -> float:
    return reading.ahead


def _agreement(readings: Sequence[Reading], apart: float) -> str:
    return f"nodes {1000 * apart:.0f} ms apart, " if len(readings) > 1 else ""


def _here(nodes_ahead: float) -> str:
    away = abs(nodes_ahead)
    side = "behind" if nodes_ahead > 0 else "ahead"
    if away < _MUCH:
        return f"{1000 * away:.0f} ms {side}"
    return f"{away:.1f} s {side}, which makes writes slower: have NTP set it"


def _asked(wire: Wire, statement: Statement, node: Node) -> Future[Reading]:
    reading: Future[Reading] = Future()
    sent_at = time.time()

    def answered(rows: Sequence[Row]) -> None:
        doubt = (time.time() - sent_at) / 2
        ahead = rows[0]["milliseconds"] / 1000 - sent_at - doubt
        reading.set_result(Reading(str(node.endpoint), ahead, doubt))

    wire.send(statement, node, answered, lambda one: fail(reading, UnavailableError(one.said)))
    return reading
