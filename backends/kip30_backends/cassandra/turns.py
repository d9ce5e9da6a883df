"""Work on claims, one piece after the other at each partition."""

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

from kip30.driver.kit.following import all_of, copy, whatever
from kip30.driver.kit.futures import Completed
from kip30.driver.kit.timer import Timer
from kip30_backends.cassandra.lines import Lines

T = TypeVar("T")

Work = Callable[[float], Future[T]]
"""What is done in a turn, by the moment that it is told."""


@dataclass(eq=False, slots=True)
class _Turn:
    work: Work[Any]
    until: float
    answer: Future[Any] = field(default_factory=Future[Any])


class Turns:
    """Has every piece of work wait for its turn. Thread-safe."""

    def __init__(self, pulse: Timer) -> None:
        """Begin with nobody waiting; *pulse* tells when it is too late."""
        self._lines: Lines[_Turn] = Lines(pulse, _next, _taken)

    def take(self, place: Hashable, work: Work[T], until: float) -> Future[T]:
        """Return what becomes of *work* when its turn at *place* comes; all by *until*.

        Raises nothing: what *work* raises is the future's.
        """
        turn = _Turn(work, until)
        self._lines.join(place, turn)
        return turn.answer

    def settled(self, until: float) -> Future[None]:
        """Return what is done once all that waits now has ended, or at *until*."""
        return all_of([self.take(place, _nothing, until) for place in self._lines.places()])


def _nothing(_until: float) -> Future[None]:
    return Completed(None)


def _next(line: deque[_Turn]) -> list[_Turn]:
    return [line.popleft()]


def _taken(_place: object, turns: Sequence[_Turn], until: float) -> Future[Sequence[_Turn]]:
    (turn,) = turns

    def ended(done: Future[Any]) -> Future[Sequence[_Turn]]:
        copy(done, turn.answer)
        return Completed(())

    return whatever(turn.work(until), ended)
