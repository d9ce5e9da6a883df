"""The subjects that are measured of each store."""

from collections.abc import Callable, Generator, Mapping
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

_OF_ALL = {
    "guards": "benchmarks.subjects.guards",
    REBALANCE: "benchmarks.coordinator.rebalance",
    "event": "benchmarks.subjects.events",
    "handover": "benchmarks.subjects.handover",
    "shares": "benchmarks.subjects.shares",
    "contention": "benchmarks.subjects.contention",
    "locks": "benchmarks.subjects.locks",
    "loop": "benchmarks.subjects.event_loop",
    SCAN: "benchmarks.subjects.scan",
    GROWTH: "benchmarks.growth.measuring",
}
_OF_EMBEDDED = {
    "storage": "benchmarks.subjects.storage",
    "group": "benchmarks.subjects.group",
    "failover": "benchmarks.subjects.failover",
    "idle": "benchmarks.subjects.idle_listeners",
    "start": "benchmarks.subjects.startup",
    "runner": "benchmarks.subjects.runner",
}
# Results of servers have the failover under another name, because its unit is another one.
_OF_SERVERS = {"speed": "benchmarks.subjects.speed", "crash": "benchmarks.subjects.failover"}
_TOOZ = {BESIDE: "benchmarks.subjects.beside_tooz"}
_OF = {
    EMBEDDED: _OF_EMBEDDED | _OF_ALL,
    "zookeeper": _OF_SERVERS | _OF_ALL | _TOOZ,
    "etcd": _OF_SERVERS | _OF_ALL | _TOOZ,
    "consul": _OF_SERVERS | _OF_ALL,
    "cassandra": _OF_SERVERS | _OF_ALL | {"looks": "benchmarks.subjects.reads_at_rest"},
}

_SIZED = {SCAN, GROWTH, REBALANCE}
"""Subjects that ``--rows`` limits."""

Measures = Mapping[str, Callable[[], list[Figure]]]


def names(store: str) -> Mapping[str, str]:
    """Return the subjects of *store*, each with the module that measures it."""
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
