"""Reading and closing what has N parts."""

import time
from collections.abc import Callable
from contextlib import closing

from benchmarks.clients.embedded import connect
from benchmarks.clients.opening import raw_side
from benchmarks.growth.writer import PLACE, fill, join
from benchmarks.report.figure import middle
from benchmarks.store_address import StoreAddress

_TIMES = 5
_NAMES = "SELECT name FROM kv WHERE namespace = ? ORDER BY name"


def names(address: StoreAddress, size: int) -> dict[str, float]:
    """Return the time of a list in ms, and over that of the raw client."""
    with address.open(f"names-{size}") as locator:
        storage = locator.storage()
        fill(storage, size)
        ours = _milliseconds(lambda: list(storage.list(PLACE)))
        theirs = _embedded(address) if address.is_embedded else _remote(address, size)
    return {"list": ours, "list: over raw": ours / theirs}


def group(address: StoreAddress, size: int) -> dict[str, float]:
    with address.open(f"group-{size}") as locator:
        one = locator.group_membership(PLACE)
        join(one, size, address)
        read = _milliseconds(one.membership)
        began = time.perf_counter()
        one.close()
        closed = time.perf_counter() - began
    return {"membership()": read, "GroupMembership.close()": closed * 1e3}


def _embedded(address: StoreAddress) -> float:
    with closing(connect(address)) as connection:
        return _milliseconds(lambda: connection.execute(_NAMES, (PLACE.encode(),)).fetchall())


def _remote(address: StoreAddress, size: int) -> float:
    with closing(raw_side(address)) as raw:
        for number in range(size):
            raw.put(f"{number:06}")
        assert len(raw.names()) >= size
        return _milliseconds(raw.names)


def _milliseconds(call: Callable[[], object]) -> float:
    return middle(_once(call) for _ in range(_TIMES)) * 1e3


def _once(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began
