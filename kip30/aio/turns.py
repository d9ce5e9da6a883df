"""The turns of an event loop's calls: a limited number at once, and in one iteration of the loop.

A request costs the loop time when it begins, and its deadline runs from then on. A thousand that
begin together would block the loop, and the last of them would be late on a store that is well.
"""

import asyncio
import math
from collections import deque

from kip30.errors import UnavailableError


class CallTurns:
    """Admits a number of calls at once, first come, first served. For the loop's thread only.

    An async context manager for each call: entering it waits for a turn, and returns the moment,
    by the loop's clock, by which the call must end. That is the operation timeout after the call
    came, or after the store last answered one of these calls if that is later. So a queue lasts
    as long as the store answers, and no longer than one operation timeout once it does not.
    """

    def __init__(self, most: int, seconds: float, limit_seconds: float) -> None:
        """Admit up to *most* calls, each for *seconds*; the errors name *limit_seconds*."""
        self._loop = asyncio.get_running_loop()
        self._free = most
        self._seconds = seconds
        self._limit_seconds = limit_seconds
        # With the moment at which each came. Those that gave up are done, and are skipped.
        self._queue: deque[tuple[float, asyncio.Future[None]]] = deque()
        self._answered = -math.inf  # when the store last answered one of the calls
        self._timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> float:
        """Wait for a turn.

        Raises:
            UnavailableError: There was none in time. The call has not begun.
        """
        came = self._loop.time()
        if self._free:  # then no call is waiting
            self._free -= 1
        else:
            await self._admitted(came)
        return self._until(came)

    async def __aexit__(self, *_error: object) -> None:
        """Pass the turn on."""
        self._pass_on()

    def answered(self) -> None:
        """Note that the store has answered a call: those in the queue may wait for longer.

        Only an answer counts. A call that times out, or is refused here, also ends while the store
        is silent.
        """
        self._answered = self._loop.time()

    async def _admitted(self, came: float) -> None:
        turn = self._loop.create_future()
        self._queue.append((came, turn))
        if self._timer is None:
            self._timer = self._loop.call_at(self._until(came), self._refuse_late)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled() and turn.exception() is None:
                self._pass_on()  # it came at the same moment
            raise

    def _until(self, came: float) -> float:
        return max(came, self._answered) + self._seconds

    def _pass_on(self) -> None:
        while self._queue:
            _, turn = self._queue.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1

    def _refuse_late(self) -> None:
        """Refuse those that have waited for too long, and look again when the next has."""
        self._timer = None
        while self._queue:
            came, turn = self._queue[0]
            if not turn.done() and self._until(came) > self._loop.time():
                self._timer = self._loop.call_at(self._until(came), self._refuse_late)
                return
            self._queue.popleft()
            if not turn.done():
                turn.set_exception(UnavailableError(self._refusal()))

    def _refusal(self) -> str:
        return (
            f"the calls before this one had no answer for {self._limit_seconds:g} s:"
            " nothing was sent"
        )


class IterationLimit:
    """Admits a number of calls in each iteration, first come, first served; the others queue.

    To begin a call takes some tens of microseconds: a thousand of them in one iteration would block
    the loop. For the loop's thread only.
    """

    def __init__(self, most: int) -> None:
        """Admit up to *most* calls in each iteration of the running loop."""
        self._loop = asyncio.get_running_loop()
        self._most = most
        self._left = most  # once it is less, `_renew` is called in the next iteration
        self._queue: deque[asyncio.Future[None]] = deque()

    def admits(self) -> bool:
        """Return whether a call may begin in this iteration; it counts then."""
        if not self._left:
            return False
        if self._left == self._most:
            self._loop.call_soon(self._renew)
        self._left -= 1
        return True

    async def admitted(self) -> None:
        """Wait for an iteration in which a call may begin, behind those that wait."""
        turn = self._loop.create_future()
        self._queue.append(turn)
        await turn

    def _renew(self) -> None:
        self._left = self._most
        while self._queue and self._left:
            turn = self._queue.popleft()
            if not turn.done():  # a task that was cancelled waits no longer
                turn.set_result(None)
                self._left -= 1
        if self._left < self._most:
            # They begin in the next iteration, and nothing overtakes them.
            self._left = 0
            self._loop.call_soon(self._renew)
