"""A history of one object for the search: moments of return, and the operations open at each."""

from collections.abc import Hashable, Iterator, Sequence
from typing import NamedTuple

from kip30.history.models import Step
from kip30.history.operations import Operation


class Open(NamedTuple):
    """An answered operation while it runs. *bit* is its own among those open with it."""

    bit: int
    ends_ns: float
    step: Step


class Pending(NamedTuple):
    """An operation without an answer: open to the end, and it need not happen at all.

    Attributes:
        number: How many such operations had been called before.
        step: What it does.
    """

    number: int
    step: Step


class Alike:
    """Pending operations that do the same. The one called first may always happen first."""

    def __init__(self, needs: Hashable) -> None:
        """Start without operations; all will need *needs*."""
        self.needs = needs
        self._members: list[Pending] = []
        self._bits = 0

    def add(self, pending: Pending) -> None:
        """Add one that was called after all others."""
        self._members.append(pending)
        self._bits |= 1 << pending.number

    def first_unused(self, used: int, called: int) -> Pending | None:
        """Return the next one to happen of those *called*, given the bits of those *used*."""
        place = (used & self._bits).bit_count()
        if place == len(self._members) or self._members[place].number >= called:
            return None
        return self._members[place]


class Moment(NamedTuple):
    """The return of an answered operation, by which it must have happened.

    Attributes:
        ends_ns: When it was.
        place: That of the operation among those laid out.
        bit: Its bit.
        observers: The open operations that only read.
        changers: The other open ones, the next to return last.
        pending: How many of the timeline's pending operations had been called.
    """

    ends_ns: float
    place: int
    bit: int
    observers: tuple[Open, ...]
    changers: tuple[Open, ...]
    pending: int


class Timeline(NamedTuple):
    """Moments in their order, and the pending operations, those alike together."""

    moments: list[Moment]
    pending: list[Alike]


def timeline(steps: Sequence[tuple[Operation, Step]]) -> Timeline:
    """Lay out operations with their steps.

    Operations that touch in a single instant count as concurrent.
    """
    builder = _Builder()
    for _, returns, index in sorted(_events(steps)):
        if returns:
            builder.ends(index)
        elif steps[index][0].answered:
            builder.begins(index, *steps[index])
        else:
            builder.stays_open(*steps[index])
    return Timeline(builder.moments, list(builder.pending.values()))


def _events(steps: Sequence[tuple[Operation, Step]]) -> Iterator[tuple[float, bool, int]]:
    """Yield times of calls and returns; at the same time calls sort first."""
    for index, (row, _) in enumerate(steps):
        yield row.called_ns, False, index
        if row.answered:
            yield row.ends_ns, True, index


class _Builder:
    def __init__(self) -> None:
        self.moments: list[Moment] = []
        self.pending: dict[tuple[object, ...], Alike] = {}
        self._called = 0
        self._open: dict[int, Open] = {}
        self._free: list[int] = []
        self._bits = 0

    def begins(self, index: int, row: Operation, step: Step) -> None:
        self._open[index] = Open(self._free_bit(), row.ends_ns, step)

    def stays_open(self, row: Operation, step: Step) -> None:
        alike = self.pending.setdefault((row.op, row.args, row.fence), Alike(step.needs))
        alike.add(Pending(self._called, step))
        self._called += 1

    def ends(self, index: int) -> None:
        last_first = sorted(self._open.values(), key=lambda one: one.ends_ns, reverse=True)
        ended = self._open.pop(index)
        self._free.append(ended.bit)
        observers = tuple(one for one in last_first if one.step.observes)
        changers = tuple(one for one in last_first if not one.step.observes)
        now = Moment(ended.ends_ns, index, ended.bit, observers, changers, self._called)
        self.moments.append(now)

    def _free_bit(self) -> int:
        if self._free:
            return self._free.pop()
        self._bits += 1
        return 1 << (self._bits - 1)
