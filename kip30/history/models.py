"""Models that histories are judged by: the changes that each operation may make to its object."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from enum import Enum
from typing import Final, NamedTuple

from typing_extensions import override

from kip30.history.operations import Operation

State = Hashable


class Marker(Enum):
    """Values that no recorded value can be mistaken for."""

    ABSENT = "absent"
    NOTHING = "nothing"
    UNSEEN = "a value that nobody read"
    IMPOSSIBLE = "impossible"

    @override
    def __repr__(self) -> str:
        return self.value


ABSENT: Final = Marker.ABSENT
"""The value of an object that is not there."""

NOTHING: Final = Marker.NOTHING
"""No value at all, where one might have been written or compared."""

UNSEEN: Final = Marker.UNSEEN
"""Represents every written value that no operation ever compares with anything."""

IMPOSSIBLE: Final = Marker.IMPOSSIBLE
"""The state after an operation that cannot have happened, or not with this answer."""


class Step(NamedTuple):
    """Effect of one operation.

    Attributes:
        apply: From the state before to the state after, or to `IMPOSSIBLE`.
        observes: It only reads, so it may be placed wherever it fits without changing the state.
        needs: What `Model.offered` must answer for it to fit, unless that answers None; None if
            it may fit any state.
    """

    apply: Callable[[State], State]
    observes: bool = False
    needs: Hashable = None


class Model(ABC):
    """An object's initial state and the steps of the operations on it."""

    def __init__(self, initial: State) -> None:
        """Judge histories that begin in state *initial*."""
        self.initial = initial

    @abstractmethod
    def steps(self, rows: Sequence[Operation]) -> list[Step | None]:
        """Return the step of each of *rows*; None for a row without effect or evidence.

        The step of an operation without an answer is what it does if it happens at all.

        Raises:
            ValueError: The model does not know such an operation.
        """

    def steps_so_far(self, rows: Sequence[Operation]) -> list[Step | None]:
        """Return `steps` without conclusions from what is recorded later than a row.

        They show where a history first breaks, which hindsight would move to an earlier place.
        """
        return self.steps(rows)

    def offered(self, state: State) -> Hashable:
        """Return the only `Step.needs` that can fit *state*, or None if any can.

        It only saves work: of thousands of steps that may come next few need be tried.
        """
        del state
        return None

    def with_steps(
        self, rows: Sequence[Operation], *, hindsight: bool = True
    ) -> list[tuple[Operation, Step]]:
        """Return those of *rows* that have a step, each with it.

        Without *hindsight* it is that of `steps_so_far`.
        """
        steps = self.steps(rows) if hindsight else self.steps_so_far(rows)
        return [(row, step) for row, step in zip(rows, steps, strict=True) if step]

    def normalized(self, rows: Sequence[Operation]) -> Sequence[Operation]:
        """Return *rows*, in their order, with all that no client can have noticed made equal."""
        return rows

    def constrained(self, rows: Sequence[Operation]) -> Sequence[Operation]:
        """Return *rows*, in their order, with conclusions from the other rows filled in.

        The verdict on them stays the same, and the search, which is exponential in the open
        operations, has less to try.
        """
        return rows

    def held_until(self, rows: Sequence[Operation]) -> Callable[[State], int]:
        """Return from which time on a state, once reached, may be left, in nanoseconds."""
        del rows
        return lambda _: 0

    def describe(self, state: State) -> str:
        """Return *state* in words."""
        return repr(state)
