"""Reading and closing what has N parts."""

from collections.abc import Callable
from contextlib import closing

from benchmarks.clients.embedded import connect
from benchmarks.clients.opening import raw_side
from benchmarks.growth.writer import GROWN, fill, join
from benchmarks.report.figure import middle
from benchmarks.store_address import StoreAddress
from benchmarks.timing import seconds_of

_TIMES = 5
_NAMES = "SELECT name FROM kv WHERE namespace = ? ORDER BY name"


def names(address: StoreAddress, size: int) -> dict[str, float]:
    """Return the time of a list in ms, and over that of the raw client."""
    with address.open(f"names-{size}") as locator:
        storage = locator.storage()
        fill(storage, size)
        ours = _milliseconds(lambda: list(storage.list(GROWN)))
        theirs = _embedded(address) if address.is_embedded else _on_server(address, size)
    return {"list": ours, "list: over raw": ours / theirs}


def group(address: StoreAddress, size: int) -> dict[str, float]:
    with address.open(f"group-{size}") as locator:
        one = locator.group_membership(GROWN)
        join(one, size, address)
        read = _milliseconds(one.membership)
        closed = seconds_of(one.close)
    return {"membership()": read, "GroupMembership.close()": closed * 1e3}


def _embedded(address: StoreAddress) -> float:
    with closing(connect(address)) as connection:
        return _milliseconds(lambda: connection.execute(_NAMES, (GROWN.encode(),)).fetchall())


def _on_server(address: StoreAddress, size: int) -> float:
    with closing(raw_side(address)) as raw:
        for number in range(size):
            raw.put(f"{number:06}")
        assert len(raw.names()) >= size
        return _milliseconds(raw.names)


def _milliseconds(call: Callable[[], object]) -> float:
    return middle(seconds_of(call) for _ in range(_TIMES)) * 1e3
