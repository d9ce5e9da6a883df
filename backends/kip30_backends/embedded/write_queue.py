"""The order in which the threads of one process write.

SQLite has one writer at a time and no queue: each thread that asks for the lock in vain sleeps and
asks again, so that with many threads some starve, a session's renewal among them. Here they queue,
and only the thread whose turn it is asks SQLite, in competition with other processes alone.

A signal handler can raise in the main thread, also while it leaves the queue. CPython runs handlers
where a Python function begins, after a call and at the end of a round of a loop. So the main thread
gives its turn up by an assignment (`Turn.over`), and other threads finish what it did not:

    turn = Turn()
    try:
        if queue.enter(turn, seconds):
            ...
    finally:
        turn.over = True  # first: no handler can run before it
        queue.leave(turn)
"""

import threading
from collections import deque
from time import monotonic

_LOOK_SECONDS = 0.05
"""How long a thread waits for each one ahead of it before it looks itself whose turn it is."""


class Turn:
    """One thread's place in a queue, used once.

    Attributes:
        over: Whether the thread has no more use for its place, in the queue or not.
        came: Held until the turn may have come; None unless the thread waits. Acquired by the
            thread, released by any.
    """

    # Defaults of the class: each write makes a turn, and nearly none waits.
    over = False
    came: "threading.Lock | None" = None


class WriteQueue:
    """Gives one thread at a time the turn to write, first come, first served. Thread-safe.

    A thread must not hold the lock of a connection while it waits here. A forked child needs a new
    queue: the threads that wait in this one, or have the turn, do not exist there.
    """

    def __init__(self) -> None:
        """Begin with no thread writing or waiting."""
        # Entered by `with` alone: a handler cannot raise between the acquisition of a lock of C
        # code and the block (CPython 3.11 to 3.13; 3.14 once python/cpython#148874 is fixed there).
        self._lock = threading.Lock()
        # The first one has the turn, unless it is over. A thread may be interrupted between any two
        # changes, so each method begins by making good what is left undone (`_pass_on`).
        self._line: deque[Turn] = deque()

    def try_enter(self, turn: Turn) -> bool:
        """Take the turn if no thread has it or waits for it; say whether that was so."""
        with self._lock:
            if self._line:
                self._pass_on()
                if self._line:
                    return False
            self._line.append(turn)
            return True

    def enter(self, turn: Turn, seconds: float, *, urgent: bool = False) -> bool:
        """Wait for the turn, up to *seconds*, before all others if *urgent*; say whether it came.

        Whether or not it came, and if this raises, *turn* must be ended as the module says.
        """
        came = turn.came = threading.Lock()
        with self._lock:
            came.acquire()
            if urgent:
                self._line.insert(1, turn)
            else:
                self._line.append(turn)
        end = monotonic() + seconds
        while ahead := self._ahead(turn):
            left = end - monotonic()
            if left <= 0:
                return False
            # Woken when the turn comes. The pauses are for a thread that was interrupted before it
            # could wake the next one. The longer the queue, the longer they are: one of its first
            # threads looks in time, and a thousand cost no more than a few.
            came.acquire(timeout=min(left, ahead * _LOOK_SECONDS))
        return True

    def leave(self, turn: Turn) -> None:
        """Pass the turn on to the next thread, or wait no longer; *turn* is over."""
        with self._lock:
            line = self._line
            if line and line[0] is turn:  # as almost always, so it is worth not searching
                line.popleft()
            elif turn in line:
                line.remove(turn)
            if line:
                self._pass_on()

    def _ahead(self, turn: Turn) -> int:
        """Return how many threads come before *turn*."""
        with self._lock:
            self._pass_on()
            return self._line.index(turn)

    def _pass_on(self) -> None:
        """Wake the first thread that still has a use for the turn."""
        line = self._line
        while line and line[0].over:
            line.popleft()
        came = line[0].came if line else None
        if came is not None and came.locked():
            came.release()
