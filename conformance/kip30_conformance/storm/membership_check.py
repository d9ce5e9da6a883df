"""I6: the members of the group, which must be right whenever there is no fault."""

from collections.abc import Iterator

from kip30_conformance.storm.finding import Finding
from kip30_conformance.storm.process_journal import Row
from kip30_conformance.storm.storm_history import StormRecord, Window

_SHOWN = 20


def true_membership(record: StormRecord) -> Finding:
    """Judge I6 by the reads of the group that began and ended in the well part of a calm."""
    everyone = sorted(record.names)
    reads = list(_calm_reads(record))
    wrong = [
        f"{process} saw {row['seen']} instead of {everyone}, {_place(window, row)}"
        for process, row, window in reads
        if row["seen"] != everyone
    ]
    left = any(row["removed"] for _, row in record.rows("members event"))
    read = {window for *_, window in reads}
    unread = sum(window not in read for window in record.whole_calms())
    unseen = {
        "the group was never read in a calm": not reads,
        f"the group was not read in {unread} calms": bool(reads and unread),
        "no member ever left the group": not left,
    }
    return Finding(
        "I6",
        "in every calm the members are all live clients and no others",
        wrong[:_SHOWN],
        f"{len(reads)} reads in {len(read)} calms",
        "; ".join(reason for reason, holds in unseen.items() if holds),
    )


def _calm_reads(record: StormRecord) -> Iterator[tuple[str, Row, Window]]:
    for process, row in record.rows("read members"):
        for window in record.windows:
            if window.well_from <= row["called"] and row["at"] <= window.until:
                yield process, row, window


def _place(window: Window, row: Row) -> str:
    faults = ", ".join(f"{fault.kind} ({fault.target})" for fault in window.faults)
    return f"{row['at'] - window.end:.1f} s after the end of: {faults or 'nothing'}"
