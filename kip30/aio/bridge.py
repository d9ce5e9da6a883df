"""Connects one event loop to one open store: calls do not block, and end in time."""

import asyncio
import threading
from collections.abc import Callable, Collection, Coroutine
from concurrent.futures import Future
from contextlib import AsyncExitStack, suppress
from contextvars import Context
from typing import Any, TypeVar
from weakref import WeakSet

from kip30.aio.awaiting import LateError, outcome, post
from kip30.aio.turns import CallTurns, IterationLimit
from kip30.aio.workers import Workers
from kip30.errors import (
    ClosedError,
    DefiniteError,
    Kip30Error,
    LifecycleError,
    OutcomeUnknownError,
    UnavailableError,
)
from kip30.runtime.dispatcher import READERS
from kip30.runtime.open_store import OpenStore
from kip30.runtime.term_work import ThreadOrTask, acting_as

T = TypeVar("T")

_SLACK = 1.1  # longer than the store's own, so that its errors come first: they say more

_IN_FLIGHT = 128
"""Maximum number of reads, and of writes, of one loop that are in flight at once."""

_AT_ONCE = 32
"""Maximum number of other calls under way at once, of which a few at a time have a thread: the last
must get an answer by its deadline from a store that is slow."""

_STORE_WORKERS = 6
"""Number of threads that wait for the store at once, for calls of the loop or the library's own
tasks, while it answers. So kip30 has about ten threads, with those of the dispatcher and driver."""

_STALLED_SHARE = 0.2
"""The share of the operation timeout after which one more thread waits, if no call has had an
answer: a call that the store does not answer delays others for no longer."""

_WORKERS = 2 * _STORE_WORKERS
"""Maximum number of calls of one loop, other than reads, that block threads at once."""

_IN_ONE_ITERATION = 32
"""Maximum number of calls that begin in one iteration of the loop: some milliseconds of work."""


def task_runner() -> ThreadOrTask:
    """Return the running task as the runner of the caller."""
    return ThreadOrTask(threading.get_ident(), asyncio.current_task())


def for_task(function: Callable[[], T]) -> Callable[[], T]:
    """Return *function* for another thread, wrapped so that it acts for the running task there."""
    runner = task_runner()

    def call() -> T:
        with acting_as(runner):
            return function()

    return call


class Bridge:
    """State that the handles of one `AsyncPluginLocator` share."""

    def __init__(self, store: OpenStore) -> None:
        """Use the running loop."""
        self.store = store
        self.closed: bool = False  # no listener is called any longer; only the loop's thread writes
        limit = store.context.operation_timeout_seconds
        store.dispatcher.serve_loop(_STORE_WORKERS, _STALLED_SHARE * limit)
        self._workers = Workers(store.dispatcher, _WORKERS)
        self._readers = Workers(store.dispatcher, READERS, read=True)
        self._loop = asyncio.get_running_loop()
        self._seconds = limit * _SLACK
        self.turns: CallTurns = CallTurns(_AT_ONCE, self._seconds, limit)
        # Those of reads and of writes that no thread makes: many of them in flight cost little.
        self._read_turns = CallTurns(_IN_FLIGHT, self._seconds, limit)
        self.write_turns: CallTurns = CallTurns(_IN_FLIGHT, self._seconds, limit)
        self._iteration_limit = IterationLimit(_IN_ONE_ITERATION)
        self.listeners: WeakSet[Any] = WeakSet()  # the `Listeners` of all handles
        self.counterparts: WeakSet[Any] = WeakSet()  # the `AsyncCounterparts` of all handles
        self._listening: set[asyncio.Task[None]] = set()

    def check(self) -> None:
        """Raise unless the store is open and this is its loop.

        Raises:
            ClosedError: The locator is closed.
            LifecycleError: Another loop, or the child of a fork.
        """
        self.store.check()
        if asyncio.get_running_loop() is not self._loop:
            raise LifecycleError("this belongs to another event loop: use a locator in each loop")

    async def begin(self) -> None:
        """Return in an iteration of the loop in which another call may begin, mostly this one.

        Raises as `check` does.
        """
        self.check()
        if not self._iteration_limit.admits():
            await self._iteration_limit.admitted()
            self.check()

    async def give_back(self, function: Callable[[], T]) -> T:
        """Return the result of *function*, which ends something locally, once a call may begin.

        If the task is cancelled before that, *function* is called at once. Raises as `check` does.
        """
        try:
            await self.begin()
        except asyncio.CancelledError:
            with suppress(Kip30Error):
                function()
            raise
        return function()

    async def read(self, request: Callable[[], Future[T]]) -> T:
        """Await the answer to *request*, which reads something through the driver.

        A driver that may work before it returns is called on a thread, others in the loop.

        Raises:
            UnavailableError: There was no answer by the operation timeout.
        """
        await self.begin()
        async with self._read_turns as until:
            return await self._ask(request, self._read_turns, UnavailableError, until)

    async def write(self, request: Callable[[], Future[T]], until: float) -> T:
        """Await the answer to *request*, which writes something through the driver, in a turn.

        As for `read`, until the moment *until*.

        Raises:
            UnavailableError: No thread was free by then. Nothing was sent.
            OutcomeUnknownError: There was no answer by then.
        """
        return await self._ask(request, self.write_turns, OutcomeUnknownError, until)

    async def call(
        self, function: Callable[[], T], late: type[Kip30Error] = OutcomeUnknownError
    ) -> T:
        """Await *function*, called on a worker in its turn, by the operation timeout.

        Raises:
            UnavailableError: It got no turn or no worker in time. Nothing was sent.
            Kip30Error: Of the kind *late* if *function* did not end in time. It still may.
        """
        await self.begin()
        async with self.turns as until:
            result = await self.finish(self.submit(for_task(function)), late, until)
            self.turns.answered()
            return result

    def submit(self, function: Callable[[], T], future: Future[T] | None = None) -> Future[T]:
        """Call *function* on a worker; the result is that of *future*, if one is given."""
        return self._workers.submit(function, future)

    async def asked(self, function: Callable[[], T], late: type[Kip30Error], until: float) -> T:
        """Return the result of *function*, which asks the driver for something and awaits nothing.

        A driver that may work in that is asked on a worker; see `finish`.
        """
        if self.store.backend.is_blocking:
            return await self.finish(self.submit(function), late, until)
        return function()

    async def finish(self, call: Future[T], late: type[Kip30Error], until: float) -> T:
        """Await the future that `submit` returned, as `call` does, until *until*."""
        try:
            return await outcome(call, until - self._loop.time())
        except LateError:
            if call.cancelled():
                raise UnavailableError("no thread was free in time: nothing was sent") from None
            raise self._late(late) from None

    async def shared(
        self, source: Future[T], late: type[Kip30Error], *, is_answer: bool = True
    ) -> T:
        """Await *source*, which others may wait for too and which goes on in any case.

        By the operation timeout, once this has a turn. If *is_answer*, the store has answered when
        *source* is done.

        Raises:
            Kip30Error: Of the kind *late* if it was not done in time.
        """
        async with AsyncExitStack() as turn:
            try:
                until = await turn.enter_async_context(self.turns)
            except UnavailableError:  # "nothing was sent" does not hold: *source* has begun
                until = self._loop.time()
            was_done = source.done()
            result = await self._answered(source, late, until, shared=True)
            if is_answer and not was_done:
                self.turns.answered()
            return result

    def until(self) -> float:
        """Return the moment, by the loop's clock, by which an operation that begins now ends."""
        return self._loop.time() + self._seconds

    def post(self, function: Callable[[], object]) -> bool:
        """Call *function* in the loop soon; false if the loop is closed. Any thread may call."""
        return post(self._loop, function)

    def call_in_loop(self, function: Callable[[], object]) -> None:
        """Call *function* here if this is the loop; from another loop, as `post` does."""
        if asyncio.get_running_loop() is self._loop:
            function()
        else:
            self.post(function)

    def call_later(self, seconds: float, function: Callable[[], object]) -> asyncio.TimerHandle:
        """Call *function* in the loop after *seconds*."""
        return self._loop.call_later(seconds, function)

    def start(self, listening: Coroutine[Any, Any, None], context: Context) -> asyncio.Task[None]:
        """Run one call of a listener as a task, which the end of the locator cancels."""
        task = self._loop.create_task(listening, context=context)
        self._listening.add(task)
        task.add_done_callback(self._listening.discard)
        return task

    async def end_listening(self) -> None:
        """Start no further call of a listener; cancel those in progress, except the caller's.

        Another loop does not wait for them: this one may have ended.
        """
        self.closed = True
        if asyncio.get_running_loop() is not self._loop:
            self.post(self._cancel_listening)
        elif running := self._cancel_listening():
            await asyncio.wait(running, timeout=self._seconds)

    def _cancel_listening(self) -> Collection[asyncio.Task[None]]:
        running = self._listening - {asyncio.current_task()}
        for task in running:
            task.cancel()
        return running

    async def _ask(
        self,
        request: Callable[[], Future[T]],
        turns: CallTurns,
        late: type[Kip30Error],
        until: float,
    ) -> T:
        if self.store.backend.is_blocking:
            threads = self._readers if turns is self._read_turns else self._workers
            source = await self.finish(threads.submit(request), late, until)
        else:
            source = request()
        try:
            result = await self._answered(source, late, until)
        except DefiniteError as error:
            if not isinstance(error, UnavailableError | ClosedError):
                turns.answered()
            raise
        turns.answered()
        return result

    async def _answered(
        self, source: Future[T], late: type[Kip30Error], until: float, *, shared: bool = False
    ) -> T:
        try:
            return await outcome(source, until - self._loop.time(), shared=shared)
        except LateError:
            raise self._late(late) from None

    def _late(self, late: type[Kip30Error]) -> Kip30Error:
        limit = self.store.context.operation_timeout_seconds
        return late(f"no answer from store {self.store.backend.name!r} in {limit:g} s")
