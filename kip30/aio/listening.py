"""Listeners of an event loop, and the callbacks that represent them to the threads.

A callback posts its event to the loop and returns at once, with a future of the listener's end.
Until that is done there is no second call, and no thread waits: see
`kip30.runtime.dispatcher.Suspended`.
"""

import asyncio
import inspect
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from contextvars import copy_context
from typing import Any, Generic, NamedTuple, TypeVar

from typing_extensions import override

from kip30.aio.bridge import Bridge
from kip30.driver.kit.futures import succeed
from kip30.errors import Kip30Error, OutcomeUnknownError, UnavailableError
from kip30.runtime.dispatcher import Suspended
from kip30.runtime.future_callbacks import check_callback
from kip30.runtime.term_work import TermWork, ThreadOrTask, running_work

E = TypeVar("E")

log: logging.Logger = logging.getLogger(__name__)

AsyncListener = Callable[[E], object]
"""A coroutine function, or a plain function: both are called in the loop."""


def _as_it_is(event: Any) -> Any:
    return event


class Listener(Generic[E]):
    """One function of the loop, registered once."""

    def __init__(
        self,
        listeners: "Listeners",
        function: AsyncListener[Any],
        convert: Callable[[E], Any] = _as_it_is,
    ) -> None:
        """Call *function* in the loop, with the result of *convert* for each event.

        No call starts once *listeners* is closed.
        """
        # Both for the loop's thread only. removed: start no call. given_up: the task that began to
        # register it was cancelled or waited too long, so another task has to register it.
        self.removed: bool = False
        self.given_up: bool = False
        self._listeners = listeners
        self._bridge = listeners.bridge
        self._function = function
        self._convert = convert
        self._context = copy_context()

    def __call__(self, event: E) -> Suspended | None:
        """Call the function soon, in the loop; return a future that is done when it has ended."""
        rest = Suspended()
        work = running_work()
        if work is not None:
            work.runner = None  # until the loop has made a task of it
        is_posted = self._bridge.post(lambda: self._start(event, rest, work))
        return rest if is_posted else None

    def _start(self, event: E, rest: Suspended, work: TermWork | None = None) -> None:
        if self.removed or self._listeners.closed or self._bridge.closed:
            succeed(rest, None)
            return
        # A task that is cancelled before its first step never runs: only its end is certain.
        task = self._bridge.start(self._run(event), self._context.copy())
        if work is not None:
            work.runner = ThreadOrTask(threading.get_ident(), task)
        task.add_done_callback(lambda _: succeed(rest, None))

    async def _run(self, event: E) -> None:
        if self.removed or self._listeners.closed:  # since the task was made
            return
        try:
            result = self._function(self._convert(event))
            if inspect.isawaitable(result):
                await result
        except asyncio.CancelledError:
            if _is_cancelled():
                raise
            log.exception("listener %r has awaited a task that was cancelled", self._function)
        except Exception:  # later events must still be delivered
            log.exception("listener %r raised", self._function)


def _is_cancelled() -> bool:
    """Return whether the running task is cancelled itself, as all are at the end of a locator."""
    task = asyncio.current_task()
    return task is not None and bool(task.cancelling())


class Callback(Listener[E]):
    """A function of the loop that is handed to a call, and equal to another of the same function.

    So a second nomination with the same callbacks is one.
    """

    @override
    def __eq__(self, other: object) -> bool:
        """Return whether *other* calls the same function."""
        return isinstance(other, Callback) and self._function == other._function

    @override
    def __hash__(self) -> int:
        """Agree with equality; the function itself need not be hashable."""
        return hash(Callback)


class _Kept(NamedTuple):
    """A listener, and a future that is done when it is registered."""

    listener: Listener[Any]
    registering: Future[object]


class Listeners:
    """The listeners of one handle, by what they listen to. For the loop's thread only."""

    def __init__(self, bridge: Bridge) -> None:
        """Start without listeners."""
        self.bridge = bridge
        self.closed: bool = False  # no listener of this handle is called any longer
        bridge.listeners.add(self)  # weakly; a listener keeps it
        self._kept: dict[tuple[object, AsyncListener[Any]], _Kept] = {}

    async def add(
        self,
        place: object,
        function: AsyncListener[E],
        register: Callable[[Callable[[E], object]], object],
        unregister: Callable[[Callable[[E], object]], object],
    ) -> None:
        """Let *register* register *function* unless that was done; after an error it is not.

        Raises:
            UsageError: *function* cannot be called, or cannot be hashed.
        """
        check_callback(function)
        await self.bridge.begin()
        while (present := self._kept.get((place, function))) is not None:
            if await self._is_registered(present):
                return
        listener = Listener[E](self, function)
        kept = self._kept[place, function] = _Kept(listener, Future())
        try:
            async with self.bridge.turns as until:
                self.bridge.submit(lambda: register(listener), kept.registering)
                await self.bridge.finish(kept.registering, UnavailableError, until)
                self.bridge.turns.answered()
        except BaseException:
            if self._kept.get((place, function)) is kept:
                del self._kept[place, function]
            kept.registering.cancel()  # it may not have got a turn
            self._take_back(kept, unregister)
            raise

    async def remove(
        self,
        place: object,
        function: AsyncListener[E],
        unregister: Callable[[Callable[[E], object]], object],
    ) -> None:
        """Start no call of *function* from now on; do nothing if it is not there.

        If it was not added here, but through other handles of the locator, it is removed there.

        Raises:
            UsageError: *function* could not have been added.
        """
        check_callback(function)
        if self.closed or self.bridge.closed:
            return
        keepers = [self] if (place, function) in self._kept else self.bridge.listeners
        found = [one.taken(place, function) for one in list(keepers)]
        for kept in filter(None, found):
            await self._end(kept, unregister)

    def taken(self, place: object, function: AsyncListener[Any]) -> _Kept | None:
        """Forget *function*, start no call of it, and return it; None if it is not here."""
        kept = self._kept.pop((place, function), None)
        if kept is not None:
            kept.listener.removed = True
        return kept

    async def _end(self, kept: _Kept, unregister: Callable[[Any], object]) -> None:
        try:
            with suppress(Kip30Error):
                await self.bridge.shared(kept.registering, UnavailableError)
            async with self.bridge.turns as until:
                ending = self.bridge.submit(lambda: unregister(kept.listener))
                await self.bridge.finish(ending, OutcomeUnknownError, until)
        except BaseException:
            self._take_back(kept, unregister)
            raise

    def callback(
        self, function: AsyncListener[Any] | None, convert: Callable[[E], Any]
    ) -> Callback[E] | None:
        """Return a callback that calls *function* with converted events; None for None."""
        return None if function is None else Callback(self, function, convert)

    def close(self) -> None:
        """Start no call of any of them from now on."""
        self.closed = True
        self._kept.clear()

    async def _is_registered(self, present: _Kept) -> bool:
        """Await the registration that another task began; false if that task has given it up."""
        try:
            await self.bridge.shared(present.registering, UnavailableError)
        except Kip30Error:
            if not present.listener.given_up:
                raise
        return not present.listener.given_up

    def _take_back(self, kept: _Kept, unregister: Callable[[Any], object]) -> None:
        """Undo a registration that may be in progress, although the wait for it was given up."""
        kept.listener.removed = kept.listener.given_up = True
        kept.registering.add_done_callback(
            lambda _: self.bridge.submit(lambda: unregister(kept.listener))
        )
