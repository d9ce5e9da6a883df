"""What is measured of which store."""

from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from functools import partial
from importlib import import_module

from benchmarks.figure import Figure

EMBEDDED = "embedded"
STORES = (EMBEDDED, "zookeeper", "etcd")

_EMBEDDED = {
    "storage": "benchmarks.storage",
    "group": "benchmarks.group",
    "event": "benchmarks.events",
    "failover": "benchmarks.failover",
    "idle": "benchmarks.idle",
    "start": "benchmarks.start",
    "runner": "benchmarks.handover",
}
_ON_SERVERS = {
    "speed": "benchmarks.remote.speed",
    "event": "benchmarks.remote.events",
    "handover": "benchmarks.remote.handover",
    "crash": "benchmarks.remote.crash",
    "tooz": "benchmarks.remote.side_by_side",
}

Measures = Mapping[str, Callable[[], list[Figure]]]


def names(store: str) -> Iterable[str]:
    return _EMBEDDED if store == EMBEDDED else _ON_SERVERS


@contextmanager
def of(store: str) -> Generator[Measures]:
    """Yield how to measure *store*, on a server that runs for as long as that."""
    if store == EMBEDDED:
        yield {name: import_module(module).measure for name, module in _EMBEDDED.items()}
        return
    # Only what is measured needs its libraries.
    place, servers = (import_module(f"benchmarks.remote.{one}") for one in ("place", "servers"))
    with servers.running(store) as ensemble:
        where = place.Place.of(ensemble)
        yield {name: partial(_measure, module, where) for name, module in _ON_SERVERS.items()}


def _measure(module: str, where: object) -> list[Figure]:
    figures: list[Figure] = import_module(module).measure(where)
    return figures
