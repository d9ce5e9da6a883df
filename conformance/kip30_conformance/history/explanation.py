"""Why a history is not linearizable, for people: the row no order explains, and its window."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice

from typing_extensions import override

from kip30.records import Version
from kip30_conformance.history.models import Model, Step
from kip30_conformance.history.operations import Operation, Outcome, Value
from kip30_conformance.history.search import Search
from kip30_conformance.history.verdict import Verdict

_BUDGET = 20_000
_STATES_BUDGET = 2_000
_STATES_SHOWN = 8


@dataclass(frozen=True, slots=True)
class Violation:
    """The shortest beginning of a history that has no order, reduced to where it breaks.

    Attributes:
        blamed: The operation that cannot have had its answer, whatever the order.
        window: What ran since the last change that was over when *blamed* was called.
        states: What the object can have been after all that had returned before *blamed*
            did, in words; some of it if there is more than fits.
    """

    blamed: Operation
    window: tuple[Operation, ...]
    states: tuple[str, ...]

    @override
    def __str__(self) -> str:
        start = self.window[0].called_ns
        return "\n".join(
            [
                f"key {self.blamed.key!r}: no order of its operations explains the marked one",
                *(_line(row, start, marked=row is self.blamed) for row in self.window),
                "when all that had returned before it had happened, the state could only be",
                *(f"    {state}" for state in self.states),
            ]
        )


def explained(rows: Sequence[Operation], model: Model) -> Violation:
    """Return where *rows*, which are a violation, break.

    A beginning that is not decided soon counts as sound: then the break that is shown may be
    later than the first.
    """
    told = model.told(rows)
    telling = [row for row, _ in told]
    returns = sorted({row.returned_ns for row in telling if row.returned_ns is not None})
    sound, broken = _narrowed(telling, returns, model)
    before = beginning(telling, returns[sound]) if sound >= 0 else []
    blamed = next(row for row in telling if row.returned_ns == returns[broken])
    return Violation(blamed, _window(told, blamed), _states(before, model))


def beginning(rows: Sequence[Operation], until_ns: int) -> list[Operation]:
    """Return *rows* as they would have been recorded had the record ended at *until_ns*."""
    return [_cut(row, until_ns) for row in rows if row.called_ns <= until_ns]


def _cut(row: Operation, until_ns: int) -> Operation:
    if row.ends_ns <= until_ns:
        return row
    return replace(row, returned_ns=None, outcome=Outcome.UNKNOWN, result=None)


def _narrowed(rows: Sequence[Operation], ends: Sequence[int], model: Model) -> tuple[int, int]:
    """Return two neighbours in *ends*: rows up to the first have an order, to the second none."""
    sound, broken = -1, len(ends) - 1
    while broken - sound > 1:
        middle = (sound + broken) // 2
        search = Search(beginning(rows, ends[middle]), model, _BUDGET)
        if search.run() is Verdict.VIOLATION:
            broken = middle
        else:
            sound = middle
    return sound, broken


def _window(told: Sequence[tuple[Operation, Step]], blamed: Operation) -> tuple[Operation, ...]:
    over = [
        row
        for row, step in told
        if row.acknowledged and not step.observes and row.ends_ns < blamed.called_ns
    ]
    since = max(over, key=lambda row: row.ends_ns).called_ns if over else 0
    window = (row for row, _ in told if row.ends_ns >= since and row.called_ns <= blamed.ends_ns)
    return tuple(sorted(window, key=lambda row: row.called_ns))


def _states(rows: Sequence[Operation], model: Model) -> tuple[str, ...]:
    states = Search(rows, model, _STATES_BUDGET).final_states()
    words = dict.fromkeys(model.describe(state) for state in states)
    return tuple(islice(words, _STATES_SHOWN))


def _line(row: Operation, start_ns: int, *, marked: bool) -> str:
    mark = ">" if marked else " "
    call = f"{row.op}({', '.join(map(_text, row.args))})"
    answer = f"{row.outcome.value} {_text(row.result)}" if row.answered else "no answer"
    version = "" if row.version is None else f" at version {row.version}"
    end = _ms(row.ends_ns - start_ns) if row.answered else "…"
    times = f"{_ms(row.called_ns - start_ns)} to {end} ms"
    return f"  {mark} {row.process}: {call} {answer}{version}, {times}"


def _text(value: Value) -> str:
    return str(value) if isinstance(value, Version) else repr(value)


def _ms(nanoseconds: float) -> str:
    return f"{nanoseconds / 1e6:.3f}"
