"""Leaderships and memberships, as seen from an event loop."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from types import TracebackType
from typing import Any, Generic, Self, TypeVar
from weakref import ReferenceType, WeakValueDictionary, ref

from typing_extensions import override

from kip30.aio.bridge import Bridge
from kip30.driver.records import Version
from kip30.errors import LeadershipLostError
from kip30.runtime.candidacy import Leadership
from kip30.runtime.leased import LeaseBound
from kip30.runtime.member_lifecycle import Member
from kip30.runtime.term_work import ThreadOrTask

H = TypeVar("H", bound=LeaseBound)

_LONGEST_WAIT = 1.0  # a loop's timers pause while the system is suspended; leases do not


class AsyncLeaseBound(Generic[H]):
    """Something held until a lease ends.

    Attributes:
        lost: Set once it has ended, by the clock or by an event, whichever comes first.
    """

    def __init__(self, bridge: Bridge, held: H) -> None:
        """Wrap *held*."""
        self.lost: asyncio.Event = asyncio.Event()
        self._held = held
        self._bridge = bridge
        self._timer: asyncio.TimerHandle | None = None
        self._callbacks: set[Callable[[], None]] = set()
        self._look_at_the_clock()
        # Weak, or an ended object and its counterpart would keep each other alive forever. While it
        # is valid the timer holds the counterpart.
        counterpart: ref[AsyncLeaseBound[Any]] = ref(self)
        held.over.add_done_callback(lambda _: bridge.post(partial(_end, counterpart)))

    @property
    def held(self) -> H:
        """The same as seen from a thread."""
        return self._held

    @property
    def data(self) -> bytes:
        """Its data as last written, encoded."""
        return self._held.data

    @property
    def timeout_seconds(self) -> float:
        """Seconds for which the store keeps the lease without renewal."""
        return self._held.timeout_seconds

    @property
    def deadline(self) -> float:
        """Time at which this ends unless the lease is renewed, in seconds on the lease's clock."""
        return self._held.deadline

    @property
    def held_until(self) -> float:
        """When it is released in the store even if work still goes on, on the lease's clock."""
        return self._held.held_until

    @property
    def ending_reason(self) -> str:
        """Reason why this has ended; while it holds, why it will if it is not renewed."""
        return self._held.ending_reason

    def is_valid(self) -> bool:
        """Return whether this still holds now, by the clock."""
        return self._held.is_valid()

    def remaining_seconds(self) -> float:
        """Return how long this holds without another renewal; 0 once it has ended."""
        return self._held.remaining_seconds()

    def check(self) -> None:
        """Return if this still holds.

        Raises:
            DefiniteError: It has ended (`LeadershipLostError` or `NotMemberError`).
        """
        self._held.check()

    def on_end(self, callback: Callable[[], None]) -> None:
        """Call *callback* once in the loop when this ends; at once if it has."""
        if self.lost.is_set():
            callback()
        else:
            self._callbacks.add(callback)

    def forget(self, callback: Callable[[], None]) -> None:
        """Undo `on_end`; nothing happens if *callback* is not there."""
        self._callbacks.discard(callback)

    @override
    def __repr__(self) -> str:
        return repr(self._held)

    def _look_at_the_clock(self) -> None:
        if self._held.is_valid():
            pause = min(_LONGEST_WAIT, self._held.remaining_seconds())
            self._timer = self._bridge.call_later(pause, self._look_at_the_clock)
        else:
            self.end()

    def note_end(self) -> None:
        """Set `lost` if this has ended; the event of `over` may reach the loop later."""
        if not self._held.is_valid():
            self.end()

    def end(self) -> None:
        """Note that it has ended."""
        if self._timer is not None:
            self._timer.cancel()
        self.lost.set()
        callbacks, self._callbacks = self._callbacks, set()
        for callback in callbacks:
            callback()


def _end(counterpart: "ReferenceType[AsyncLeaseBound[Any]]") -> None:
    if (bound := counterpart()) is not None:
        bound.end()


def _request_step_down(counterpart: "ReferenceType[AsyncLeadership]") -> None:
    if (leadership := counterpart()) is not None:
        leadership.step_down_requested.set()


class AsyncLeadership(AsyncLeaseBound[Leadership]):
    """One term of one candidate; see `kip30.Leadership`. Usable as ``fence=``.

    Attributes:
        step_down_requested: Set once an operator has ended the term, which stays valid for the
            candidate's ``step_down_seconds``.
    """

    def __init__(self, bridge: Bridge, held: Leadership) -> None:
        """Wrap *held*."""
        self.step_down_requested: asyncio.Event = asyncio.Event()
        super().__init__(bridge, held)
        counterpart: ref[AsyncLeadership] = ref(self)  # weak, for the same reason
        held.on_step_down(lambda: bridge.post(partial(_request_step_down, counterpart)))

    def working(self, runner: ThreadOrTask) -> AbstractContextManager[None]:
        """Return a block of *runner* that works under this."""
        return self._held.working(runner)

    @property
    def service(self) -> str:
        """The service that is led."""
        return self._held.service

    @property
    def candidate(self) -> str:
        """The candidate that leads."""
        return self._held.candidate

    @property
    def epoch(self) -> int:
        """The fencing token: greater than that of every earlier term of the service."""
        return self._held.epoch

    @property
    def since(self) -> float:
        """When this client learned of its election, in seconds since 1970; see `Leadership`."""
        return self._held.since

    @property
    def step_down_reason(self) -> str:
        """The operator who has ended it, in words; empty before that."""
        return self._held.step_down_reason

    @property
    def steps_down_at(self) -> float:
        """When it ends by that, in seconds on the lease's clock; else infinite."""
        return self._held.steps_down_at

    @property
    def kept_until(self) -> float:
        """When it can be released in the store at the earliest; see `Leadership`."""
        return self._held.kept_until


class AsyncMember(AsyncLeaseBound[Member]):
    """One incarnation of a member; see `kip30.Member`."""

    @property
    def id(self) -> str:
        """The member's id."""
        return self._held.id

    @property
    def incarnation(self) -> Version:
        """A token of this incarnation: greater than those of all that joined the group before.

        It does not change with the data.
        """
        return self._held.incarnation

    @property
    def order(self) -> int:
        """The least order of a view of the group that shows it; see `kip30.Member.order`."""
        return self._held.order


A = TypeVar("A", bound=AsyncLeaseBound[Any])


class AsyncCounterparts(Generic[H, A]):
    """The one `AsyncLeaseBound` of each `LeaseBound`, for as long as one of them is in use."""

    def __init__(self, make: Callable[[Bridge, H], A], bridge: Bridge) -> None:
        """Start without counterparts."""
        self._make = make
        self._bridge = bridge
        self._made: WeakValueDictionary[H, A] = WeakValueDictionary()
        bridge.counterparts.add(self)

    def of(self, held: H) -> A:
        """Return the counterpart of *held* in the loop."""
        counterpart = self._made.get(held)
        if counterpart is None:
            counterpart = self._made[held] = self._make(self._bridge, held)
        counterpart.note_end()  # on_lost may arrive before what `over` posts
        return counterpart

    def note_ends(self) -> None:
        """Set `lost` of all counterparts of what has ended."""
        for counterpart in list(self._made.values()):
            counterpart.note_end()

    def note_end(self, held: H | None) -> None:
        """Set `lost` of the counterpart of *held*, if there is one and *held* has ended."""
        counterpart = self._made.get(held) if held is not None else None
        if counterpart is not None:
            counterpart.note_end()


class CancelledOnLoss:
    """Cancels the task whose block this is when a leadership ends.

    Like `asyncio.timeout` it turns its own cancellation into an error and no other: a task that is
    cancelled from elsewhere at the same time stays cancelled.
    """

    def __init__(self, leadership: AsyncLeadership) -> None:
        """Watch *leadership* from `__aenter__` on."""
        self._leadership = leadership
        self._task: asyncio.Task[object] | None = None
        self._cancelling = 0  # how many cancellations of the task were pending when the block began
        self._fired = False
        self._due: asyncio.Handle | None = None

    async def __aenter__(self) -> Self:
        """Begin the block.

        Raises:
            LeadershipLostError: The leadership has ended already.
        """
        self._leadership.check()  # a task that cancels itself would be cancelled at a later await
        self._task = asyncio.current_task()
        self._cancelling = self._task.cancelling() if self._task is not None else 0
        self._leadership.on_end(self._cancel)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        """End it.

        Raises:
            LeadershipLostError: The block was cancelled because the leadership has ended.
        """
        self._leadership.forget(self._cancel)
        if self._due is not None:
            self._due.cancel()
        if not self._fired or self._task is None:
            return
        ours_alone = self._task.uncancel() <= self._cancelling
        if ours_alone and kind is asyncio.CancelledError:
            try:
                self._leadership.check()
            except LeadershipLostError as lost:
                raise lost from error

    def _cancel(self) -> None:
        if self._task is None:
            return
        if asyncio.current_task() is self._task:
            # A task that cancels itself is cancelled at its next await, even after the block.
            self._due = asyncio.get_running_loop().call_soon(self._cancel)
            return
        self._fired = True
        self._task.cancel()
