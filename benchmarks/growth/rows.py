"""The rows, the sizes of each on each store, and its bounds."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from benchmarks.growth import candidates, events, reading, rest, threads
from benchmarks.store_address import EMBEDDED, StoreAddress

SIZES = (10, 100, 1_000, 10_000)
_STOPS_AT = {"consul": 1_000, "cassandra": 1_000}
_LARGE_ON_CONSUL = ("names", "keys", "updates")
_CONSUL_SESSIONS = 60
"""A server takes 200 connections of one address, and a waiting candidate has two or three."""
_KNOWN = (EMBEDDED, "etcd", "zookeeper")


class Row(NamedTuple):
    """*measure* returns values by name, for a size."""

    measure: Callable[[StoreAddress, int], dict[str, float]]
    deadline_seconds: float
    sizes: Sequence[int] = SIZES


ROWS = {
    "names": Row(reading.names, 90),
    "members": Row(events.members, 120),
    "keys": Row(events.keys, 90),
    "updates": Row(events.updates, 90),
    "registrations": Row(events.registrations, 120),
    "group": Row(reading.group, 120, (10, 100, 1_000, 2_500, 10_000)),
    "threads": Row(threads.puts, 60, (1, 8, 64)),
    "sessions": Row(rest.sessions, 90, (1, 20)),
    "services": Row(rest.services, 90, (10, 100)),
    "candidates": Row(candidates.hand_over, 600, (2, 20, 200)),
}


def sizes(row: str, store: str, most: int) -> list[int]:
    """Return the sizes that *row* has on *store*, none above *most*."""
    if row == "candidates" and store == "consul":
        most = min(most, _CONSUL_SESSIONS)
    if row == "threads" and store != EMBEDDED:
        return [] if store == "cassandra" else [8]
    large = store == "consul" and row in _LARGE_ON_CONSUL
    last = most if large else min(most, _STOPS_AT.get(store, most))
    if row == "group" and store != "cassandra":
        last = max(last, min(most, 2_500))
    return [size for size in ROWS[row].sizes if size <= last]


class Bound(NamedTuple):
    """A bound for the value at *size*; over the value at *base*, if there is one."""

    stores: Sequence[str]
    size: int
    at_most: float | None = None
    at_least: float | None = None
    base: int | None = None

    def within(self, largest: int) -> "Bound":
        """Return this bound at *largest*, if that is smaller than its own size."""
        return self._replace(size=min(self.size, largest))


_SERVERS = ("etcd", "zookeeper", "consul")
_ALL = (EMBEDDED, *_SERVERS, "cassandra")
_TWICE = Bound(_KNOWN, 10_000, at_most=2, base=100)
_ONE_READ = Bound(("consul", "cassandra"), 1_000, at_most=1)
BOUNDS = {
    **{one: Bound(_ALL, 200, at_most=1.5, base=2) for one in candidates.NEXT.values()},
    **{one: Bound(("zookeeper",), 200, at_most=1.5) for one in candidates.OVER_KAZOO.values()},
    "list: over raw": Bound(_ALL, 10_000, at_most=3),
    "join or leave: CPU of a listener": _TWICE,
    "put or delete: CPU of a listener": _TWICE,
    "join or leave: CPU over that of reading all": _ONE_READ,
    "put or delete: CPU over that of reading all": _ONE_READ,
    "value update: CPU of a key-set listener": Bound(_ALL, 10_000, at_most=1.5, base=100),
    "membership()": Bound(_SERVERS, 2_500, at_most=500),
    "GroupMembership.close()": Bound(_SERVERS, 2_500, at_most=500),
    "threads that put: over raw": Bound((EMBEDDED,), 64, at_least=0.3),
    # Three keep-alives in a session timeout of 8 s, and a read after each that a quorum answers.
    "at rest, each session: keep-alives": Bound(("etcd",), 20, at_most=0.5),
    "at rest, each session: requests": Bound(("etcd",), 20, at_most=0.9),
}
