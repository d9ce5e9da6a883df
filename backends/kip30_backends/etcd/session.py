"""The lease of a backend: granted for the first claim, renewed until closed.

When it is lost, the next claim gets another one.
"""

import logging
import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, NamedTuple, TypeVar

from kip30.driver import Context
from kip30.driver.kit.following import attempt, copy, then
from kip30.driver.kit.futures import Completed, failed
from kip30.driver.kit.threads import started
from kip30.driver.kit.timer import Timer
from kip30.driver.lease import Lease
from kip30.errors import ClosedError, UnavailableError
from kip30_backends.etcd.client import messages
from kip30_backends.etcd.client.channel import LEASE_GRANT, LEASE_KEEP_ALIVE, LEASE_REVOKE, RANGE
from kip30_backends.etcd.client.messages import MESSAGES
from kip30_backends.etcd.order import Mark
from kip30_backends.etcd.request import Ask, Calls, acknowledged

T = TypeVar("T")

MIN_SECONDS = 2
"""The shortest lease etcd grants with its own settings."""

_log = logging.getLogger(__name__)

_RENEWALS_PER_TIMEOUT = 3
_AFTER_TROUBLE = 0.1
_ENDED = "the store ended the lease"


class Session(NamedTuple):
    """A lease of the store, and how long it may be believed in."""

    ident: int
    lease: Lease


Again = Callable[[], Future[T]]
Work = Callable[[Session, float, Again[T] | None], Future[T]]


class Sessions:
    """Opens, renews and ends the leases of one backend, one at a time. Thread-safe."""

    def __init__(self, context: Context, calls: Calls, pulse: Timer) -> None:
        """Ask for leases with *calls* and renew them with *pulse*."""
        self._context = context
        self._calls = calls
        self._pulse = pulse
        self._lock = threading.Lock()
        self._closed = False
        self._session: Session | None = None
        self._over: Session | None = None
        self._opening = threading.Lock()

    @property
    def asked_seconds(self) -> int:
        """How long a lease is asked for: etcd counts whole seconds."""
        return max(MIN_SECONDS, math.ceil(self._context.session_timeout_seconds))

    def within(self, work: Work[T]) -> Future[T]:
        """Return what becomes of *work* in a session.

        It receives how many seconds it has, and what to do instead if the store knows the session
        no more: try in another one.
        """
        until = time.monotonic() + self._calls.seconds
        session = self._session
        if session is None or not session.lease.is_valid():
            return self._aside(work, until)
        return work(session, _left(until), lambda: self._anew(session, work, until))

    def _anew(self, session: Session, work: Work[T], until: float) -> Future[T]:
        self._end(session, _ENDED)
        return self._aside(work, until)

    def _aside(self, work: Work[T], until: float) -> Future[T]:
        """Open a session, which takes several round trips, on a thread that ends with that."""
        answer: Future[T] = Future()

        def run() -> None:
            copy(attempt(lambda: work(self._current(until), _left(until), None)), answer)

        if started(threading.Thread(target=run, name="kip30-etcd-session", daemon=True)):
            return answer
        return failed(UnavailableError("no thread to spare to open a session: nothing was claimed"))

    def has_ended(self, session: Session) -> bool:
        """Say whether the store is known to hold nothing of *session* any more.

        A session is opened after the one before was ended in the store.
        """
        current = self._session
        return current is not None and current is not session

    def expire(self) -> None:
        """End the lease in the store, as if it had run out there, without notifying this client."""
        session = self._session
        if session is not None:
            self._revoke(session).result()

    def close(self) -> None:
        """End the lease, here and in the store, and open no other one."""
        with self._lock:
            self._closed = True
            session = self._session
        if session is not None:
            self._end(session, "closed")
            self._revoke(session).exception()

    def _current(self, until: float) -> Session:
        """Return the session there is, or open one.

        Raises:
            ClosedError: Closed meanwhile.
            UnavailableError: The store grants none. Nothing was done.
        """
        session = self._session
        if session is not None and session.lease.is_valid():
            return session
        if not self._opening.acquire(timeout=_left(until)):
            raise UnavailableError("no lease was granted in time: nothing was claimed")
        try:
            session = self._session
            if session is not None and session.lease.is_valid():
                return session
            if session is not None:
                self._end(session, "not renewed in time")
            self._clear_away(until)
            return self._open(until)
        finally:
            self._opening.release()

    def _clear_away(self, until: float) -> None:
        """End the session before in the store too: what it still has there would be in the way."""
        if self._over is not None:
            self._revoke(self._over, _left(until)).result()
            self._over = None

    def _open(self, until: float) -> Session:
        sent_at = self._context.clock.now()
        request = MESSAGES["LeaseGrantRequest"](TTL=self.asked_seconds)
        ask = Ask(LEASE_GRANT, request, partial(self._granted, sent_at))
        session = self._calls.send(ask, _left(until)).result()
        with self._lock:
            closed = self._closed
            self._session = None if closed else session
        if closed:
            self._revoke(session).exception()
            raise ClosedError("the backend is closed")
        self._renew_after(session, self._interval(session))
        return session

    def _granted(self, sent_at: float, answer: Any, _sent: Mark) -> Session:
        lease = self._context.lease(sent_at=sent_at, timeout_seconds=float(answer.TTL))
        return Session(answer.ID, lease)

    def _end(self, session: Session, reason: str) -> None:
        with self._lock:
            if session is self._session:
                self._session, self._over = None, session
        session.lease.end(reason)

    def _revoke(self, session: Session, seconds: float | None = None) -> Future[None]:
        request = MESSAGES["LeaseRevokeRequest"](ID=session.ident)
        ask = Ask(LEASE_REVOKE, request, acknowledged, if_gone=lambda: Completed(None))
        return self._calls.send(ask, seconds or self._calls.seconds / 2)

    def _renew_after(self, session: Session, seconds: float) -> None:
        self._pulse.after(seconds, partial(self._renew, session))

    def _renew(self, session: Session) -> None:
        if session is not self._session:
            return
        if session.lease.expire():
            _log.info("the lease was not renewed in time")
            return
        sent_at = self._context.clock.now()
        request = MESSAGES["LeaseKeepAliveRequest"](ID=session.ident)
        ask = Ask(LEASE_KEEP_ALIVE, request, _seconds_left)
        told = self._calls.send(ask, self._interval(session))
        confirmed = then(told, partial(self._confirmed, session))
        confirmed.add_done_callback(partial(self._renewed, session, sent_at))

    def _confirmed(self, session: Session, seconds_left: int) -> Future[int]:
        """Have a quorum confirm a renewal by answering a read.

        A leader that was cut off from the others renews leases alone until it notices.
        """
        request = messages.page(self._calls.access.prefix.encode(), b"", limit=1, names_only=True)
        read = self._calls.send(Ask(RANGE, request, acknowledged), self._interval(session))
        return then(read, lambda _: Completed(seconds_left))

    def _renewed(self, session: Session, sent_at: float, answer: Future[int]) -> None:
        if answer.exception() is not None:
            _log.debug("the lease was not renewed: %s", answer.exception())
            self._renew_after(session, _AFTER_TROUBLE)
        elif not answer.result():
            self._end(session, _ENDED)
        elif session.lease.renewed(sent_at):
            gone = self._context.clock.now() - sent_at
            self._renew_after(session, max(0.0, self._interval(session) - gone))

    def _interval(self, session: Session) -> float:
        return session.lease.timeout_seconds / _RENEWALS_PER_TIMEOUT


def _left(until: float) -> float:
    return max(0.001, until - time.monotonic())


def _seconds_left(answer: Any, _sent: Mark) -> int:
    seconds: int = answer.TTL
    return seconds
