"""`kip30.recipes` for asyncio. Waiting costs no thread, and cancelling leaves nothing behind."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, Generic, Self, TypeVar

from typing_extensions import override

from kip30.aio.async_handle import Closing
from kip30.aio.awaiting import post
from kip30.aio.bridge import Bridge, task_runner
from kip30.aio.leased import AsyncCounterparts, AsyncLeaseBound
from kip30.aio.locator import AsyncPluginLocator
from kip30.driver.clock import Clock
from kip30.errors import (
    ClosedError,
    Kip30Error,
    NotAcquiredError,
    NotMemberError,
    OutcomeUnknownError,
    UnavailableError,
)
from kip30.recipes.barrier import BarrierRequests
from kip30.recipes.counter import Counter
from kip30.recipes.grips import FencedGrip, Grip
from kip30.recipes.lock import Holder, LockRequests
from kip30.recipes.read_write_lock import ReadWriteLockRequests
from kip30.recipes.semaphore import SemaphoreRequests
from kip30.recipes.steps import Await, Steps
from kip30.runtime.base_handle import LoopHandle
from kip30.runtime.leased import LeaseBound
from kip30.runtime.term_work import acting_as

T = TypeVar("T")
G = TypeVar("G", bound=Grip)
_GripCounterparts = AsyncCounterparts[LeaseBound, AsyncLeaseBound[LeaseBound]]

_LONGEST_WAIT = 1.0  # a loop's timers are paused while the system is suspended


class AsyncGrip(Generic[G]):
    """`kip30.recipes.Grip`, awaited; leaving its ``async with`` block releases it.

    Attributes:
        lost: Set once it has ended: released or lost.
    """

    def __init__(self, bridge: Bridge, grip: G, held: AsyncLeaseBound[LeaseBound]) -> None:
        """Use the method of a recipe that acquires."""
        self._bridge = bridge
        self._grip = grip
        self._held = held
        self.lost: asyncio.Event = self._held.lost

    @property
    def token(self) -> int:
        """See `kip30.recipes.Grip.token`."""
        return self._grip.token

    @property
    def deadline(self) -> float:
        """See `kip30.recipes.Grip.deadline`."""
        return self._grip.deadline

    def is_valid(self) -> bool:
        """See `kip30.recipes.Grip.is_valid`."""
        return self._grip.is_valid()

    def check(self) -> None:
        """See `kip30.recipes.Grip.check`."""
        self._grip.check()

    async def release(self) -> None:
        """See `kip30.recipes.Grip.release`. It takes effect locally even if this is cancelled."""
        if self._bridge.store.is_foreign():  # the parent still holds it
            return

        def releasing() -> Future[None]:
            with acting_as(task_runner()):
                released = self._grip.begin_release()
            self._held.note_end()
            return released

        with suppress(ClosedError, NotMemberError):  # it has ended, and all that it held with it
            released = await self._bridge.give_back(releasing)
            await self._bridge.shared(released, OutcomeUnknownError)

    async def close(self) -> None:
        """Release it; a release that the store has not confirmed is not an error here."""
        with suppress(OutcomeUnknownError):
            await self.release()

    async def __aenter__(self) -> Self:
        """Return the grip itself."""
        self._grip.enter_block(task_runner())
        return self

    async def __aexit__(self, *_error: object) -> None:
        """Close it."""
        self._grip.leave_block()
        await self.close()

    @override
    def __repr__(self) -> str:
        return repr(self._grip)


class AsyncFencedGrip(AsyncGrip[FencedGrip]):
    """`kip30.recipes.FencedGrip`, awaited. Usable as ``fence=``."""

    @property
    def service(self) -> str:
        """The service whose epoch is the fence."""
        return self._grip.service

    @property
    def epoch(self) -> int:
        """The fencing token; the same as `token`."""
        return self._grip.epoch


class _AsyncRecipe:
    """A recipe; leaving its ``async with`` block closes it, entering it acquires nothing."""

    def __init__(self, bridge: Bridge, handles: Sequence[LoopHandle]) -> None:
        """Close *handles*, in this order."""
        self._bridge = bridge
        self._counterparts: _GripCounterparts = AsyncCounterparts(AsyncLeaseBound, bridge)
        self._closing = Closing(bridge, handles, self._counterparts)

    async def close(self) -> None:
        """See `close` of the class in `kip30.recipes`.

        Locally it takes effect at once, and it goes on to its end even if this is cancelled.
        """
        await self._closing.close()

    def _held(self, grip: Grip) -> AsyncGrip[Grip]:
        return AsyncGrip(self._bridge, grip, self._counterparts.of(grip.held))

    async def __aenter__(self) -> Self:
        """Return the object itself."""
        return self

    async def __aexit__(self, *_error: object) -> None:
        """Close it."""
        await self.close()


class AsyncLock(_AsyncRecipe):
    """`kip30.recipes.Lock`, awaited: with the same promises, arguments and errors."""

    def __init__(
        self, locator: AsyncPluginLocator, name: str, *, fair: bool = False, about: str = ""
    ) -> None:
        """Make a lock of *locator*'s store; see `kip30.recipes.Lock`."""
        self._requests = LockRequests(locator.locator, name, fair=fair, about=about)
        super().__init__(locator.bridge, self._requests.handles)

    async def acquire(self, timeout_seconds: float | None = None) -> AsyncFencedGrip:
        """See `kip30.recipes.Lock.acquire`.

        A task that is cancelled while it waits does not hold the lock, and waits for it no more.
        """
        grip = await _taken(self._requests.acquire(timeout_seconds), self._bridge)
        return AsyncFencedGrip(self._bridge, grip, self._counterparts.of(grip.held))

    async def try_acquire(self) -> AsyncFencedGrip | None:
        """See `kip30.recipes.Lock.try_acquire`."""
        try:
            return await self.acquire(0)
        except NotAcquiredError:
            return None

    async def holder(self) -> Holder | None:
        """See `kip30.recipes.Lock.holder`."""
        election = self._requests.election
        state = await self._bridge.read(election.state)
        return self._requests.holder(election.leader(state))


class AsyncReadWriteLock(_AsyncRecipe):
    """`kip30.recipes.ReadWriteLock`, awaited: with the same promises, arguments and errors.

    A task that is cancelled while it waits does not hold the lock, and waits for it no more.
    """

    def __init__(self, locator: AsyncPluginLocator, name: str) -> None:
        """Make a lock of *locator*'s store; see `kip30.recipes.ReadWriteLock`."""
        self._requests = ReadWriteLockRequests(locator.locator, name)
        super().__init__(locator.bridge, [self._requests.line])

    async def read(self, timeout_seconds: float | None = None) -> AsyncGrip[Grip]:
        """See `kip30.recipes.ReadWriteLock.read`."""
        return self._held(await _taken(self._requests.read(timeout_seconds), self._bridge))

    async def write(self, timeout_seconds: float | None = None) -> AsyncGrip[Grip]:
        """See `kip30.recipes.ReadWriteLock.write`."""
        return self._held(await _taken(self._requests.write(timeout_seconds), self._bridge))


class AsyncSemaphore(_AsyncRecipe):
    """`kip30.recipes.Semaphore`, awaited: with the same promises, arguments and errors.

    A task that is cancelled while it waits holds no permits, and no longer waits for any.
    """

    def __init__(self, locator: AsyncPluginLocator, name: str, permits: int) -> None:
        """Make a semaphore of *locator*'s store; see `kip30.recipes.Semaphore`."""
        self._requests = SemaphoreRequests(locator.locator, name, permits)
        super().__init__(locator.bridge, [self._requests.line])

    async def acquire(
        self, permits: int = 1, timeout_seconds: float | None = None
    ) -> AsyncGrip[Grip]:
        """See `kip30.recipes.Semaphore.acquire`."""
        steps = self._requests.acquire(permits, timeout_seconds)
        return self._held(await _taken(steps, self._bridge))

    async def try_acquire(self, permits: int = 1) -> AsyncGrip[Grip] | None:
        """See `kip30.recipes.Semaphore.try_acquire`."""
        try:
            return await self.acquire(permits, 0)
        except NotAcquiredError:
            return None


class AsyncBarrier(_AsyncRecipe):
    """`kip30.recipes.Barrier`, awaited: with the same promises, arguments and errors.

    A task that is cancelled while it waits may be counted in a round that opens at that moment.
    """

    def __init__(self, locator: AsyncPluginLocator, name: str, parties: int) -> None:
        """Make a barrier of *locator*'s store; see `kip30.recipes.Barrier`."""
        self._requests = BarrierRequests(locator.locator, name, parties)
        super().__init__(locator.bridge, [self._requests.line])

    async def wait(self, timeout_seconds: float | None = None) -> int:
        """See `kip30.recipes.Barrier.wait`."""
        return await _taken(self._requests.wait(timeout_seconds), self._bridge)


class AsyncCounter:
    """`kip30.recipes.Counter`, awaited: with the same promises, arguments and errors.

    Each call holds a thread until it is answered. Cancelling a task does not undo its change.
    """

    def __init__(self, locator: AsyncPluginLocator, name: str) -> None:
        """Make a counter of *locator*'s store; see `kip30.recipes.Counter`."""
        self._bridge = locator.bridge
        self._counter = Counter(locator.locator, name)

    async def value(self) -> int:
        """See `kip30.recipes.Counter.value`."""
        return await self._bridge.call(self._counter.value, UnavailableError)

    async def add(self, by: int = 1) -> int:
        """See `kip30.recipes.Counter.add`."""
        return await self._bridge.call(partial(self._counter.add, by))

    async def compare_and_set(self, expected: int, new: int) -> bool:
        """See `kip30.recipes.Counter.compare_and_set`."""
        return await self._bridge.call(partial(self._counter.compare_and_set, expected, new))


async def _taken(steps: Steps[T], bridge: Bridge) -> T:
    """Run *steps* in the loop, and return their result."""
    answer: object = None
    error: Kip30Error | None = None
    clock = bridge.store.context.clock
    try:
        while True:
            step = steps.throw(error) if error is not None else steps.send(answer)
            answer, error = None, None
            if isinstance(step, Await):
                await _until_any(step, clock)
                continue
            try:
                answer = await bridge.call(step.function)
            except Kip30Error as raised:
                error = raised
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        steps.close()


def _any_done(futures: Sequence[Future[Any]]) -> bool:
    return any(future.done() for future in futures)


async def _until_any(step: Await, clock: Clock) -> None:
    """Wait as *step* says; its futures are not cancelled.

    Each of them gets only one callback, because callbacks cannot be removed.
    """
    if _any_done(step.futures) or step.until <= clock.now():
        return
    loop = asyncio.get_running_loop()
    woken = asyncio.Event()
    for future in step.futures:
        future.add_done_callback(lambda _: post(loop, woken.set))
    while (left := step.until - clock.now()) > 0 and not _any_done(step.futures):
        with suppress(TimeoutError):
            async with asyncio.timeout(min(left, _LONGEST_WAIT)):
                await woken.wait()
