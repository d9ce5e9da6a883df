"""Explains to people why a history is not linearizable: the first row no order explains."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from typing_extensions import override

from kip30.driver.records import Version
from kip30.history.models import Model, State, Step
from kip30.history.operations import Operation, Outcome, Value
from kip30.history.search import Search
from kip30.history.verdict import Verdict

_PATIENCE = 2_000
"""Configurations without progress after which a row counts as one that no order passes."""

_BUDGET = 100_000
_BUDGET_PER_ROW = 10
"""The limit on work for narrowing down: rows laid out, and configurations visited."""

_STATES_SHOWN = 8
_STATES_MET = 200


@dataclass(frozen=True, slots=True)
class Violation:
    """The shortest beginning of a history that has no order, reduced to where it breaks.

    Attributes:
        blamed: The operation that cannot have had its answer in any order.
        window: The operations since the last change that had ended when *blamed* was called.
        states: What the object can have been after all that had returned before *blamed*
            did, in words; some of it if there is more than fits.
        is_first: Whether it is certain that all before *blamed* has an order. Otherwise the
            history breaks at *blamed* or before it: finding the place would have taken too long.
    """

    blamed: Operation
    window: tuple[Operation, ...]
    states: tuple[str, ...]
    is_first: bool = True

    @override
    def __str__(self) -> str:
        start = self.window[0].called_ns
        return "\n".join(
            [
                f"key {self.blamed.key!r}: no order of its operations explains {self._what}",
                *(_line(row, start, marked=row is self.blamed) for row in self.window),
                "when all that had returned before it had happened, the state could only be",
                *(f"    {state}" for state in self.states or ("(not found in time)",)),
            ]
        )

    @property
    def _what(self) -> str:
        return "the marked one" if self.is_first else "the marked one and all before it"


def explained(rows: Sequence[Operation], model: Model) -> Violation:
    """Return where *rows*, which are a violation, break, in a time that grows with their number."""
    telling = [row for row, _ in model.with_steps(rows)]
    limit = _BUDGET + _BUDGET_PER_ROW * len(telling)
    search = Search(telling, model, limit, hindsight=False)
    passed = search.furthest(_PATIENCE)
    is_first = True
    if search.exhausted:
        passed, is_first = _Narrowing(telling, model, search, limit).first_break(passed)
    blamed = search.returned_after(passed)
    states = _states(search.states_after(passed, 2 * passed + _PATIENCE), model)
    return Violation(blamed, _window(model.with_steps(rows), blamed), states, is_first)


def beginning(rows: Sequence[Operation], until_ns: float) -> list[Operation]:
    """Return *rows* as they would have been recorded had the record ended at *until_ns*."""
    return [_cut(row, until_ns) for row in rows if row.called_ns <= until_ns]


def _cut(row: Operation, until_ns: float) -> Operation:
    if row.ends_ns <= until_ns:
        return row
    return replace(row, returned_ns=None, outcome=Outcome.UNKNOWN, result=None)


class _Narrowing:
    """Finds the first break between a place that has an order and the end, by halving the way."""

    def __init__(self, rows: Sequence[Operation], model: Model, search: Search, limit: int) -> None:
        """Limit the work to *limit*."""
        self._rows = rows
        self._model = model
        self._search = search
        self._left = limit

    def first_break(self, passed: int) -> tuple[int, bool]:
        """Return how many returns come before the break, and whether it is certainly the first.

        *passed* are known to have an order.
        """
        sound, broken, step = passed - 1, self._search.returns - 1, 1
        while broken - sound > 1 and self._left > 0:
            place = min(sound + step, (sound + broken) // 2)
            if self._is_broken(place):
                broken, step = place, 1
            else:
                sound, step = place, 2 * step
        return broken, broken - sound == 1

    def _is_broken(self, place: int) -> bool:
        until = self._search.returned_after(place).ends_ns
        rows = beginning(self._rows, until)
        self._left -= len(rows)
        search = Search(rows, self._model, max(0, self._left))
        verdict = search.run()
        self._left -= search.explored
        return verdict is Verdict.VIOLATION


def _window(steps: Sequence[tuple[Operation, Step]], blamed: Operation) -> tuple[Operation, ...]:
    over = [
        row
        for row, step in steps
        if row.acknowledged and not step.observes and row.ends_ns < blamed.called_ns
    ]
    since = max(over, key=lambda row: row.ends_ns).called_ns if over else 0
    window = (row for row, _ in steps if row.ends_ns >= since and row.called_ns <= blamed.ends_ns)
    return tuple(sorted(window, key=lambda row: row.called_ns))


def _states(states: Iterable[State], model: Model) -> tuple[str, ...]:
    words = dict.fromkeys(map(model.describe, islice(states, _STATES_MET)))
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
