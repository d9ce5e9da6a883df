"""Objects that hold one value at a time, and conclusions from their values."""

from abc import abstractmethod
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from typing_extensions import override

from kip30.history.models import NOTHING, UNSEEN, Model, State
from kip30.history.operations import Operation, Outcome, Value


class Register(Model):
    """A model of an object that holds one value.

    The more values are written only once, the more can be inferred; a history in which all
    are is judged in a time that grows with its length and not with the number of open operations.
    """

    @abstractmethod
    def written(self, row: Operation) -> Value:
        """Return the value *row* leaves if it happens, or `NOTHING`."""

    @abstractmethod
    def compared(self, row: Operation) -> Value:
        """Return the value *row* looks for, or `NOTHING`.

        If *row* is acknowledged, the object certainly held that value when it happened.
        """

    def held(self, state: State) -> Value:
        """Return the value the object holds in *state*."""
        return state

    @override
    def constrained(self, rows: Sequence[Operation]) -> Sequence[Operation]:
        constrained = list(self.normalized(rows))
        for life in self._lives(rows):
            _tighten(constrained, life)
        return constrained

    @override
    def normalized(self, rows: Sequence[Operation]) -> Sequence[Operation]:
        met = {self.compared(row) for row in rows}
        return [self._normalized(row, met) for row in rows]

    @override
    def held_until(self, rows: Sequence[Operation]) -> Callable[[State], int]:
        needed = {
            life.value: max(rows[index].called_ns for index in life.witnesses)
            for life in self._lives(rows)
        }
        return lambda state: needed.get(self.held(state), 0)

    def _normalized(self, row: Operation, met: Container[Value]) -> Operation:
        """Write `UNSEEN` for values that are never read, so that such writes are alike."""
        value = self.written(row)
        if row.answered or value is NOTHING or value in met:
            return row
        return replace(row, args=(*row.args[:-1], UNSEEN))

    def _lives(self, rows: Sequence[Operation]) -> Iterable["_Life"]:
        """Yield the values that the object certainly held, once and never again."""
        writers = _by_value(NOTHING if row.refused else self.written(row) for row in rows)
        met = _by_value(self.compared(row) if row.acknowledged else NOTHING for row in rows)
        for value in met.keys() - {NOTHING}:
            wrote = writers.get(value, [])
            if len(wrote) + (value == self.held(self.initial)) == 1:
                yield _Life(value, wrote, met[value])


class _Life(NamedTuple):
    """A value with its only writer, if it was not there at first, and all its readers."""

    value: Value
    writers: Sequence[int]
    witnesses: Sequence[int]


def _by_value(values: Iterable[Value]) -> dict[Value, list[int]]:
    places: dict[Value, list[int]] = defaultdict(list)
    for index, value in enumerate(values):
        places[value].append(index)
    return places


def _tighten(rows: list[Operation], life: _Life) -> None:
    """Narrow the times of writer and witnesses: the writer happened, and before all of them."""
    for writer in life.writers:
        for index in life.witnesses:
            write, witness = rows[writer], rows[index]
            if index != writer and write.called_ns <= witness.ends_ns:
                later = max(witness.called_ns, write.called_ns)
                rows[index] = replace(witness, called_ns=later)
                rows[writer] = _witnessed(write, witness)


def _witnessed(write: Operation, witness: Operation) -> Operation:
    first = min(write, witness, key=lambda row: row.ends_ns)
    version = write.version or witness.version
    return replace(write, outcome=Outcome.OK, returned_ns=first.returned_ns, version=version)
