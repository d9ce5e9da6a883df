"""The part of a process in elections, from memory: candidates, terms, and the store's last answer.

A leader knows by the renewals of its lease when the store last answered. A candidate that waits
holds a place in a line on most stores, of which only its driver knows the renewals, and on
Cassandra it holds nothing. So `StoreSight` reads a key now and then while there is no term.
"""

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, NamedTuple

from typing_extensions import override

from kip30.codecs import BYTES
from kip30.driver import Context
from kip30.driver.closeable import Closeable
from kip30.driver.kit import fork_safety
from kip30.driver.kit.thread_start import start_eventually
from kip30.errors import AuthenticationError, ClosedError, Kip30Error, LifecycleError
from kip30.locator import PluginLocator
from kip30.runtime.candidacy import Leadership

log: logging.Logger = logging.getLogger(__name__)

_READ_KEY = "kip30-probe"
"""A key to read. It need not exist: the answer counts, and not the value."""
_READ_PART = 1 / 3
_RENEWAL_PART = 2 / 3
"""The part of a session timeout that may pass without a renewal before a read is due.

Drivers renew at least every third of it.
"""
_UNSTARTED_SECONDS = 0.2
_JOIN_SECONDS = 1.0


class Nomination(NamedTuple):
    """A candidate of this process.

    Attributes:
        service: The service.
        candidate: Its id; None: no candidate of this process is nominated.
        is_nominated: Whether it may be elected.
        term: The term, if it leads.
    """

    service: str
    candidate: str | None
    is_nominated: bool
    term: Leadership | None


Nominations = Callable[[], Iterable[Nomination]]
"""Returns the candidates of this process as of now, without waiting."""


class ServiceState(NamedTuple):
    """The part of this process in the election of one service, as of one moment.

    Attributes:
        service: The service.
        candidate: The id of the candidate; None: none is nominated.
        role: ``leader`` while its term is valid by the clock of the lease; ``replica`` if it is
            nominated, does not lead, and the store has answered within a session timeout; else
            None.
        epoch: The epoch of the term.
        since: When this process learned of its election, in seconds since 1970.
        seconds_left: Until the term ends, unless the lease is renewed.
        store: The name of the store; None: it was not opened yet, or is closed.
        last_seen: When the store last answered, in seconds since 1970.
    """

    service: str
    candidate: str | None
    role: Literal["leader", "replica"] | None
    epoch: int | None
    since: float | None
    seconds_left: float | None
    store: str | None
    last_seen: float | None

    @property
    def record(self) -> dict[str, Any]:
        """The same for JSON, with times to the millisecond."""
        return {
            name: round(value, 3) if isinstance(value, float) else value
            for name, value in self._asdict().items()
        }


class ServiceStates(Closeable):
    """Composes the states of services. Thread-safe."""

    def __init__(self, locator: PluginLocator, nominations: Nominations) -> None:
        """Watch the store of *locator*, which may be started later, until `close`."""
        self._locator = locator
        self._nominations = nominations
        self._sight = StoreSight(locator, self._renewed_at)

    def read(self) -> Sequence[ServiceState]:
        """Return the states as of now. Sends nothing, and never waits for the store."""
        try:
            context, store = self._locator.context, self._locator.backend.name
        except Kip30Error:  # it was not opened yet, or is closed
            return [_state(one, None, None, -math.inf) for one in self._nominations()]
        seen_at = self._sight.seen_at()
        return [_state(one, context, store, seen_at) for one in self._nominations()]

    @override
    def close(self) -> None:
        """Watch the store no longer."""
        self._sight.close()

    def _renewed_at(self) -> float:
        terms = (one.term for one in self._nominations())
        return max((term.lease.renewed_at for term in terms if term is not None), default=-math.inf)


class StoreSight(Closeable):
    """Finds out when an open store last answered. Thread-safe."""

    def __init__(self, locator: PluginLocator, renewed_at: Callable[[], float]) -> None:
        """Read on a thread of its own while *renewed_at* returns no recent time of the lease clock.

        It returns minus infinity without a lease.
        """
        self._locator = locator
        self._renewed_at = renewed_at
        # When a read was last answered, by the lease clock. Written by the thread alone.
        self._read_at = -math.inf
        # The last renewal that was looked at. It outlasts its lease.
        self._last_renewal = -math.inf
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="kip30-store-sight", daemon=True)
        start_eventually(self._thread)
        fork_safety.register(self)

    def seen_at(self) -> float:
        """Return when the store last answered, by the lease clock; minus infinity if it never has.

        Its last answer may be later, by less than a session timeout.
        """
        self._last_renewal = max(self._last_renewal, self._renewed_at())
        return max(self._read_at, self._last_renewal)

    @override
    def close(self) -> None:
        """Read no more. A read that is under way ends by the operation timeout."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join(_JOIN_SECONDS)

    def abandon(self) -> None:
        """In a forked child, which has no such thread: note that this is closed."""
        self._closing = threading.Event()  # a thread of the parent may hold the lock of the former
        self._closing.set()

    def _watch(self) -> None:
        pause = 0.0
        while not self._closing.wait(pause):
            try:
                pause = self._look()
            except ClosedError:
                return
            except LifecycleError:  # not started yet
                pause = _UNSTARTED_SECONDS

    def _look(self) -> float:
        """Read if that is due; return the pause until the next look, in seconds.

        Raises:
            ClosedError, LifecycleError: The store is not open.
        """
        context = self._locator.context
        timeout, now = context.session_timeout_seconds, context.clock.now()
        self.seen_at()
        next_read, next_renewal = _READ_PART * timeout, _RENEWAL_PART * timeout
        due = max(self._read_at + next_read, self._last_renewal + next_renewal)
        if now < due:
            return due - now
        try:
            self._locator.storage(BYTES).get(_READ_KEY)
        except (ClosedError, LifecycleError):
            raise
        except AuthenticationError:
            pass  # credentials for some keys alone may not read this one, which is an answer, too
        except Kip30Error as error:
            log.debug("the store was not seen: %s", error)
            return _READ_PART * timeout
        self._read_at = context.clock.now()
        return _READ_PART * timeout


def _state(
    one: Nomination, context: Context | None, store: str | None, seen_at: float
) -> ServiceState:
    ago = math.inf if context is None else context.clock.now() - seen_at
    last_seen = None if math.isinf(ago) else time.time() - ago
    term = one.term
    # The one look at the clock of the lease that decides.
    left = 0.0 if term is None else term.remaining_seconds()
    if term is not None and left > 0:
        return ServiceState(
            one.service, one.candidate, "leader", term.epoch, term.since, left, store, last_seen
        )
    is_seen = context is not None and ago < context.session_timeout_seconds
    role: Literal["replica"] | None = "replica" if one.is_nominated and is_seen else None
    return ServiceState(one.service, one.candidate, role, None, None, None, store, last_seen)
