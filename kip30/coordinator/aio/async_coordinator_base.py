"""Shared code of the coordinators for asyncio."""

import asyncio
import inspect
from abc import ABC
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, Generic, Self, TypeVar, overload

from typing_extensions import override

from kip30.aio.closing_thread import ClosingThread
from kip30.aio.locator import AsyncPluginLocator
from kip30.aio.loop_calls import LoopCalls
from kip30.codecs import STR, Codec
from kip30.coordinator.abstract_coordinator import AbstractCoordinator
from kip30.coordinator.aio.guarded_storage import AsyncGuardedStorage
from kip30.coordinator.interface import Generation, MemberState
from kip30.coordinator.member_guards import MemberGuards
from kip30.election import waiting_seconds
from kip30.errors import Kip30Error

T = TypeVar("T")

AsyncCall = Callable[..., object]
"""A coroutine function or a plain one: both are called in the loop."""

_LONGEST_WAIT = 0.5  # a locator that is closed, or a system that was suspended, notifies no task

_call: ContextVar[object] = ContextVar("kip30_coordinator_call")
"""The call of the application that the present task is part of, or that has started it."""


class LoopMember(AbstractCoordinator, ABC):
    """A member whose application is in an event loop."""

    # Set once, before the member takes part.
    loop_calls: LoopCalls

    @override
    def _is_over(self) -> bool:
        return self.loop_calls.is_closed() or super()._is_over()

    def watch(self, watcher: Callable[[], object]) -> None:
        """Call *watcher* in any thread whenever the member may have changed; it must not block."""
        self._made().share.watcher = watcher

    def guards_for(self, codec: Codec[Any]) -> MemberGuards:
        """Return what guards the member's writes; see `AbstractCoordinator.storage`."""
        return self._guards(codec)

    def begin_end(self, *, gives_instance_up: bool) -> None:
        """Let the polling thread end the member, without waiting for that."""
        self._begin_end(gives_instance_up=gives_instance_up)


M = TypeVar("M", bound=LoopMember)


class AsyncCoordinatorBase(Generic[M]):
    """A member of a group in an event loop; an async context manager, which joins and leaves.

    It wraps a `kip30.coordinator.AbstractCoordinator`, with the same promises. It belongs to the
    loop of its locator, and must be closed before that.
    """

    def __init__(self, locator: AsyncPluginLocator) -> None:
        """Keep *locator*; subclasses call `_stand_on` next."""
        self._locator = locator
        self._bridge = locator.bridge
        self._calls = LoopCalls(self._bridge)
        # The call of the application that is in progress. Tasks that it starts inherit it, and may
        # outlive it. Only the loop's thread reads and writes it.
        self._calling: object = None

    def _stand_on(self, member: M) -> None:
        self._member: M = member
        member.loop_calls = self._calls
        # Set whenever something about the member may have changed, by the loop's thread only.
        self._changed = asyncio.Event()

    def _in_loop(self, function: AsyncCall) -> Callable[..., Any]:
        """Return a function that calls *function* in the loop, for the polling thread."""

        async def called(*arguments: Any) -> object:
            self._calling = object()
            _call.set(self._calling)
            try:
                result = function(*arguments)
                return await result if inspect.isawaitable(result) else result
            finally:
                self._calling = None

        return lambda *arguments: self._calls.call(called, *arguments)

    # -- what it is

    @property
    def group_id(self) -> str:
        """The group."""
        return self._member.group_id

    @property
    def member_id(self) -> str:
        """The member's id."""
        return self._member.member_id

    @property
    def state(self) -> MemberState:
        """See `AbstractCoordinator.state`."""
        return self._member.state

    @property
    def generation(self) -> Generation:
        """See `AbstractCoordinator.generation`."""
        return self._member.generation

    @property
    def is_leader(self) -> bool:
        """See `AbstractCoordinator.is_leader`."""
        return self._member.is_leader

    @property
    def failure(self) -> Kip30Error | None:
        """See `AbstractCoordinator.failure`."""
        return self._member.failure

    @property
    def deadline(self) -> float:
        """See `AbstractCoordinator.deadline`."""
        return self._member.deadline

    def is_valid(self) -> bool:
        """See `AbstractCoordinator.is_valid`."""
        return self._member.is_valid()

    def check(self) -> None:
        """See `AbstractCoordinator.check`."""
        self._member.check()

    # -- taking part

    async def ready(self, timeout_seconds: float | None = None) -> bool:
        """Wait until the member has a share, and return whether it does within *timeout_seconds*.

        A task that is cancelled meanwhile leaves the member as it is. In a call of the application
        the member goes on only once that has returned: do not wait for this there.

        Raises:
            Kip30Error: As `AbstractCoordinator.ensure_active_group`.
        """
        return await self._until(lambda: self._member.ensure_active_group(0), timeout_seconds)

    async def wait_lost(self) -> None:
        """Wait until the present share ends: given up, changed or lost; return at once if none."""
        lost = self._member.lost
        await self._until(lost.is_set, None)

    def request_rejoin(self, reason: str) -> None:
        """See `AbstractCoordinator.request_rejoin`."""
        self._member.request_rejoin(reason)

    @overload
    def storage(self) -> AsyncGuardedStorage[str]: ...
    @overload
    def storage(self, codec: Codec[T]) -> AsyncGuardedStorage[T]: ...
    def storage(self, codec: Codec[Any] = STR) -> AsyncGuardedStorage[Any]:
        """See `AbstractCoordinator.storage`."""
        guards, handle = self._member.guards_for(codec), self._locator.storage(codec)
        return AsyncGuardedStorage(self._bridge, handle, guards)

    async def leave(self, reason: str = "") -> None:
        """See `AbstractCoordinator.leave`, and `close`."""
        await self._end(lambda: self._member.leave(reason), gives_instance_up=True)

    async def close(self) -> None:
        """See `AbstractCoordinator.close`. Idempotent.

        A task that is cancelled meanwhile does not end before the member is closed. In a call of
        the application, and in tasks that it has started, this returns at once while that call is
        in progress, because it may wait for them; the member ends when it has returned.
        """
        await self._end(self._member.close, gives_instance_up=False)

    async def __aenter__(self) -> Self:
        """Begin to take part; see `AbstractCoordinator.start`."""
        self._member.watch(lambda: self._bridge.post(self._changed.set))
        self._member.start()
        return self

    async def __aexit__(self, *_error: object) -> None:
        """Close it, however the block ends."""
        await self.close()

    async def _end(self, end: Callable[[], None], *, gives_instance_up: bool) -> None:
        if self._calling is not None and _call.get(None) is self._calling:
            self._member.begin_end(gives_instance_up=gives_instance_up)
        else:
            await ClosingThread(end).end()

    async def _until(self, probe: Callable[[], bool], timeout_seconds: float | None) -> bool:
        clock = self._bridge.store.context.clock
        until = clock.now() + waiting_seconds(timeout_seconds)
        while True:
            self._bridge.check()
            self._changed.clear()
            if probe():
                return True
            left = until - clock.now()
            if left <= 0:
                return False
            with suppress(TimeoutError):
                async with asyncio.timeout(min(left, _LONGEST_WAIT)):
                    await self._changed.wait()
