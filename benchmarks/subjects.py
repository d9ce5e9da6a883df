"""The subjects that are measured of each store."""

from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from functools import partial
from importlib import import_module

from benchmarks.report.figure import Figure
from benchmarks.store_address import EMBEDDED, StoreAddress, scratch
from kip30_conformance.servers import start

BESIDE = "tooz"
"""Another library beside kip30."""
GROWTH = "growth"
REBALANCE = "rebalance"
SCAN = "scan"

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
    "speed": "benchmarks.speed",
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
    with _running(store) as address:
        yield {
            name: partial(_measure, module, address, **({"rows": rows} if name in _SIZED else {}))
            for name, module in _OF[store].items()
        }


@contextmanager
def _running(store: str) -> Generator[StoreAddress]:
    if store == EMBEDDED:
        with scratch() as folder:
            yield StoreAddress(store, str(folder))
        return
    with start(store) as ensemble:
        address = StoreAddress.of(ensemble.settings())
        address.open().close()  # which makes tables, where the store has such
        yield address


def _measure(module: str, address: StoreAddress, **sizes: int | None) -> list[Figure]:
    # Only what is measured needs its libraries.
    measure: Callable[..., list[Figure]] = import_module(module).measure
    with address.fresh() as one:
        return measure(one, **sizes)
