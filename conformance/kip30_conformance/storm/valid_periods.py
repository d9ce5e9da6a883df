"""Periods in which clients found a term or a share valid: which of them must not overlap."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kip30_conformance.storm.names import EXPIRY
from kip30_conformance.storm.process_journal import Row
from kip30_conformance.storm.storm_history import StormRecord

MOST_OBSERVED = 1.0
"""Most seconds of its observers' delay that a store may declare, as far as storms go."""


class ValidPeriod(NamedTuple):
    """A period in which a client certainly found valid what one holder at a time may have.

    Attributes:
        first: Its first moment, by the clock of the windows.
        last: Its last moment.
        process: The process of the client.
        holder: What had it; periods of one holder may overlap.
        name: How a violation names it.
    """

    first: float
    last: float
    process: str
    holder: str
    name: str


def overlaps(record: StormRecord, periods: Iterable[ValidPeriod]) -> Iterator[str]:
    """Yield each two of *periods* of different holders that overlap and are not excused.

    All pairs are compared: a period that is excused must not hide two others behind it.
    """
    lasting: list[ValidPeriod] = []
    for period in sorted(periods):
        lasting = [earlier for earlier in lasting if earlier.last > period.first]
        for earlier in lasting:
            if earlier.holder != period.holder and not _could_not_know(earlier, period, record):
                both = min(period.last, earlier.last) - period.first
                yield f"{_named(earlier)} and {_named(period)} both valid for {both:.3f} s"
        lasting.append(period)


def _named(period: ValidPeriod) -> str:
    return f"{period.name} ({period.first:.3f}-{period.last:.3f})"


def _could_not_know(period: ValidPeriod, later: ValidPeriod, record: StormRecord) -> bool:
    """Return whether a fault ended the session of *period* before *later*, which was seen soon.

    Only what was there when the deletion was called is excused.
    """
    return any(
        process == period.process
        and period.first < row["called"] <= later.first
        and period.last <= _ended_by(row, record) + _allowance(row, period, record)
        for process, row in record.rows("expired")
    )


def _ended_by(row: Row, record: StormRecord) -> float:
    """Return the moment by which the store has done a deletion, if ever.

    One without an answer may wait for the end of the faults that have kept the answer back.
    """
    at: float = row["at"]
    if row["error"]:
        return max([at, *(one.end for one in record.windows if one.begin <= at <= one.end)])
    return at


def _allowance(row: Row, period: ValidPeriod, record: StormRecord) -> float:
    """Return how many seconds after its deletion *period* may have lasted.

    A store's declaration counts up to a limit, because the accused declares it. A read takes longer
    while another fault is under way.
    """
    declared: float = row["observe_seconds"]
    disturbed = any(
        window.begin <= period.last
        and row["at"] <= window.end
        and any(struck.kind != EXPIRY for struck in window.faults)
        for window in record.windows
    )
    return min(declared, MOST_OBSERVED) + (
        record.timing.operation if disturbed else record.timing.look_up
    )
