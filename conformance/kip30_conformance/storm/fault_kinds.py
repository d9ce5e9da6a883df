"""All kinds of faults: their names, their constructors and their durations."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial
from random import Random
from typing import Any

from kip30_conformance.servers import Link
from kip30_conformance.storm import node_faults
from kip30_conformance.storm.client_faults import ClientKilled, ClientStopped, Expired
from kip30_conformance.storm.faults import Fault, Scene
from kip30_conformance.storm.link_faults import Disturbed, Measure
from kip30_conformance.storm.names import EXPIRY
from kip30_conformance.storm.node_faults import Isolated, Killed, Stopped

Make = Callable[[Scene, Random], Fault]
_SOME = (0.4, 1.6)
_LONG = (1.3, 2.0)
_SHORT = (0.2, 0.5)


class FaultSide(Enum):
    """The side that a fault hits. Two faults at a time hit different sides."""

    STORE = "store"
    CLIENT = "client"


@dataclass(frozen=True, slots=True)
class FaultKind:
    """A kind of fault.

    Attributes:
        side: The side that it hits.
        make: Makes one.
        lasts: Between how many session timeouts it lasts.
        alone: Whether no other fault can be observed meanwhile.
    """

    side: FaultSide
    make: Make
    lasts: tuple[float, float] = _SOME
    alone: bool = False


def _nodes(fault: Callable[..., Fault], choose: node_faults.Choice, *lasts: float) -> FaultKind:
    span = (lasts[0], lasts[1]) if lasts else _SOME
    alone = choose is node_faults.everyone
    return FaultKind(FaultSide.STORE, partial(fault, choose=choose), span, alone)


def _link(verb: str, measure: Measure, unit: str, **how: Any) -> FaultKind:
    def strike(link: Link) -> None:
        getattr(link, verb)(**how)

    make = partial(Disturbed, strike=strike, measure=measure, unit=unit)
    return FaultKind(FaultSide.CLIENT, make)


KINDS: Mapping[str, FaultKind] = {
    "node killed": _nodes(Killed, node_faults.one),
    "leading node killed": _nodes(Killed, node_faults.leader),
    "majority killed": _nodes(Killed, node_faults.majority),
    "all killed": _nodes(Killed, node_faults.everyone, *_SHORT),
    "node stopped": _nodes(Stopped, node_faults.one),
    "leading node stopped": _nodes(Stopped, node_faults.leader),
    "all stopped, for less than a session": _nodes(Stopped, node_faults.everyone, *_SHORT),
    "all stopped, for longer than a session": _nodes(Stopped, node_faults.everyone, *_LONG),
    "node isolated": _nodes(Isolated, node_faults.one),
    "leading node isolated": _nodes(Isolated, node_faults.leader),
    "link cut": _link("cut", lambda seen: seen.dropped, "bytes lost"),
    "link half open toward the client": _link(
        "half_open", lambda seen: seen.held, "bytes held", toward="client"
    ),
    "link half open toward the store": _link(
        "half_open", lambda seen: seen.held, "bytes held", toward="server"
    ),
    "answers swallowed": _link(
        "swallow_answers", lambda seen: seen.dropped_to_client, "bytes lost"
    ),
    "link reset": _link("reset", lambda seen: seen.resets, "connections reset"),
    "link refused": _link("refuse", lambda seen: seen.resets, "connections reset"),
    "frames truncated": _link("truncate", lambda seen: seen.resets, "connections reset"),
    "link slow": _link(
        "delay", lambda seen: seen.to_client, "bytes late", seconds=0.25, jitter=0.25
    ),
    "link narrow": _link(
        "bandwidth", lambda seen: seen.to_client, "bytes passed", bytes_per_second=2048
    ),
    EXPIRY: FaultKind(FaultSide.CLIENT, Expired, _SHORT),
    "client killed": FaultKind(FaultSide.CLIENT, ClientKilled),
    "client stopped, for longer than its session": FaultKind(
        FaultSide.CLIENT, ClientStopped, _LONG
    ),
}
