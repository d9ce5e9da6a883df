"""The register of most published histories: read, write, compare and set."""

from collections.abc import Sequence
from typing import Final

from typing_extensions import override

from kip30.history.models import IMPOSSIBLE, NOTHING, State, Step
from kip30.history.operations import Operation, Value
from kip30.history.register import Register

MISMATCH: Final = "mismatch"
"""The result of a failed ``cas`` that is known to have found another value."""


class CasRegister(Register):
    """A register with ``read``, ``write`` and ``cas``, the model of most published histories.

    A failed ``cas`` is evidence if its result is `MISMATCH`, and otherwise none. With
    *nil_reads_anything* a read that returned None proves nothing either.
    """

    def __init__(self, initial: Value = None, *, nil_reads_anything: bool = False) -> None:
        """Start with value *initial*."""
        super().__init__(initial)
        self._nil_reads_anything = nil_reads_anything

    @override
    def steps(self, rows: Sequence[Operation]) -> list[Step | None]:
        return [self._step(row) for row in rows]

    @override
    def written(self, row: Operation) -> Value:
        return NOTHING if row.op == "read" else row.args[-1]

    @override
    def compared(self, row: Operation) -> Value:
        if row.op == "cas":
            return row.args[0]
        silent = row.op == "write" or not row.acknowledged or self._says_nothing(row)
        return NOTHING if silent else row.result

    def _says_nothing(self, row: Operation) -> bool:
        return self._nil_reads_anything and row.result is None

    def _step(self, row: Operation) -> Step | None:
        match row.op:
            case "read":
                return None if self.compared(row) is NOTHING else found(row.result)
            case "write":
                return None if row.refused else becomes(row.args[0])
            case "cas":
                return self._cas(row)
            case _:
                raise ValueError(f"a cas register has no {row.op!r}")

    def _cas(self, row: Operation) -> Step | None:
        old, new = row.args
        if row.refused:
            return differs(old) if row.result == MISMATCH else None
        return swaps(old, new)


def found(value: Value) -> Step:
    """Return the step of an operation that found exactly *value*."""

    def find(state: State) -> State:
        return state if state == value else IMPOSSIBLE

    return Step(find, observes=True)


def differs(value: Value) -> Step:
    """Return the step of an operation that found anything other than *value*."""

    def differ(state: State) -> State:
        return IMPOSSIBLE if state == value else state

    return Step(differ, observes=True)


def swaps(old: Value, new: Value) -> Step:
    """Return the step of an operation that found *old* and left *new*."""

    def swap(state: State) -> State:
        return new if state == old else IMPOSSIBLE

    return Step(swap)


def becomes(value: State) -> Step:
    """Return the step of an operation that leaves *value* after any other."""

    def become(state: State) -> State:
        del state
        return value

    return Step(become)
