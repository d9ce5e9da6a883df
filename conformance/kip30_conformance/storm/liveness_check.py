"""I8 and I9: the end of every call in time, and the recovery of clients after every fault."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping

from kip30_conformance.storm.finding import Finding
from kip30_conformance.storm.names import FENCED_KEY, client_of, is_guarded
from kip30_conformance.storm.process_journal import Row
from kip30_conformance.storm.storm_history import StormRecord, Window

_SHOWN = 20


def calls_end(record: StormRecord) -> Finding:
    """Judge I8 by calls that took too long, never ended, or raised an error that is not kip30's."""
    late, excused = _late(record)
    stuck = [
        f"{process}: {row['kind']} still ran after {row['seconds']:.2f} s\n{row['text']}"
        for process, row in record.rows("stuck")
    ]
    broken = [
        f"{process}: {row['kind']} raised an error that is not one of kip30's\n{row['text']}"
        for process, row in record.rows("broken")
    ]
    calls = sum(sum(counts.values()) for counts in outcomes(record).values())
    return Finding(
        "I8",
        f"every call ends within {record.timing.limit:g} s, and with an error of kip30 if with any",
        [*stuck, *broken, *late, *record.deaths][:_SHOWN],
        f"{calls} calls; {excused} were late because the process stood still or the machine was "
        "busy",
        "" if calls else "nothing was called",
    )


def outcomes(record: StormRecord) -> Mapping[str, Counter[str]]:
    """Return the number of calls of each kind by outcome."""
    total: dict[str, Counter[str]] = {}
    for rows in record.journals.values():
        counted: list[Row] = [row["ended"] for row in rows if row["what"] == "calls"]
        for kind, counts in counted[-1].items() if counted else ():
            total.setdefault(kind, Counter()).update(counts)
    return total


def longest(record: StormRecord) -> Mapping[str, float]:
    """Return how many seconds the longest call of each kind took, without stalls."""
    worst: dict[str, float] = {}
    for _, row in record.rows("calls"):
        for kind, seconds in row["worst"].items():
            worst[kind] = max(seconds, worst.get(kind, 0.0))
    return worst


def progress(record: StormRecord) -> Finding:
    """Judge I9 by the acknowledged calls in the well part of every calm that was not cut short."""
    calms = record.whole_calms()
    acknowledged = _Acknowledged(record)
    still = [
        f"{who}: nothing acknowledged in {window.until - window.well_from:.1f} s, "
        f"{window.well_from - window.end:.1f} s after {[fault.kind for fault in window.faults]}"
        for window in calms
        for who in sorted({*record.names, FENCED_KEY} - acknowledged.during(window))
    ]
    return Finding(
        "I9",
        "in every calm every client goes on, and one candidate leads",
        still[:_SHOWN],
        f"{len(calms)} calms; " + _recovery(record, acknowledged),
        "" if calms else "there was no calm",
    )


def _late(record: StormRecord) -> tuple[list[str], int]:
    late: list[str] = []
    excused = 0
    for process, row in record.rows("slow"):
        over = row["seconds"] - row["stalled"] - row["limit"]
        if over > record.timing.busy:
            late.append(
                f"{process}: {row['kind']} took {row['seconds']:.2f} s, of which the process "
                f"stood still for {row['stalled']:.2f} s ({row['outcome']})"
            )
        else:
            excused += 1
    return late, excused


class _Acknowledged:
    """The times of acknowledged calls, by client; a fenced write counts for its key.

    A guarded write does not count: I14 judges the group that divides items.
    """

    def __init__(self, record: StormRecord) -> None:
        """Sort by time."""
        self._names = record.names
        self._all = sorted(
            (row.returned_ns / 1e9, FENCED_KEY if row.key == FENCED_KEY else client_of(row.process))
            for row in record.operations
            if row.acknowledged and row.returned_ns is not None and not is_guarded(row.key)
        )

    def during(self, window: Window) -> set[str]:
        """Return the clients with an acknowledged call in the well part of *window*."""
        return {who for _, who in self._between(window.well_from, window.until)}

    def slowest(self, window: Window) -> float:
        """Return after how many seconds the last client had its first acknowledgement."""
        first: dict[str, float] = {}
        for at, who in self._between(window.end, window.until):
            first.setdefault(who, at - window.end)
        return max(first.get(name, window.until - window.end) for name in self._names)

    def _between(self, begin: float, end: float) -> list[tuple[float, str]]:
        return self._all[bisect_left(self._all, (begin, "")) : bisect_left(self._all, (end, ""))]


def _recovery(record: StormRecord, acknowledged: _Acknowledged) -> str:
    seconds = sorted(map(acknowledged.slowest, record.windows[1:]))
    if not seconds:
        return "no fault"
    middle, most = seconds[len(seconds) // 2], seconds[-1]
    return f"after the faults all clients are back in {middle:.2f} s (median), {most:.2f} s (most)"
