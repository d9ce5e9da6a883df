"""The lease of a backend: granted for the first claim, renewed until closed."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import NamedTuple, TypeVar

from kip30.driver.contract import Context
from kip30.driver.kit.blocking_calls import BlockingCalls
from kip30.driver.kit.byte_store.interface import ByteStore, LeaseGoneError
from kip30.driver.kit.session import CurrentSession, Renewal
from kip30.driver.kit.timer import Timer
from kip30.driver.lease import Lease

T = TypeVar("T")

_RENEWALS_PER_TIMEOUT = 3


class Session(NamedTuple):
    """A lease of the store, and how long its holder may believe in it."""

    ident: str
    lease: Lease


class Sessions:
    """Opens, renews and ends the leases of one backend, one at a time. Thread-safe."""

    def __init__(self, context: Context, store: ByteStore, name: str) -> None:
        """Grant leases of *store*; threads are named after *name*."""
        self._context = context
        self._store = store
        self._timer = Timer(f"{name}-timer")
        # Separate from callers' threads: a renewal must not queue behind calls that wait for the
        # store.
        seconds = context.session_timeout_seconds / _RENEWALS_PER_TIMEOUT
        self._renewals = BlockingCalls(f"{name}-renewal", seconds=seconds)
        renewal: Renewal[Session] = Renewal(
            context.clock, self._timer, self._renew, per_timeout=_RENEWALS_PER_TIMEOUT
        )
        self._current: CurrentSession[Session] = CurrentSession(
            open_one=self._open,
            end=lambda session, until: store.revoke(session.ident, until),
            adopted=lambda session: renewal.begin(session, self._current),
            closing_seconds=context.operation_timeout_seconds / 2,
        )

    def start(self) -> None:
        """Start the thread that renewals rely on.

        Raises:
            UnavailableError: The system has no thread to spare.
        """
        self._timer.start()

    def within(self, work: Callable[[Session], T], until: float) -> T:
        """Return the result of *work* in a session; in another one, if the store has ended that."""
        session = self._current.get(until)
        try:
            return work(session)
        except LeaseGoneError:
            self._current.mark_lost(session)
            return work(self._current.get(until))

    def expire(self, until: float) -> None:
        """End the lease in the store, as if it had run out there; for tests."""
        session = self._current.known()
        if session is not None:
            self._store.revoke(session.ident, until)

    def close(self) -> None:
        """End the lease, here and in the store, and renew none."""
        self._current.close()
        self._timer.stop()

    def join(self) -> None:
        """Wait for renewals under way, which end when the store is closed."""
        self._renewals.close()

    def _open(self, until: float) -> Session:
        # Before anything is claimed: a renewal must not depend on whether the system has a thread
        # to spare when it is due.
        self._renewals.pool.keep_one()
        sent_at = self._context.clock.now()
        ident = self._store.grant(self._context.session_timeout_seconds, until)
        return Session(ident, self._context.lease(sent_at=sent_at))

    def _renew(self, session: Session, _seconds: float) -> Future[bool]:
        return self._renewals.begin(lambda until: self._store.renew(session.ident, until))
