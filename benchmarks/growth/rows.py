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
