"""Limits how many calls begin in one iteration of an event loop.

To begin a call takes some tens of microseconds. A thousand calls that begin in one iteration would
block the loop for a tenth of a second.
"""

import asyncio
from collections import deque


class IterationLimit:
    """Admits a number of calls in each iteration, first come, first served; the others queue.

    For the loop's thread only.
    """

    def __init__(self, most: int) -> None:
        """Admit up to *most* calls in each iteration of the running loop."""
        self._loop = asyncio.get_running_loop()
        self._most = most
        self._left = most
        self._queue: deque[asyncio.Future[None]] = deque()
        self._is_counting = False  # whether `_renew` is called in the next iteration

    def admits(self) -> bool:
        """Return whether a call may begin in this iteration; it counts then."""
        if not self._left:
            return False
        self._left -= 1
        self._count()
        return True

    async def admitted(self) -> None:
        """Wait for an iteration in which a call may begin, behind those that wait."""
        turn = self._loop.create_future()
        self._queue.append(turn)
        await turn

    def _count(self) -> None:
        if not self._is_counting:
            self._is_counting = True
            self._loop.call_soon(self._renew)

    def _renew(self) -> None:
        self._is_counting = False
        self._left = self._most
        while self._queue and self._left:
            turn = self._queue.popleft()
            if not turn.done():  # a task that was cancelled waits no longer
                turn.set_result(None)
                self._left -= 1
        if self._left < self._most:
            # They begin in the next iteration, and nothing overtakes them.
            self._left = 0
            self._count()
