"""Short blocks of work that no fork may interrupt.

A child that is forked while another thread opens a connection or a lock file inherits a descriptor,
a mutex or a lock that nothing in the child knows of. Such work is done inside ``with held_off:``;
the hooks in `forks` wait for its end before the process forks.
"""

import threading


class HeldOff:
    """A block that delays forks of this process. Re-entrant: a finaliser may enter it again.

    Nothing inside may wait for another thread or another process, because forks wait for it.
    """

    def __init__(self) -> None:
        """Delay nothing yet."""
        self._lock = threading.RLock()
        # How often the thread that owns the lock has entered. Only that thread reads or writes it.
        self._depth = 0

    def __enter__(self) -> None:
        """Delay forks from here on."""
        self._lock.acquire()
        self._depth += 1

    def __exit__(self, *_error: object) -> None:
        """Let forks go on."""
        self._depth -= 1
        self._lock.release()

    def acquire(self, timeout: float) -> bool:
        """Keep every thread out, this one too; false if one was inside for *timeout* seconds.

        False at once if it is this thread: a signal handler forks in the middle of a block.
        """
        if not self._lock.acquire(timeout=timeout):
            return False
        if self._depth:
            self._lock.release()
            return False
        return True

    def release(self) -> None:
        """Undo a successful `acquire`."""
        self._lock.release()

    def renew(self) -> None:
        """In a forked child: forget the threads of the parent."""
        self._lock = threading.RLock()
        self._depth = 0


held_off = HeldOff()
