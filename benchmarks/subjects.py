"""The subjects that are measured of each store."""

from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from functools import partial
from importlib import import_module

from benchmarks.report.figure import Figure

BESIDE = "tooz"
"""Another library beside kip30."""
GROWTH = "growth"
REBALANCE = "rebalance"
SCAN = "scan"

EMBEDDED = "embedded"
STORES = (EMBEDDED, "zookeeper", "etcd", "consul", "cassandra")

_EMBEDDED = {
    "storage": "benchmarks.storage",
    "guards": "benchmarks.guards",
    REBALANCE: "benchmarks.coordinator.rebalance",
    "group": "benchmarks.group",
    "event": "benchmarks.events",
    "failover": "benchmarks.failover",
    "idle": "benchmarks.idle",
    "start": "benchmarks.start",
    "locks": "benchmarks.locks",
    "runner": "benchmarks.handover",
    "shares": "benchmarks.shares",
    SCAN: "benchmarks.pipeline.scan",
    GROWTH: "benchmarks.growth.measuring",
}
_ON_SERVERS = {
    "speed": "benchmarks.remote.speed",
    "guards": "benchmarks.guards",
    REBALANCE: "benchmarks.coordinator.rebalance",
    "event": "benchmarks.remote.events",
    "handover": "benchmarks.remote.handover",
    "crash": "benchmarks.remote.crash",
    "shares": "benchmarks.remote.shares",
    "contention": "benchmarks.remote.contention",
    "locks": "benchmarks.remote.locks",
    SCAN: "benchmarks.pipeline.scan",
    GROWTH: "benchmarks.growth.measuring",
}
_TOOZ = {BESIDE: "benchmarks.remote.side_by_side"}
_LOOKS = {"looks": "benchmarks.remote.looks"}
_OF = {
    EMBEDDED: _EMBEDDED,
    "zookeeper": _ON_SERVERS | _TOOZ,
    "etcd": _ON_SERVERS | _TOOZ,
    "consul": _ON_SERVERS,
    "cassandra": _ON_SERVERS | _LOOKS,
}

_SIZED = {SCAN, GROWTH, REBALANCE}
"""Subjects that ``--rows`` limits."""

Measures = Mapping[str, Callable[[], list[Figure]]]


def names(store: str) -> Iterable[str]:
    return _OF[store]


@contextmanager
def of(store: str, rows: int | None = None) -> Generator[Measures]:
    """Yield the measurements of *store*, on a server that runs for as long as the block.

    *rows* is how many rows are read in bulk, and the largest size of growth and of groups.
    """
    if store == EMBEDDED:
        yield {name: _measuring(name, module, rows) for name, module in _EMBEDDED.items()}
        return
    # Only what is measured needs its libraries.
    place, servers = (import_module(f"benchmarks.remote.{one}") for one in ("place", "servers"))
    with servers.running(store) as ensemble:
        where = place.Place.of(ensemble)
        where.started().close()  # which makes tables, where the store has such
        yield {name: _measuring(name, module, rows, where) for name, module in _OF[store].items()}


def _measuring(
    name: str, module: str, rows: int | None, *where: object
) -> Callable[[], list[Figure]]:
    return partial(_measure, module, *where, **({"rows": rows} if name in _SIZED else {}))


def _measure(module: str, *where: object, **sizes: int | None) -> list[Figure]:
    figures: list[Figure] = import_module(module).measure(*where, **sizes)
    return figures
