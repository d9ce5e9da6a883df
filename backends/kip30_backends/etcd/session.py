"""The session of a backend: a lease, granted for the first claim and renewed until closed."""

import contextlib
import math
import re
import threading
import time
from concurrent.futures import Future
from functools import partial
from typing import Any, NamedTuple

from kip30.driver import Context
from kip30.driver.kit.futures import Completed, fail, failed, succeed
from kip30.driver.kit.operation import OperationFuture, Steps
from kip30.driver.kit.session import CurrentSession, Renewal
from kip30.driver.kit.thread_start import started
from kip30.driver.kit.time_left import seconds_left
from kip30.driver.kit.timer import Timer
from kip30.driver.lease import Lease
from kip30.errors import UnavailableError
from kip30_backends.etcd.calls import Calls, TypedRequest, acknowledged, itself
from kip30_backends.etcd.client.channel import LEASE_GRANT, LEASE_KEEP_ALIVE, LEASE_REVOKE, RANGE
from kip30_backends.etcd.client.messages import MESSAGES, KeepAliveAnswer, RangeAnswer
from kip30_backends.etcd.errors import LeaseGoneError
from kip30_backends.etcd.observation_order import OrderMark, era_of

MIN_SECONDS = 2
"""The shortest lease etcd grants with its own settings."""


class Session(NamedTuple):
    """A lease of the store, how long it is valid, and the era of answers in which it was granted.

    A store that went back to an earlier state begins another era. It may know the lease all the
    same, with keys that were given up since, and without some that were taken.
    """

    ident: int
    lease: Lease
    era: int


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

    def current(self, until: float) -> Future[Session]:
        """Return the session, or open one by *until*, a time of `time.monotonic`.

        What `CurrentSession.get` raises is the future's. Nothing was claimed then.
        """
        session = self._current.valid()
        # The usual case: no thread is needed, and the caller sends the request itself.
        return self._opened(until) if session is None else Completed(session)

    def mark_lost(self, session: Session) -> None:
        """Note that the store no longer knows *session*."""
        self._current.mark_lost(session)

    def _opened(self, until: float) -> Future[Session]:
        """Open a session, which takes several round trips, on a thread of its own."""
        answer: Future[Session] = Future()

        def run() -> None:
            try:
                succeed(answer, self._current.get(until))
            except Exception as error:  # noqa: BLE001  a future carries any error
                fail(answer, error)

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
        ask = TypedRequest(LEASE_GRANT, request, partial(self._granted, sent_at))
        return self._calls.send(ask, seconds_left(until)).result()

    def _granted(self, sent_at: float, answer: Any, sent: OrderMark) -> Session:
        lease = self._context.lease(sent_at=sent_at, timeout_seconds=float(answer.TTL))
        return Session(answer.ID, lease, era_of(self._calls.orders.of(answer.header, sent)))

    def _end(self, session: Session, until: float) -> None:
        request = MESSAGES["LeaseRevokeRequest"](ID=session.ident)
        # A lease that is gone has ended.
        with contextlib.suppress(LeaseGoneError):
            ended = self._calls.send(
                TypedRequest(LEASE_REVOKE, request, acknowledged), seconds_left(until)
            )
            ended.result()

    def _renew(self, session: Session, seconds: float) -> Future[bool]:
        return OperationFuture(self._renewed(session, seconds))

    def _renewed(self, session: Session, seconds: float) -> Steps[bool]:
        """Renew a lease, and let a quorum confirm it by answering a read in the same term.

        A leader that was cut off from the others renews leases alone until it notices. If others
        have elected another one meanwhile, that may already count a shorter time, and a server on
        its side would answer the read.
        """
        keep_alive = MESSAGES["LeaseKeepAliveRequest"](ID=session.ident)
        renewed: KeepAliveAnswer = yield self._calls.send(
            TypedRequest(LEASE_KEEP_ALIVE, keep_alive, itself), seconds
        )
        look = TypedRequest(RANGE, self._calls.probe, self._noted)
        read: RangeAnswer = yield self._calls.send(look, seconds)
        if read.header.raft_term != renewed.header.raft_term:
            raise UnavailableError("the cluster has elected another leader during the renewal")
        return renewed.TTL > 0 and self._calls.orders.latest.era == session.era

    def _noted(self, answer: RangeAnswer, sent: OrderMark) -> RangeAnswer:
        self._calls.orders.of(answer.header, sent)
        return answer


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
