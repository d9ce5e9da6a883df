"""Assignors: algorithms by which the leader of a group divides items among its members.

Nothing here does I/O, reads a clock or keeps state between calls: equal arguments give equal
results, in any order of subscribers.
"""

from kip30.coordinator.assignors.base import Assignment, Assignor, Item, Subscriber
from kip30.coordinator.assignors.connect import (
    ConnectAssignment,
    ConnectState,
    EagerConnectAssignor,
    IncrementalConnectAssignor,
    WorkUnit,
)
from kip30.coordinator.assignors.cooperative import CooperativeStickyAssignor
from kip30.coordinator.assignors.ranges import RangeAssignor
from kip30.coordinator.assignors.round_robin import RoundRobinAssignor
from kip30.coordinator.assignors.sticky import StickyAssignor

__all__ = [
    "Assignment",
    "Assignor",
    "ConnectAssignment",
    "ConnectState",
    "CooperativeStickyAssignor",
    "EagerConnectAssignor",
    "IncrementalConnectAssignor",
    "Item",
    "RangeAssignor",
    "RoundRobinAssignor",
    "StickyAssignor",
    "Subscriber",
    "WorkUnit",
]
