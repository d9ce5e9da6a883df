"""A history of one object as the search sees it: moments of return, and what is open at each."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kip30_conformance.history.models import Step
from kip30_conformance.history.operations import Operation


class Open(NamedTuple):
    """An answered operation while it runs. *bit* is its own among those open with it."""

    bit: int
    ends_ns: float
    step: Step


class Pending(NamedTuple):
    """An operation without an answer: open to the end, and it need not happen at all.

    Of several alike the one called first may always go first, so *twin* is the bit of the
    one that has to be used before this; 0 if none.
    """

    bit: int
    twin: int
    step: Step


class Moment(NamedTuple):
    """The return of an answered operation, by which it must have happened.

    Attributes:
        ends_ns: When it was.
        bit: Its bit.
        observers: The open operations that only look.
        changers: The other open ones, the next to return last.
        pending: How many of the timeline's pending operations had been called.
    """

    ends_ns: float
    bit: int
    observers: tuple[Open, ...]
    changers: tuple[Open, ...]
    pending: int


class Timeline(NamedTuple):
    """Moments in their order, and pending operations in that of their calls."""

    moments: list[Moment]
    pending: list[Pending]


def timeline(told: Sequence[tuple[Operation, Step]]) -> Timeline:
    """Lay out operations with their steps.

    Operations that touch in a single instant count as concurrent.
    """
    builder = _Builder()
    for _, returns, index in sorted(_events(told)):
        if returns:
            builder.ends(index)
        elif told[index][0].answered:
            builder.begins(index, *told[index])
        else:
            builder.stays_open(*told[index])
    return Timeline(builder.moments, builder.pending)


def _events(told: Sequence[tuple[Operation, Step]]) -> Iterator[tuple[float, bool, int]]:
    """Yield times of calls and returns; at the same time calls sort first."""
    for index, (row, _) in enumerate(told):
        yield row.called_ns, False, index
        if row.answered:
            yield row.ends_ns, True, index


class _Builder:
    def __init__(self) -> None:
        self.moments: list[Moment] = []
        self.pending: list[Pending] = []
        self._open: dict[int, Open] = {}
        self._free: list[int] = []
        self._bits = 0
        self._last_alike: dict[tuple[object, ...], int] = {}

    def begins(self, index: int, row: Operation, step: Step) -> None:
        self._open[index] = Open(self._free_bit(), row.ends_ns, step)

    def stays_open(self, row: Operation, step: Step) -> None:
        bit = 1 << len(self.pending)
        alike = (row.op, row.args)
        self.pending.append(Pending(bit, self._last_alike.get(alike, 0), step))
        self._last_alike[alike] = bit

    def ends(self, index: int) -> None:
        last_first = sorted(self._open.values(), key=lambda one: one.ends_ns, reverse=True)
        ended = self._open.pop(index)
        self._free.append(ended.bit)
        observers = tuple(one for one in last_first if one.step.observes)
        changers = tuple(one for one in last_first if not one.step.observes)
        now = Moment(ended.ends_ns, ended.bit, observers, changers, len(self.pending))
        self.moments.append(now)

    def _free_bit(self) -> int:
        if self._free:
            return self._free.pop()
        self._bits += 1
        return 1 << (self._bits - 1)
