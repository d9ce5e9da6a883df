"""Cost of 1,000 listeners while nothing happens."""

from benchmarks.report.figure import Figure
from benchmarks.roles import role
from benchmarks.store_address import StoreAddress

LISTENERS = 1000
SECONDS = 10


def measure(address: StoreAddress) -> list[Figure]:
    return [*_figures(address, "1,000 keys", LISTENERS), *_figures(address, "one key", 1)]


def _figures(address: StoreAddress, name: str, keys: int) -> list[Figure]:
    with address.fresh() as one, role("idle_listeners", one, LISTENERS, keys, SECONDS) as child:
        threads, mebibytes, seconds = map(float, child.line().text.split())
    return [
        _figure(f"threads more, {name}", threads, "threads", 10),
        _figure(f"memory more, {name}", mebibytes, "MiB", 30),
        _figure(f"CPU in {SECONDS} s, {name}", seconds * 1e3, "ms", 100),
    ]


def _figure(name: str, value: float, unit: str, at_most: float) -> Figure:
    return Figure(name=name, value=value, unit=unit, at_most=at_most)
