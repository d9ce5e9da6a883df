"""Reading a group of 100 members with their data, who all belong to another process."""

from contextlib import closing

from benchmarks.clients.embedded import LibrarySide, RawSide
from benchmarks.clients.interfaces import Operation
from benchmarks.report.figure import Figure
from benchmarks.statements import Trace, differences
from benchmarks.store_address import StoreAddress
from benchmarks.subjects.speed import Batch


def measure(address: StoreAddress) -> list[Figure]:
    return [
        Figure(
            name="queries for members",
            value=_queries_for_members(address),
            unit="queries",
            at_most=1,
        ),
        *Batch(50, {"group": 0.5}).measured(address),
        *Batch(50, {"one_session_by_one_select": None}).measured(address),
        *Batch(15, {"own_sessions": None}).measured(address),
    ]


def _queries_for_members(address: StoreAddress) -> int:
    """Count the statements that read members' data while a group of 100 is read once."""
    trace = Trace()
    with closing(LibrarySide(address)) as library, closing(RawSide(address)) as raw:
        operation, _ = library.group(1)
        ours = _sent(trace, operation)
        theirs = _sent(trace, raw.read_group)
    difference = differences(ours, theirs)
    assert not difference, difference
    return sum("data FROM member" in statement for statement in ours)


def _sent(trace: Trace, operation: Operation) -> list[str]:
    trace.begin()
    operation()
    return trace.taken()
