"""I11 and I14: the times of all work on items, by the boot clock."""

from collections import defaultdict

from kip30_conformance.storm.finding import Finding
from kip30_conformance.storm.names import ITEMS
from kip30_conformance.storm.storm_history import StormRecord, Window, WorkInterval
from kip30_conformance.storm.valid_periods import ValidPeriod, overlaps

_SHOWN = 20


def one_worker(record: StormRecord) -> Finding:
    """Judge I11 by all work, each moment of which was certainly one of a valid share.

    No clock shows a member that its session was ended ahead of time. It learns of that as observers
    do, and may believe in its share as long; no guarded write of it passes (I12).
    """
    by_item: defaultdict[int, list[WorkInterval]] = defaultdict(list)
    for work in record.work:
        by_item[work.item].append(work)
    found = [
        f"item {item}: {overlap}"
        for item, works in by_item.items()
        for overlap in overlaps(record, (_period(work, record) for work in works))
    ]
    members = [{work.member for work in works} for works in by_item.values()]
    moved = sum(len(workers) > 1 for workers in members)
    return Finding(
        "I11",
        "no item is worked on by two members at once",
        found[:_SHOWN],
        f"{len(record.work)} stretches of work by {len(set[str]().union(*members))} members;"
        f" {moved} items moved",
        "" if moved else "no item ever moved",
    )


def _period(work: WorkInterval, record: StormRecord) -> ValidPeriod:
    first, last = work.first - record.boot_ahead, work.last - record.boot_ahead
    process = work.member.partition("-")[0]  # the first part of its client id
    return ValidPeriod(first, last, process, work.member, repr(work.member))


def work_goes_on(record: StormRecord) -> Finding:
    """Judge I14 by the work in the well part of every calm that lasted as long as required.

    An item must be worked on at some moment of that part: by `Timing.calm` after the fault.
    """
    calms = record.whole_calms() if record.work else []
    still = [
        f"item {item} was not worked on for {window.until - window.well_from:.1f} s, "
        f"{window.well_from - window.end:.1f} s after {[fault.kind for fault in window.faults]}"
        for window in calms
        for item in sorted(set(range(ITEMS)) - _worked_on(record, window))
    ]
    ended = [f"{row['member']} ended: {row['error']}" for _, row in record.rows("member ended")]
    return Finding(
        "I14",
        f"{record.timing.calm:g} s after every fault all items have been worked on again",
        [*ended, *still][:_SHOWN],
        f"{len(calms)} calms; {_recovery(record, calms)}",
        "" if calms else "there was no work in a calm",
    )


def _worked_on(record: StormRecord, window: Window) -> set[int]:
    begin, end = (moment + record.boot_ahead for moment in (window.well_from, window.until))
    return {work.item for work in record.work if work.last >= begin and work.first <= end}


def _back_after(record: StormRecord, window: Window) -> float:
    """Return how long after the fault the last item was worked on, for the first time."""
    end, until = window.end + record.boot_ahead, window.until + record.boot_ahead
    first = dict.fromkeys(range(ITEMS), until)
    for work in record.work:
        if work.last >= end:
            first[work.item] = min(first[work.item], max(end, work.first))
    return max(first.values()) - end


def _recovery(record: StormRecord, calms: list[Window]) -> str:
    seconds = sorted(_back_after(record, window) for window in calms if window.faults)
    if not seconds:
        return "no fault"
    middle, most = seconds[len(seconds) // 2], seconds[-1]
    return f"after the faults all items are back in {middle:.2f} s (median), {most:.2f} s (most)"
