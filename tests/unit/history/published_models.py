"""Models that only the published histories need."""

from collections.abc import Callable, Sequence

from typing_extensions import override

from kip30.history.cas_register import found
from kip30.history.models import IMPOSSIBLE, Model, State, Step
from kip30.history.operations import Operation

Apply = Callable[[State], State]


class KeyValue(Model):
    """Porcupine's store: ``get``, ``put`` and ``append`` of strings, empty at first."""

    def __init__(self) -> None:
        super().__init__("")

    @override
    def steps(self, rows: Sequence[Operation]) -> list[Step | None]:
        return [_key_value(row) for row in rows]


def _key_value(row: Operation) -> Step:
    if row.op == "get":
        return found(row.result)
    (text,) = row.args
    return Step(lambda state: text if row.op == "put" else f"{state}{text}")


class Counter(Model):
    """A number under ``add``, which may answer the sum it left, and ``read``; zero at first."""

    def __init__(self) -> None:
        super().__init__(0)

    @override
    def steps(self, rows: Sequence[Operation]) -> list[Step | None]:
        return [_counter(row) for row in rows]


def _counter(row: Operation) -> Step | None:
    if row.refused or (row.op == "read" and not row.acknowledged):
        return None
    return found(row.result or 0) if row.op == "read" else Step(_adding(row))


def _adding(row: Operation) -> Apply:
    def add(state: State) -> State:
        assert isinstance(state, int)
        after = state + row.args[0]
        return after if row.result in (None, after) else IMPOSSIBLE

    return add


class MultiRegister(Model):
    """Registers by name under transactions of reads and writes; a state is its sorted items."""

    def __init__(self, **initial: int) -> None:
        super().__init__(tuple(sorted(initial.items())))

    @override
    def steps(self, rows: Sequence[Operation]) -> list[Step | None]:
        return [None if row.refused else Step(_transaction(row)) for row in rows]


def _transaction(row: Operation) -> Apply:
    def run(state: State) -> State:
        assert isinstance(state, tuple)
        now = dict(state)
        for action, name, value in row.result or row.args[0]:
            if action == "write":
                now[name] = value
            elif value is not None and now[name] != value:
                return IMPOSSIBLE
        return tuple(sorted(now.items()))

    return run
