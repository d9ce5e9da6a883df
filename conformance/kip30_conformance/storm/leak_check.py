"""I10: the growing resources of clients, and those that they left behind."""

from collections.abc import Iterator, Sequence
from statistics import median

from kip30_conformance.storm.finding import Finding
from kip30_conformance.storm.process_journal import Row
from kip30_conformance.storm.storm_history import StormRecord

_MIN_SAMPLES = 9
_MORE: dict[str, float] = {"threads": 8, "descriptors": 12, "bytes": 48 * 2**20}
"""The growth that is allowed from the first third of a process's life to the last."""

_WORKERS = 3
"""Number of threads, besides its first one, that each member of the group may keep busy: a
dispatcher of its own has up to four, of which one suffices until several tasks are due at once."""


def no_leak(record: StormRecord) -> Finding:
    """Judge I10 by the resources of each process during the storm, and after closing."""
    left = [
        f"{process}: {row['text']}" for process, row in record.rows("left behind") if row["text"]
    ]
    closed = sum(1 for _ in record.rows("left behind"))
    lives = {process: _samples(rows) for process, rows in record.journals.items()}
    grown = [
        text
        for process, rows in lives.items()
        for text in _growth(process, rows, _WORKERS * _members(record.journals[process]))
    ]
    judged = sum(len(rows) >= _MIN_SAMPLES for rows in lives.values())
    unclosed = len(record.names) - closed
    unseen = {
        f"{unclosed} clients did not close": bool(unclosed or not closed),
        "no process was watched for long enough": not judged,
    }
    return Finding(
        "I10",
        "nothing is left after closing, and nothing grows without bound",
        [*left, *grown],
        f"{closed} processes closed, {judged} watched while they ran; {peaks(record)}",
        "; ".join(reason for reason, holds in unseen.items() if holds),
    )


def peaks(record: StormRecord) -> str:
    """Return the most resources that any process held, in words."""
    samples = [row for _, row in record.rows("holds")]
    threads, descriptors, size = (max((row[what] for row in samples), default=0) for what in _MORE)
    return f"at most {threads} threads, {descriptors} descriptors, {size / 2**20:.0f} MiB"


def _samples(rows: Sequence[Row]) -> list[Row]:
    """Return the resources of a process since all its actions had started, or of its whole life."""
    begun = next((at for at, row in enumerate(rows) if row["what"] == "started"), 0)
    return [row for row in rows[begun:] if row["what"] == "holds"]


def _members(rows: Sequence[Row]) -> int:
    """Return how many members of the group that divides items the process has."""
    return len({row["member"] for row in rows if row["what"] == "share"})


def _growth(process: str, rows: Sequence[Row], workers: int) -> Iterator[str]:
    third = len(rows) // 3
    if len(rows) < _MIN_SAMPLES:
        return
    for what, allowed in _MORE.items():
        first = median(row[what] for row in rows[:third])
        last = median(row[what] for row in rows[-third:])
        if last - first > allowed + (workers if what == "threads" else 0):
            yield f"{process}: {what} grew from {first:g} to {last:g}"
