"""Updates with guards against plain updates, by one client and in turn."""

from collections.abc import Callable

from benchmarks.clients.library import KEY, VALUE
from benchmarks.report.figure import Figure, middle
from benchmarks.store_address import StoreAddress
from benchmarks.timing import in_turn
from kip30 import Storage, Version

_ROUNDS = 15
_CALLS = 100
_WARMUPS = 20
_AT_LEAST = {"embedded": 0.85, "zookeeper": 0.95, "etcd": 0.95, "consul": 0.9, "cassandra": 0.9}
_GUARDED = {"update with a guard": 1, "update with four guards": 4}
_PLAIN = "update"

Call = Callable[[], object]


def measure(address: StoreAddress) -> list[Figure]:
    with address.open("guards") as locator:
        calls = _calls(locator.storage())
        in_turn(calls, _WARMUPS)
        rounds = [_medians(calls) for _ in range(_ROUNDS)]
    least = _AT_LEAST[address.store]
    return [
        figure
        for name, count in _GUARDED.items()
        for figure in _figures(name, rounds, at_least=least if count == 1 else None)
    ]


def _calls(storage: Storage[str]) -> dict[str, Call]:
    """Return what is timed, by name."""
    storage.set(KEY, VALUE)
    keys = [f"{KEY}-guard-{number}" for number in range(max(_GUARDED.values()))]
    versions = {key: storage.set(key, VALUE) for key in keys}

    def guarded(count: int) -> Call:
        guards: dict[str, Version] = {key: versions[key] for key in keys[:count]}
        return lambda: storage.update(KEY, VALUE, guards=guards)

    with_guards = {name: guarded(count) for name, count in _GUARDED.items()}
    return {_PLAIN: lambda: storage.update(KEY, VALUE), **with_guards}


def _medians(calls: dict[str, Call]) -> dict[str, float]:
    """Return the median seconds of each of *calls*."""
    return {name: middle(taken) for name, taken in in_turn(calls, _CALLS).items()}


def _figures(name: str, rounds: list[dict[str, float]], *, at_least: float | None) -> list[Figure]:
    ratios = [one[_PLAIN] / one[name] for one in rounds]
    times = [one[name] * 1e6 for one in rounds]
    return [
        Figure.median(name, ratios, "x plain", at_least=at_least),
        Figure.median(f"{name}, one call", times, "us"),
    ]
