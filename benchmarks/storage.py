"""Storage operations against sqlite3 doing the same statements."""

from contextlib import closing

from benchmarks.library import Library
from benchmarks.raw import Raw
from benchmarks.report.figure import Figure
from benchmarks.rounds import ratio
from benchmarks.statements import Trace, differences
from benchmarks.store_address import StoreAddress, scratch

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


def measure(_: StoreAddress) -> list[Figure]:
    prove_same_statements()
    return [
        figure
        for operation, loops in _LOOPS.items()
        for figure in ratio("storage", operation, loops, at_least=_AT_LEAST.get(operation))
    ]


def prove_same_statements() -> None:
    trace = Trace()
    with (
        scratch() as ours,
        scratch() as theirs,
        closing(Library(ours)) as library,
        closing(Raw(theirs)) as raw,
    ):
        for name in _LOOPS:
            sent = [_sent(trace, side, name) for side in (library, raw)]
            difference = differences(*sent)
            assert not difference, f"{name}: {difference}"


def _sent(trace: Trace, side: Library | Raw, name: str) -> list[str]:
    operation, calls = getattr(side, name)(1)
    trace.begin()
    for call in calls:
        operation(*call)
    return trace.taken()
