"""Short blocks of work that no fork may interrupt.

A child that is forked while another thread opens a connection or a lock file inherits a descriptor,
a mutex or a lock that nothing in the child knows of. Such work is done inside
``with held_off.lock:``; the hooks in `forks` wait for its end before the process forks.
"""

import threading


class HeldOff:
    """What delays forks of this process.

    Attributes:
        lock: Held inside a block. Re-entrant: a finaliser may enter it again. Nothing inside may
            wait for another thread or another process, because forks wait for it. A lock of C code
            and no context manager of Python's: a signal handler can raise as soon as a Python
            function has begun or a call has returned, and would leave the lock taken.
    """

    def __init__(self) -> None:
        """Delay nothing yet."""
        self.lock = threading.RLock()

    def is_inside(self) -> bool:
        """Say whether this thread is inside a block."""
        try:
            threading.Condition(self.lock).notify()
        except RuntimeError:
            return False
        return True

    def is_free(self) -> bool:
        """Say whether no thread is inside a block, without waiting."""
        if self.is_inside() or not self.lock.acquire(blocking=False):
            return False
        self.lock.release()
        return True

    def renew(self) -> None:
        """In a forked child: forget the threads of the parent."""
        self.lock = threading.RLock()


held_off = HeldOff()
