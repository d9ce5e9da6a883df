"""The order in which the threads of one process write.

SQLite has one writer at a time and no queue: each thread that asks for the lock in vain sleeps and
asks again, so that with many threads some starve, a session's renewal among them. Here they queue,
and only the thread whose turn it is asks SQLite, in competition with other processes alone.
"""

import threading
from collections import deque


class WriteQueue:
    """Gives one thread at a time the turn to write, first come, first served. Thread-safe.

    A thread must not hold the lock of a connection while it waits here. A forked child needs a new
    queue: the threads that wait in this one, or have the turn, do not exist there.
    """

    def __init__(self) -> None:
        """Begin with no thread writing or waiting."""
        self._lock = threading.Lock()
        # Whether a thread has the turn. Never false while any waits: a turn is passed on directly,
        # so that no thread that comes later can take it first.
        self._taken = False
        # One for each waiting thread, released when its turn comes.
        self._waiting: deque[threading.Lock] = deque()

    def try_enter(self) -> bool:
        """Take the turn if it is free; say whether it was."""
        with self._lock:
            if self._taken:
                return False
            self._taken = True
            return True

    def enter(self, seconds: float, *, urgent: bool = False) -> bool:
        """Wait for the turn, up to *seconds*, before all others if *urgent*; say whether it came.

        A thread that got the turn must call `leave`, and may not enter again before.
        """
        turn = self._queued(urgent=urgent)
        try:
            if turn.acquire(timeout=max(0.0, seconds)):
                return True
        except BaseException:  # such as KeyboardInterrupt
            if not self._withdraw(turn):
                self.leave()
            raise
        return not self._withdraw(turn)

    def leave(self) -> None:
        """Pass the turn on to the next thread."""
        with self._lock:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._taken = False

    def _queued(self, *, urgent: bool) -> threading.Lock:
        """Return what this thread can acquire once it has the turn."""
        turn = threading.Lock()
        with self._lock:
            if not self._taken:
                self._taken = True
                return turn
            turn.acquire()
            if urgent:
                self._waiting.appendleft(turn)
            else:
                self._waiting.append(turn)
        return turn

    def _withdraw(self, turn: threading.Lock) -> bool:
        """Stop waiting for *turn*; false if it has come meanwhile."""
        with self._lock:
            if turn not in self._waiting:
                return False
            self._waiting.remove(turn)
            return True
