"""The two sides of a comparison, by store."""

from collections.abc import Callable

from benchmarks.remote.operations import Library, Operations
from benchmarks.remote.place import Place


def opened(side: str, place: Place) -> Operations:
    return Library(place) if side == "library" else _raw(place.store)(place)


def _raw(store: str) -> Callable[[Place], Operations]:
    """Return the raw side; only the client library of one store is needed."""
    if store == "zookeeper":
        from benchmarks.remote.raw_zookeeper import RawZookeeper  # noqa: PLC0415  see above

        return RawZookeeper
    from benchmarks.remote.raw_etcd import RawEtcd  # noqa: PLC0415  see above

    return RawEtcd
