"""The session of a backend: a lease, granted for the first claim and renewed until closed."""

import math
import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, NamedTuple, TypeVar

from kip30.driver import Context
from kip30.driver.kit.future_chaining import attempt, copy, then
from kip30.driver.kit.futures import Completed, failed
from kip30.driver.kit.session import CurrentSession, Renewal
from kip30.driver.kit.thread_start import started
from kip30.driver.kit.time_left import seconds_left
from kip30.driver.kit.timer import Timer
from kip30.driver.lease import Lease
from kip30.errors import UnavailableError
from kip30_backends.etcd.calls import Ask, Calls, acknowledged
from kip30_backends.etcd.client import messages
from kip30_backends.etcd.client.channel import LEASE_GRANT, LEASE_KEEP_ALIVE, LEASE_REVOKE, RANGE
from kip30_backends.etcd.client.messages import MESSAGES
from kip30_backends.etcd.observation_order import Mark

T = TypeVar("T")

MIN_SECONDS = 2
"""The shortest lease etcd grants with its own settings."""


class Session(NamedTuple):
    """A lease of the store, and how long it is valid."""

    ident: int
    lease: Lease


RetryInNewSession = Callable[[], Future[T]]
Work = Callable[[Session, float, RetryInNewSession[T] | None], Future[T]]


class Sessions:
    """Opens, renews and ends the leases of one backend, one at a time. Thread-safe."""

    def __init__(self, context: Context, calls: Calls, timer: Timer) -> None:
        """Request leases with *calls* and renew them with *timer*."""
        self._context = context
        self._calls = calls
        renewal = Renewal(context.clock, timer, self._renew)
        self._current: CurrentSession[Session] = CurrentSession(
            open_one=self._open,
            end=self._end,
            adopted=lambda session: renewal.begin(session, self._current),
            closing_seconds=calls.seconds / 2,
        )

    @property
    def asked_seconds(self) -> int:
        """The TTL that is requested: etcd counts whole seconds."""
        return max(MIN_SECONDS, math.ceil(self._context.session_timeout_seconds))

    def within(self, work: Work[T]) -> Future[T]:
        """Return the result of *work* in a session.

        It receives its timeout in seconds, and what to do if the store no longer knows the session:
        retry in another one.
        """
        until = time.monotonic() + self._calls.seconds
        session = self._current.valid()
        if session is None:
            return self._on_own_thread(work, until)
        # The usual case: no thread is needed, and the caller sends the request itself.
        return work(
            session, seconds_left(until), lambda: self._retry_in_new_session(session, work, until)
        )

    def _retry_in_new_session(self, session: Session, work: Work[T], until: float) -> Future[T]:
        self._current.mark_lost(session)
        return self._on_own_thread(work, until)

    def _on_own_thread(self, work: Work[T], until: float) -> Future[T]:
        """Open a session, which takes several round trips, on a thread of its own."""
        answer: Future[T] = Future()

        def run() -> None:
            copy(attempt(lambda: work(self._current.get(until), seconds_left(until), None)), answer)

        if started(threading.Thread(target=run, name="kip30-etcd-session", daemon=True)):
            return answer
        return failed(UnavailableError("no thread to spare to open a session: nothing was claimed"))

    def has_ended(self, session: Session) -> bool:
        """Return whether the store is known to hold nothing of *session* any longer."""
        return self._current.has_ended(session)

    def close(self) -> None:
        """End the lease, here and in the store, and open no other."""
        self._current.close()

    def expire_session(self) -> None:
        """End the lease in the store, as if it had expired there, without notifying this client."""
        session = self._current.known()
        if session is not None:
            self._end(session, time.monotonic() + self._calls.seconds)

    def _open(self, until: float) -> Session:
        sent_at = self._context.clock.now()
        request = MESSAGES["LeaseGrantRequest"](TTL=self.asked_seconds)
        ask = Ask(LEASE_GRANT, request, partial(self._granted, sent_at))
        return self._calls.send(ask, seconds_left(until)).result()

    def _granted(self, sent_at: float, answer: Any, _sent: Mark) -> Session:
        lease = self._context.lease(sent_at=sent_at, timeout_seconds=float(answer.TTL))
        return Session(answer.ID, lease)

    def _end(self, session: Session, until: float) -> None:
        request = MESSAGES["LeaseRevokeRequest"](ID=session.ident)
        ask = Ask(LEASE_REVOKE, request, acknowledged, if_gone=lambda: Completed(None))
        self._calls.send(ask, seconds_left(until)).result()

    def _renew(self, session: Session, seconds: float) -> Future[bool]:
        request = MESSAGES["LeaseKeepAliveRequest"](ID=session.ident)
        renewed = self._calls.send(Ask(LEASE_KEEP_ALIVE, request, _is_there), seconds)
        return then(renewed, partial(self._confirmed, seconds))

    def _confirmed(self, seconds: float, is_there: bool) -> Future[bool]:  # noqa: FBT001
        """Let a quorum confirm a renewal by answering a read.

        A leader that was cut off from the others renews leases alone until it notices.
        """
        request = messages.page(self._calls.access.prefix.encode(), b"", limit=1, names_only=True)
        read = self._calls.send(Ask(RANGE, request, acknowledged), seconds)
        return then(read, lambda _: Completed(is_there))


def _is_there(answer: Any, _sent: Mark) -> bool:
    seconds: int = answer.TTL
    return seconds > 0


LEAST = "3.4.31, 3.5.13 or 3.6"
"""The least versions that revoke no lease which was renewed, and tell how far a watch has come."""

_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")
_FIXED = {(3, 4): 31, (3, 5): 13}


def finding(version: str) -> str:
    """Return what an operator must know of a server of *version*, or ``""``.

    A leader of an earlier one that is stuck, for example on its disk, goes on to revoke leases that
    its successor has renewed (etcd's issue 15247). So the seat of a leader whose term is valid is
    given to another one.
    """
    if is_fixed(version):
        return ""
    return (
        f"etcd {version} may revoke leases that were renewed, when a slow server leads and another"
        f" one is elected, so that two leaders can be valid at once: update it to {LEAST}"
    )


def is_fixed(version: str) -> bool:
    """Return whether a server of *version* is one of `LEAST`, or later."""
    found = _VERSION.match(version)
    if found is None:
        return False
    major, minor, patch = map(int, found.groups())
    return (major, minor) > max(_FIXED) or patch >= _FIXED.get((major, minor), patch + 1)
