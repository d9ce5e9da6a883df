"""The check that a history is linearizable: some order of its operations explains every answer.

An operation takes effect in one moment between its call and its return; one
without an answer at any later time, or never. Keys are judged one by one, which
is enough: a history is linearizable if and only if that of each object is.

It does *not* judge several keys read or written as one, nor progress. An empty
history is linearizable; `kip30.history.vacuity` checks whether there was
anything to judge.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from typing_extensions import override

from kip30.history.explanation import Violation, explained
from kip30.history.models import Model
from kip30.history.operations import Operation
from kip30.history.search import Search
from kip30.history.verdict import Verdict, merged

_BUDGET = 200_000
_BUDGET_PER_ROW = 50


def budget_for(rows: int) -> int:
    """Return how many configurations to visit for one key with *rows* before giving up.

    An order of them takes at least one configuration for each row that changes something.
    """
    return _BUDGET + _BUDGET_PER_ROW * rows


@dataclass(frozen=True, slots=True)
class KeyReport:
    """The verdict on one key, the number of configurations it took, and the violation if any."""

    key: str
    verdict: Verdict
    operations: int
    explored: int
    violation: Violation | None = None


@dataclass(frozen=True, slots=True)
class HistoryReport:
    """The verdicts on the keys of a history, smallest first; after a violation it stops."""

    keys: tuple[KeyReport, ...]
    left_out: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """The verdict on the whole history."""
        return merged(key.verdict for key in self.keys)

    @override
    def __str__(self) -> str:
        head = f"{self.verdict.value}: {len(self.keys)} keys judged, {len(self.left_out)} left out"
        bad = (key for key in self.keys if key.verdict is not Verdict.OK)
        return "\n".join([head, *(_reason(key) for key in bad)])


def check(rows: Iterable[Operation], model: Model, *, budget: int | None = None) -> HistoryReport:
    """Judge every key of *rows* by *model*, up to the first violation.

    Args:
        rows: Operations in any order.
        model: The type and initial state of each key.
        budget: Configurations to visit for one key, `budget_for` its rows if none is given; if
            they do not suffice its verdict is unknown.

    Raises:
        ValueError: *model* does not know an operation.
    """
    keys = sorted(_by_key(rows).items(), key=lambda item: len(item[1]))
    reports: list[KeyReport] = []
    for key, operations in keys:
        reports.append(check_key(key, operations, model, budget=budget))
        if reports[-1].verdict is Verdict.VIOLATION:
            break
    return HistoryReport(tuple(reports), tuple(key for key, _ in keys[len(reports) :]))


def check_key(
    key: str, rows: Sequence[Operation], model: Model, *, budget: int | None = None
) -> KeyReport:
    """Judge *rows*, all operations on *key*, by *model*. As for `check`."""
    search = Search(rows, model, budget_for(len(rows)) if budget is None else budget)
    verdict = search.run()
    violation = explained(rows, model) if verdict is Verdict.VIOLATION else None
    return KeyReport(key, verdict, len(rows), search.explored, violation)


def _by_key(rows: Iterable[Operation]) -> dict[str, list[Operation]]:
    keys: dict[str, list[Operation]] = defaultdict(list)
    for row in rows:
        keys[row.key].append(row)
    return keys


def _reason(report: KeyReport) -> str:
    if report.violation is not None:
        return str(report.violation)
    return f"key {report.key!r}: undecided after {report.explored} configurations"
