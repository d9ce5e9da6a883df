"""A lock that many readers hold together, or one writer alone, over any store.

Its callers wait in a line: a reader until no writer is before it, a writer until it is the first.
So no caller waits for one that came later, and a steady stream of readers does not starve a writer.
"""

from collections.abc import Sequence

from typing_extensions import override

from kip30.driver.closeable import Closeable
from kip30.locator import PluginLocator
from kip30.names import check_id
from kip30.recipes.grips import Grip
from kip30.recipes.line import WaitingLine
from kip30.recipes.steps import Steps
from kip30.runtime.line_position import InLine, one_at

_READER, _WRITER = b"read", b"write"


def read_write_lock_group(name: str) -> str:
    """Return the group in which the callers of read-write lock *name* wait, and hold it.

    Raises:
        InvalidNameError: *name* is not a valid name, or has more than 231 bytes after escaping.
    """
    return check_id(f"kip30.read-write-lock/{check_id(name, 'lock')}", "lock")


def _last_writer(before: Sequence[InLine]) -> Sequence[InLine]:
    # Any member not known to be a reader counts as a writer: waiting for it does no harm.
    return [one for one in before if one.data != _READER][-1:]


class ReadWriteLockRequests:
    """Requests of a read-write lock, for a thread or an event loop."""

    def __init__(self, locator: PluginLocator, name: str) -> None:
        """Send nothing yet; see `ReadWriteLock`."""
        self.line: WaitingLine = WaitingLine.of(locator, read_write_lock_group(name))

    def read(self, timeout_seconds: float | None) -> Steps[Grip]:
        """Hold it with other readers; see `ReadWriteLock.read`."""
        return self.line.grip(_READER, _last_writer, self.line.deadline(timeout_seconds))

    def write(self, timeout_seconds: float | None) -> Steps[Grip]:
        """Hold it alone; see `ReadWriteLock.write`."""
        return self.line.grip(_WRITER, one_at(1), self.line.deadline(timeout_seconds))


class ReadWriteLock(Closeable):
    """A lock named *name*, which readers hold together and a writer holds alone. Thread-safe.

    Callers acquire it in the order of their arrival at the store, successive readers together: a
    reader waits for all writers that came before it, a writer for all callers before it. A client
    that does not answer delays those behind it until its session ends.

    It is not reentrant, and a reader cannot become a writer: a caller that holds it and waits for
    it deadlocks with itself. The token of a grip is greater than that of every earlier one that
    excluded it. It is no fence: the store does not compare it. Data that a former holder must not
    write is written under a `Lock`.

    Every method may raise `ClosedError` or `LifecycleError`; then nothing was sent.
    """

    def __init__(self, locator: PluginLocator, name: str) -> None:
        """Create a lock object for the store of *locator*; nothing is sent.

        Args:
            locator: A started locator.
            name: The lock's name: the same for all callers. Names of a `Lock` are separate.

        Raises:
            InvalidNameError: *name* is not a valid name, or has more than 231 bytes after escaping.
        """
        self._requests = ReadWriteLockRequests(locator, name)

    def read(self, timeout_seconds: float | None = None) -> Grip:
        """Wait until it is held, perhaps with other readers. Usable as a context manager.

        Keeps waiting while the store does not answer. With a *timeout_seconds* of 0 it
        makes one attempt, and ends with the answer to it, or by the operation timeout. A
        caller that tries is in the line for that moment, and may delay others for as long.

        Raises:
            NotAcquiredError: Not held within *timeout_seconds*. The request is withdrawn.
            UsageError: *timeout_seconds* is negative or not a number. Nothing was sent.
            AuthenticationError, StoreError: The store refuses it, or a record in the line
                cannot be read. Nothing is held.
        """
        return self._requests.line.take(self._requests.read(timeout_seconds))

    def write(self, timeout_seconds: float | None = None) -> Grip:
        """Wait until it is held alone; as `read`, and with its errors."""
        return self._requests.line.take(self._requests.write(timeout_seconds))

    @override
    def close(self) -> None:
        """Release what is held through this object, and end all that wait. Idempotent.

        A grip whose ``with`` block another thread has not left yet is released in the store when
        that is left. A caller that waits gets `LifecycleError`. The locator stays open.
        """
        self._requests.line.close()
