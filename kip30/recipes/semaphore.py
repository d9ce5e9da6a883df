"""A number of permits that all clients share, over any store.

Callers wait in a line, until those before them leave enough permits. The store keeps the number of
permits in a record, so that clients that disagree about it find out. A client reads the record
once, and each member of the line names the number, too: so a client that goes on with a former
number finds out without another round trip.
"""

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from typing_extensions import override

from kip30.codecs import JSON
from kip30.driver.closeable import Closeable
from kip30.errors import KeyExistsError, NotAcquiredError, UsageError
from kip30.locator import PluginLocator
from kip30.names import check_id
from kip30.recipes.argument_checks import positive
from kip30.recipes.grips import Grip
from kip30.recipes.line import WaitingLine
from kip30.recipes.steps import Steps
from kip30.runtime.line_position import InLine, Select

_REQUEST = re.compile(rb"([0-9]{1,1000})(?:/([0-9]{1,1000}))?")


def semaphore_group(name: str) -> str:
    """Return the group in which the callers of semaphore *name* wait, and the namespace of it.

    Raises:
        InvalidNameError: *name* is not a valid name, or has more than 237 bytes after escaping.
    """
    return check_id(f"kip30.semaphore/{check_id(name, 'semaphore')}", "semaphore")


class _Request(NamedTuple):
    """The data of a member of the line: it requests *wanted* of *total* permits."""

    wanted: int
    total: int

    def data(self) -> bytes:
        """Return the stored form."""
        return b"%d/%d" % self


def _request_in(data: bytes, total: int) -> _Request:
    """Return the request in *data*, of a member in the line of a semaphore of *total* permits.

    An older kip30 writes how many it wants, and not of how many. Data that is no request counts as
    one of all permits: waiting for it does no harm.
    """
    found = _REQUEST.fullmatch(data)
    if found is None:
        return _Request(total, total)
    return _Request(int(found[1]), int(found[2] or total))


def _first_beyond(own: _Request, differs: Callable[[int], UsageError]) -> Select:
    """Select the last members that must leave before the permits of *own* can be free.

    They are as few as possible: while all of them stay, nothing changes for the caller. If one
    names another total, what *differs* makes of that is raised.
    """

    def select(before: Sequence[InLine]) -> Sequence[InLine]:
        requests = [_request_in(one.data, own.total) for one in before]
        for request in requests:
            if request.total != own.total:
                raise differs(request.total)
        left = own.total - own.wanted
        for number, request in enumerate(reversed(requests), 1):
            left -= request.wanted
            if left < 0:
                return before[-number:]
        return ()

    return select


class SemaphoreRequests:
    """Requests of a semaphore, for a thread or an event loop."""

    def __init__(self, locator: PluginLocator, name: str, permits: int) -> None:
        """Send nothing yet; see `Semaphore`."""
        group = semaphore_group(name)
        self.line: WaitingLine = WaitingLine.of(locator, group)
        self._permits = positive(permits, "permits")
        self._record = f"{group}/permits"
        self._storage = locator.storage(JSON)
        # Whether the record was seen with the same number, and no member with another one since.
        self._is_agreed = False

    def acquire(self, permits: int, timeout_seconds: float | None) -> Steps[Grip]:
        """Hold some permits; see `Semaphore.acquire`."""
        self.line.check()
        wanted = positive(permits, "permits")
        if wanted > self._permits:
            raise UsageError(f"{self.line.group!r} has {self._permits} permits, not {wanted}")
        deadline = self.line.deadline(timeout_seconds)
        if not self._is_agreed:
            agreed: int = yield from self.line.answered(self._agreed, deadline)
            if agreed != self._permits:
                raise self._differs(agreed, "in the store")
            self._is_agreed = True
        own = _Request(wanted, self._permits)
        select = _first_beyond(own, lambda total: self._differs(total, "for another client"))
        try:
            return (yield from self.line.grip(own.data(), select, deadline))
        except UsageError:
            self._is_agreed = False
            raise

    def _agreed(self) -> int:
        """Return the number in the store, which is this one's if there was none."""
        found = self._storage.get(self._record)
        if found is None:
            try:
                self._storage.put(self._record, self._permits)
            except KeyExistsError:
                return self._agreed()
            return self._permits
        agreed: int = found.value
        return agreed

    def _differs(self, found: object, where: str) -> UsageError:
        return UsageError(
            f"{self.line.group!r} has {found!r:.60} permits {where}, and here {self._permits}: all"
            f" clients must name the same number. To change it, delete {self._record!r} while no"
            " client uses the semaphore"
        )


class Semaphore(Closeable):
    """A number of permits, named *name*, which the callers of all clients share. Thread-safe.

    Permits are acquired in the order of arrival at the store: a caller that wants many is not
    passed by those that came later and want few. A client that does not answer delays those behind
    it until its session ends.

    The first client writes into the store how many permits there are, and all must name that
    number. The token of a grip is greater than that of every earlier one that could not be held
    together with it. It is no fence: the store does not compare it.

    Every method may raise `ClosedError` or `LifecycleError`; then nothing was sent.
    """

    def __init__(self, locator: PluginLocator, name: str, permits: int) -> None:
        """Create a semaphore object for the store of *locator*; nothing is sent.

        Args:
            locator: A started locator.
            name: The semaphore's name: the same for all callers that share the permits.
            permits: How many there are in all, over all clients.

        Raises:
            InvalidNameError: *name* is not a valid name, or has more than 237 bytes after escaping.
            UsageError: *permits* is not a whole number from 1 on.
        """
        self._requests = SemaphoreRequests(locator, name, permits)

    def acquire(self, permits: int = 1, timeout_seconds: float | None = None) -> Grip:
        """Wait until *permits* are held, and return their grip. Usable as a context manager.

        All are acquired at once, and released together. While the store does not answer, this keeps
        waiting. With a *timeout_seconds* of 0 it makes one attempt, and ends with the answer to it,
        or by the operation timeout. A caller that tries is in the line for that moment, and may
        delay others for as long.

        Raises:
            NotAcquiredError: Not held within *timeout_seconds*. The request is withdrawn.
            UsageError: There are never that many, or the store or a client in the line has another
                number of permits than this object; *timeout_seconds* is negative or not a number.
                Nothing is held.
            AuthenticationError, StoreError: The store refuses it, or a record in the line
                cannot be read. Nothing is held.
        """
        return self._requests.line.take(self._requests.acquire(permits, timeout_seconds))

    def try_acquire(self, permits: int = 1) -> Grip | None:
        """Return the grip if *permits* are free now and nothing waits; else None. See `acquire`."""
        try:
            return self.acquire(permits, 0)
        except NotAcquiredError:
            return None

    @override
    def close(self) -> None:
        """Release what is held through this object, and end all that wait. Idempotent.

        A grip whose ``with`` block another thread has not left yet is released in the store when
        that is left. A caller that waits gets `LifecycleError`. The locator stays open.
        """
        self._requests.line.close()
