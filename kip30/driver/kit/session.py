"""The session of a backend: one at a time, renewed until it is lost or closed.

Claims that an old session still holds would block the next one: to the store they look like those
of another client. So a session that has ended locally is ended in the store before another one
opens. That lets another candidate lead, so it waits for the work under the terms of that session.
"""

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Generic, Protocol, TypeVar

from kip30.driver.clock import Clock
from kip30.driver.kit.futures import attempt
from kip30.driver.kit.gate import CLOSED
from kip30.driver.kit.timer import Timer
from kip30.driver.lease import LATE, Lease
from kip30.errors import ClosedError, Kip30Error, UnavailableError

_log = logging.getLogger(__name__)

ENDED = "the store ended the session"
WORK_GOES_ON = "work under a term of the lost session has not ended: nothing was claimed"

_AFTER_TROUBLE = 0.1


class Leased(Protocol):
    """A session that the store ties claims to, and the lease that its holder relies on."""

    @property
    def lease(self) -> Lease:
        """The lease that the store granted with it."""
        ...


S = TypeVar("S", bound=Leased)


class CurrentSession(Generic[S]):
    """The session that claims are made in; it is opened for the first of them. Thread-safe."""

    def __init__(
        self,
        *,
        open_one: Callable[[float], S],
        end: Callable[[S, float], None],
        adopted: Callable[[S], None],
        closing_seconds: float,
    ) -> None:
        """Use the given requests of the store. Each may raise kip30's errors.

        Args:
            open_one: Opens a session by a time of `time.monotonic`, and has done nothing if it
                raises a `DefiniteError`.
            end: Ends a session in the store with all that it holds, by such a time. A missing
            session counts as ended.
            adopted: Starts to renew a session that is used from now on. Called under a lock.
            closing_seconds: How long ending a session may take when no caller waits for its answer.
        """
        self._open_one = open_one
        self._end = end
        self._adopted = adopted
        self._closing_seconds = closing_seconds
        # The session that new claims use; None before the first and after a lost one. Written
        # under the lock; its renewals end when it is replaced.
        self._session: S | None = None
        # A lost session that may still exist in the store. The next one is opened after that has
        # been ended there. Written under the lock or by the thread that has `_opening`.
        self._former: S | None = None
        # Set once, under the lock: no session is adopted after that.
        self._closed = False
        self._lock = threading.Lock()
        # Held while a session is opened, so that two claims do not open two.
        self._opening = threading.Lock()

    @property
    def is_closed(self) -> bool:
        """True once `close` was called."""
        return self._closed

    def known(self) -> S | None:
        """Return the session, valid or not, if there is one."""
        return self._session

    def valid(self) -> S | None:
        """Return the session if its lease is valid."""
        session = self._session
        return session if session is not None and session.lease.is_valid() else None

    def get(self, until: float) -> S:
        """Return the current session, or open one by *until*, a time of `time.monotonic`.

        Raises:
            ClosedError: Closed meanwhile. Nothing was claimed.
            UnavailableError: None was granted in time. Nothing was claimed.
            DefiniteError: The store grants none. Nothing was claimed.
        """
        session = self.valid()
        if session is not None:
            return session
        if not self._opening.acquire(timeout=max(0.0, until - time.monotonic())):
            raise UnavailableError("no session was granted in time: nothing was claimed")
        try:
            return self.valid() or self._replace(until)
        finally:
            self._opening.release()

    def mark_lost(self, session: S, reason: str = ENDED) -> None:
        """Note that *session* has ended, and end its lease for *reason*."""
        with self._lock:
            if session is self._session:
                self._session, self._former = None, session
        session.lease.end(reason)

    def has_ended(self, session: S) -> bool:
        """Return whether the store is known to hold nothing of *session*: another one follows."""
        current = self._session
        return current is not None and current is not session

    def close(self) -> None:
        """End the session, here and in the store, and open no other one. Idempotent.

        A lost session may still be there, with all that it held, until it is ended.
        """
        with self._lock:
            self._closed = True
            session = self._session or self._former
        if session is not None:
            self.mark_lost(session, "closed")
            self._end_quietly(session)

    def _replace(self, until: float) -> S:
        session = self._session
        if session is not None:
            self._await_work(session.lease, until)
            self.mark_lost(session, LATE)
        if self._former is not None:
            self._end(self._former, until)
            self._former = None
        if self._closed:
            raise ClosedError(CLOSED)
        session = self._open_one(until)
        try:
            self._adopt(session)
        except Kip30Error as error:
            self.mark_lost(session, str(error))
            self._end_quietly(session)
            raise
        return session

    def _await_work(self, lease: Lease, until: float) -> None:
        """Wait by *until* for the work under a lease that was not renewed in time."""
        lease.expire()
        if not lease.wait_unused(until):
            raise UnavailableError(WORK_GOES_ON)

    def _adopt(self, session: S) -> None:
        with self._lock:
            if self._closed:
                raise ClosedError(CLOSED)
            self._session = session
            self._adopted(session)

    def _end_quietly(self, session: S) -> None:
        try:
            self._end(session, time.monotonic() + self._closing_seconds)
        except Kip30Error as error:
            _log.debug("the session is left to run out: %s", error)


class Renewal(Generic[S]):
    """Renews a session at a fraction of its timeout, on a timer, while it is the current one.

    A renewed lease counts from the moment before the acknowledged request was sent.
    """

    def __init__(
        self,
        clock: Clock,
        timer: Timer,
        renew: Callable[[S, float], Future[bool]],
        *,
        per_timeout: int = 3,
    ) -> None:
        """Send renewals by *renew*, and retry them soon while they fail.

        Args:
            clock: The clock of the leases.
            timer: Runs the renewals. The functions that it calls do not wait.
            renew: Sends a renewal that may take the given seconds. Its answer is false if the store
                no longer knows the session. A quorum must agree on the answer: a server that is
                cut off from the others may renew a session that they have ended.
            per_timeout: How many renewals fit into the session timeout.
        """
        self._clock = clock
        self._timer = timer
        self._renew = renew
        self._per_timeout = per_timeout

    def begin(self, session: S, sessions: CurrentSession[S]) -> None:
        """Renew *session* until it is no longer the current one of *sessions*."""
        self._timer.after(self._interval(session), partial(self._send, session, sessions))

    def _send(self, session: S, sessions: CurrentSession[S]) -> None:
        if session is not sessions.known():
            return
        if session.lease.expire():
            return
        sent_at = self._clock.now()
        renewed = attempt(self._renew, session, self._interval(session))
        renewed.add_done_callback(partial(self._answered, session, sessions, sent_at))

    def _answered(
        self, session: S, sessions: CurrentSession[S], sent_at: float, renewed: Future[bool]
    ) -> None:
        again = partial(self._send, session, sessions)
        error = renewed.exception()
        if error is not None:
            _log.debug("retrying the renewal after: %s", error)
            session.lease.renewal_failed(error)
            self._timer.after(_AFTER_TROUBLE, again)
        elif not renewed.result():
            sessions.mark_lost(session)
        elif session.lease.record_renewal(sent_at):
            gone = self._clock.now() - sent_at
            self._timer.after(max(0.0, self._interval(session) - gone), again)

    def _interval(self, session: S) -> float:
        return session.lease.timeout_seconds / self._per_timeout
