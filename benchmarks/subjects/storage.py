"""Storage operations of the embedded store against sqlite3 doing the same statements."""

from contextlib import closing

from benchmarks.clients.embedded import LibrarySide, RawSide
from benchmarks.clients.interfaces import Side
from benchmarks.report.figure import Figure
from benchmarks.statements import Trace, differences
from benchmarks.store_address import StoreAddress
from benchmarks.subjects.speed import Batch

_AT_LEAST = {"get": 0.25, "fetch": 0.2, "put": 0.5}
_LOOPS = {
    "get": 1000,
    "fetch": 1000,
    "put": 450,  # enough for one checkpoint of the log in each
    "put_without_checkpoints": 450,
    "update": 450,
    "compare_and_set": 450,
    "delete": 450,
    "put_many": 10,
    "fetch_many": 20,
}


def measure(address: StoreAddress) -> list[Figure]:
    _prove_same_statements(address)
    return [
        figure
        for operation, loops in _LOOPS.items()
        for figure in Batch(loops, {operation: _AT_LEAST.get(operation)}).measured(address)
    ]


def _prove_same_statements(address: StoreAddress) -> None:
    trace = Trace()
    with (
        address.fresh() as ours,
        address.fresh() as theirs,
        closing(LibrarySide(ours)) as library,
        closing(RawSide(theirs)) as raw,
    ):
        for name in _LOOPS:
            sent = [_sent(trace, side, name) for side in (library, raw)]
            difference = differences(*sent)
            assert not difference, f"{name}: {difference}"


def _sent(trace: Trace, side: Side, name: str) -> list[str]:
    operation, calls = side.prepared(name, 1)
    trace.begin()
    for call in calls:
        operation(*call)
    return trace.taken()
