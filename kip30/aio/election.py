"""`kip30.LeaderElection` for asyncio. No candidate holds a thread while it waits."""

import asyncio
import math
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager, nullcontext, suppress
from functools import partial
from typing import Generic, TypeVar

from kip30.aio.async_handle import AsyncHandle
from kip30.aio.awaiting import LateError, outcome
from kip30.aio.bridge import Bridge, task_runner
from kip30.aio.leased import AsyncCounterparts, AsyncLeadership, CancelledOnLoss
from kip30.aio.listening import AsyncListener
from kip30.driver.records import Snapshot
from kip30.election import (
    Leader,
    LeaderChange,
    LeaderElection,
    first_try_seconds,
    waiting_seconds,
)
from kip30.errors import DefiniteError, NotElectedError, OutcomeUnknownError
from kip30.runtime.base_handle import LoopHandle
from kip30.runtime.candidacy import Candidacy, Leadership, LeadershipListener
from kip30.runtime.future_callbacks import check_callable
from kip30.runtime.term_work import acting_as

T = TypeVar("T")

_LONGEST_WAIT = 1.0  # a loop's timers are paused while the system is suspended


class ElectionRequests(LeaderElection[T], LoopHandle):
    """The requests of a `kip30.LeaderElection`, without the waiting."""

    def check(self) -> None:
        """Raise unless this may be used here and now."""
        self._check()

    def state(self) -> Future[Snapshot]:
        """Ask for the leader."""
        return self._state()

    def leader(self, snapshot: Snapshot) -> Leader[T] | None:
        """Return the leader in *snapshot*."""
        return self._leader(snapshot)

    def candidacy(  # noqa: PLR0913  as `nominate`
        self,
        candidate: str,
        data: T,
        on_elected: LeadershipListener | None = None,
        on_lost: LeadershipListener | None = None,
        *,
        step_down_seconds: float = 0.0,
        priority: int | None = None,
    ) -> Candidacy:
        """Return a nomination that is not made yet."""
        return self._candidacy(
            candidate,
            data,
            on_elected,
            on_lost,
            step_down_seconds=step_down_seconds,
            priority=priority,
        )

    def add(self, candidacy: Candidacy, *, alone: bool = False) -> Candidacy:
        """Make the nomination; see `kip30.runtime.campaign.Campaign.add`."""
        return self._campaign.add(candidacy, alone=alone)

    def withdraw(self, candidacy: Candidacy) -> Future[None]:
        """End the nomination, locally at once; also before it is made."""
        return self._campaign.withdraw(candidacy)

    def resigned(self, candidate: str) -> Future[None] | None:
        """Withdraw *candidate*, locally at once; the store confirms it by the future.

        None if that waits for the caller.
        """
        return self._resigned(candidate)

    def elected(self, candidate: str) -> Future[Leadership | None]:
        """Return a future of the term of *candidate*; see `Campaign.elected`."""
        return self._campaign.elected(candidate)


class AsyncLeaderElection(AsyncHandle[ElectionRequests[T]], Generic[T]):
    """`kip30.LeaderElection`, awaited: with the same promises, arguments and errors."""

    def __init__(self, bridge: Bridge, election: ElectionRequests[T]) -> None:
        """Use `AsyncPluginLocator.leader_election` instead."""
        self._counterparts: AsyncCounterparts[Leadership, AsyncLeadership] = AsyncCounterparts(
            AsyncLeadership, bridge
        )
        super().__init__(bridge, election, self._counterparts)
        self._place = "service", election.service
        self._seconds = bridge.store.context.operation_timeout_seconds

    @property
    def handle(self) -> LeaderElection[T]:
        """The same as seen from a thread, for `kip30.serving.Health`; `close` closes it."""
        return self._handle

    async def get_leader(self) -> Leader[T] | None:
        """See `kip30.LeaderElection.get_leader`."""
        return self._handle.leader(await self._bridge.read(self._handle.state))

    async def nominate(  # noqa: PLR0913  as those of `kip30.LeaderElection`
        self,
        candidate: str,
        data: T,
        *,
        on_elected: AsyncListener[AsyncLeadership] | None = None,
        on_lost: AsyncListener[AsyncLeadership] | None = None,
        step_down_seconds: float = 0.0,
        priority: int | None = None,
    ) -> bool:
        """See `kip30.LeaderElection.nominate`. The callbacks are called in the loop.

        If the awaiting task is cancelled, the candidate may be nominated now or later: `resign`.
        """
        check_callable(on_elected=on_elected, on_lost=on_lost)
        await self._bridge.begin()
        candidacy = self._handle.candidacy(
            candidate,
            data,
            self._listeners.callback(on_elected, self._counterparts.of),
            self._listeners.callback(on_lost, self._counterparts.of),
            step_down_seconds=step_down_seconds,
            priority=priority,
        )
        return (await self._attempted(partial(self._handle.add, candidacy))).leads()

    async def resign(self, candidate: str) -> None:
        """See `kip30.LeaderElection.resign`. It takes effect locally even if this is cancelled."""
        term: Leadership | None = None

        def resigning() -> Future[None] | None:
            nonlocal term
            term = self._handle.leadership(candidate)
            with acting_as(task_runner()):
                return self._handle.resigned(candidate)

        try:
            resigned = await self._bridge.give_back(resigning)
            if resigned is not None:
                await self._bridge.shared(resigned, OutcomeUnknownError)
        finally:  # not before: this may cancel the block that calls
            self._counterparts.note_end(term)

    async def wait_elected(
        self, candidate: str, timeout_seconds: float | None = None
    ) -> AsyncLeadership | None:
        """See `kip30.LeaderElection.wait_elected`. Any number may wait; none holds a thread."""
        self._handle.check()
        clock = self._bridge.store.context.clock
        until = clock.now() + waiting_seconds(timeout_seconds)
        while True:
            self._bridge.check()
            left = max(0.0, min(until - clock.now(), _LONGEST_WAIT))
            try:
                term = await outcome(
                    self._handle.elected(candidate), None if timeout_seconds is None else left
                )
            except LateError:
                if clock.now() >= until:
                    return None
                continue
            if term is None or term.is_valid():
                return None if term is None else self._counterparts.of(term)

    def candidates(self) -> dict[str, AsyncLeadership | None]:
        """See `kip30.LeaderElection.candidates`; not a coroutine: it returns at once."""
        self._bridge.check()
        return {
            name: None if term is None else self._counterparts.of(term)
            for name, term in self._handle.candidates().items()
        }

    def leadership(self, candidate: str) -> AsyncLeadership | None:
        """See `kip30.LeaderElection.leadership`; not a coroutine: it returns at once."""
        self._bridge.check()
        term = self._handle.leadership(candidate)
        return None if term is None else self._counterparts.of(term)

    @asynccontextmanager
    async def lead(  # noqa: PLR0913  as above
        self,
        candidate: str,
        data: T,
        *,
        timeout_seconds: float | None = None,
        step_down_seconds: float = 0.0,
        priority: int | None = None,
        cancel_on_loss: bool = True,
    ) -> AsyncGenerator[AsyncLeadership]:
        """Nominate *candidate*, wait until it leads, and resign at the end of the block.

        The block is cancelled as soon as the leadership is lost, by the clock or by an event,
        whichever comes first. A task that is cancelled, in the block or waiting to be elected, has
        resigned when it ends: locally before anything else, in the store by the operation timeout.

        Args:
            candidate: An id of the caller's choice.
            data: What `get_leader` shows of it while it leads.
            timeout_seconds: As for `kip30.LeaderElection.lead`.
            step_down_seconds: The same.
            priority: The same.
            cancel_on_loss: Whether the block is cancelled when the leadership is lost. If not,
                check ``leadership.lost`` or ``check()``, and write with ``fence=leadership``.

        Raises:
            LeadershipLostError: The block was cancelled because the leadership was lost.
            NotElectedError: Not elected within *timeout_seconds*. The candidate has resigned.
            AlreadyNominatedError: It is nominated on this handle, perhaps by another `lead`.
            UsageError: A number of seconds is negative or not a number, or *priority* is none, or
                has no effect. Nothing was sent.
        """
        first_try = first_try_seconds(timeout_seconds, self._seconds)
        await self._bridge.begin()
        candidacy = self._handle.candidacy(
            candidate, data, step_down_seconds=step_down_seconds, priority=priority
        )
        leadership = await self._elected(candidacy, first_try, timeout_seconds)
        try:
            with leadership.working(task_runner()):
                async with CancelledOnLoss(leadership) if cancel_on_loss else nullcontext():
                    yield leadership
        finally:
            try:
                await self._withdrawn(candidacy)
            finally:  # also if the task is cancelled meanwhile
                leadership.note_end()

    def share_lease(self, leadership: AsyncLeadership) -> int:
        """See `kip30.LeaderElection.share_lease`; not a coroutine: it returns at once."""
        self._bridge.check()
        return self._handle.share_lease(leadership.held)

    async def add_listener(
        self, listener: AsyncListener[LeaderChange[T]], *, initial: bool = False
    ) -> None:
        """See `kip30.LeaderElection.add_listener`."""
        add = partial(self._handle.add_listener, initial=initial)
        await self._listeners.add(self._place, listener, add, self._handle.remove_listener)

    async def remove_listener(self, listener: AsyncListener[LeaderChange[T]]) -> None:
        """See `kip30.LeaderElection.remove_listener`."""
        await self._listeners.remove(self._place, listener, self._handle.remove_listener)

    async def _elected(
        self, candidacy: Candidacy, first_try: float, timeout_seconds: float | None
    ) -> AsyncLeadership:
        """Nominate and wait for a term; if there is none, the candidate has resigned."""
        try:
            await self._attempted(partial(self._handle.add, candidacy, alone=True), first_try)
            leadership = await self.wait_elected(candidacy.candidate, timeout_seconds)
        except BaseException:
            await self._withdrawn(candidacy)
            raise
        if leadership is None:
            self._handle.withdraw(candidacy)
            self._bridge.check()  # the error of a closed locator says more
            service = self._handle.service
            raise NotElectedError(f"{candidacy.candidate!r} was not elected to lead {service!r}")
        return leadership

    async def _attempted(
        self, add: Callable[[], Candidacy], seconds: float = math.inf
    ) -> Candidacy:
        """Nominate by *add*, and await the first attempt for up to *seconds*, all in one turn."""
        async with self._bridge.turns as until:
            kept = await self._bridge.asked(add, OutcomeUnknownError, until)
            left = min(seconds, until - asyncio.get_running_loop().time())
            try:
                await outcome(kept.tried, max(0.0, left), shared=True)
                self._bridge.turns.answered()
            except LateError:
                pass
            finally:
                kept.first_attempt_done()
        return kept

    async def _withdrawn(self, candidacy: Candidacy) -> None:
        """Withdraw *candidacy*, locally at once, and await the store's confirmation."""
        if self._bridge.store.is_foreign():
            return
        with suppress(DefiniteError, OutcomeUnknownError):
            resigned = await self._bridge.give_back(partial(self._handle.withdraw, candidacy))
            await self._bridge.shared(resigned, OutcomeUnknownError)
