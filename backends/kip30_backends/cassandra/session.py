"""The lease of a backend: as good as the oldest renewal among the posts that it holds.

Every post is a row with a time to live, renewed on its own. There is one lease over all of them:
when one post is found to be gone, all are lost, and the next claim begins another session.
"""

import logging
import math
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial

from kip30.driver import Context
from kip30.driver.kit.timer import Timer
from kip30.driver.lease import Lease
from kip30_backends.cassandra.errors import closed
from kip30_backends.cassandra.few import Few
from kip30_backends.cassandra.posts import Holding, Post
from kip30_backends.cassandra.renewals import Parcel, Renew, parcels, renew_all

_log = logging.getLogger(__name__)

_AFTER_TROUBLE = 0.1
_AT_ONCE = 16
_GRAIN = 1
"""How much sooner than it was told Cassandra may end a row, in seconds: it counts whole ones."""


class Session:
    """A lease and what is held under it.

    Attributes:
        lease: Until when all of it may be believed in.
        since: When the renewal was sent that the lease is dated from.
        holdings: What is held, by row.
    """

    def __init__(self, lease: Lease, since: float) -> None:
        """Hold nothing yet."""
        self.lease = lease
        self.since = since
        self.holdings: dict[tuple[str, ...], Holding] = {}

    def has(self, holding: Holding) -> bool:
        """Say whether that very *holding* is held."""
        return self.holdings.get(holding.post.row) is holding


class Sessions:
    """Begins, renews and ends the sessions of one backend, one at a time. Thread-safe."""

    def __init__(self, context: Context, pulse: Timer, renew: Renew, interval: float) -> None:
        """Have *renew* renew all posts, every *interval* seconds."""
        self.row_seconds = math.ceil(context.session_timeout_seconds) + _GRAIN
        self._context = context
        self._pulse = pulse
        self._renew = renew
        self._interval = interval
        self._few = Few(_AT_ONCE)
        self._session: Session | None = None
        self._former: set[Session] = set()
        self._closed = False
        self._lock = threading.Lock()

    def current(self) -> Session:
        """Return the session there is, or begin one.

        Raises:
            ClosedError: The backend is closed.
        """
        with self._lock:
            if self._closed:
                raise closed()
            old = self._session
            if old is not None and old.lease.is_valid():
                return old
            session = self._session = self._begun()
        if old is not None:
            self._bury(old, "not renewed in time")
        self._pulse.after(self._interval, partial(self._round, session))
        return session

    def find(self, post: Post, nonce: str) -> tuple[Session, Holding] | None:
        """Return what *post* is held by under *nonce*, if the session is good."""
        session = self._session
        if session is None or not session.lease.is_valid():
            return None
        holding = session.holdings.get(post.row)
        return (session, holding) if holding and holding.entry.nonce == nonce else None

    def former(self, nonce: str) -> Holding | None:
        """Return what an ended session held under *nonce*: nobody believes in that any more."""
        with self._lock:
            held = [one for session in self._former for one in session.holdings.values()]
        return next((one for one in held if nonce in one.nonces()), None)

    def holds(self, session: Session, holding: Holding) -> bool:
        """Take *holding* up in *session*; false if it must be renewed before that is safe.

        Its row may be older than the renewal that the lease is dated from, or the session over.
        Whatever was held of that row before is known to be gone.
        """
        with self._lock:
            if session is not self._session or holding.sent_at < session.since:
                return False
            session.holdings[holding.post.row] = holding
            return True

    def forget(self, holding: Holding) -> None:
        """Renew *holding* no more."""
        session = self._session
        if session is not None:
            with self._lock:
                if session.has(holding):
                    del session.holdings[holding.post.row]

    def held(self) -> list[Holding]:
        """Return what is held."""
        session = self._session
        if session is None:
            return []
        with self._lock:
            return list(session.holdings.values())

    def is_held(self, holding: Holding) -> bool:
        """Say whether *holding* is to be renewed."""
        session = self._session
        return session is not None and session.lease.ended is None and session.has(holding)

    def close(self) -> list[Holding]:
        """End the lease, begin no other one, and return what was held under it."""
        with self._lock:
            self._closed = True
            session, self._session = self._session, None
        if session is None:
            return []
        session.lease.end("closed")
        return list(session.holdings.values())

    def _begun(self) -> Session:
        now = self._context.clock.now()
        seconds = float(self.row_seconds - _GRAIN)
        return Session(self._context.lease(sent_at=now, timeout_seconds=seconds), now)

    def _round(self, session: Session) -> None:
        """Renew all that is held, and the lease as far as that goes."""
        if session is not self._session:
            return
        if session.lease.expire():
            _log.info("the lease was not renewed in time")
            return
        begun, errors = self._context.clock.now(), list[BaseException]()
        heard = partial(self._heard, session, errors)
        round_ = renew_all(parcels(self.held()), self._renew, heard, self._few)
        round_.add_done_callback(lambda _: self._renewed(session, begun, errors))

    def _heard(
        self, session: Session, errors: list[BaseException], renewal: Future[Parcel]
    ) -> None:
        error = renewal.exception()
        if error is not None:
            _log.debug("a claim was not renewed: %s", error)
            errors.append(error)
            session.lease.expire()
        elif any(map(session.has, renewal.result())):
            self._end(session, "the store ended a claim")
        else:
            self._prolong(session)

    def _prolong(self, session: Session, renewed_at: float = -math.inf) -> bool:
        """Date the lease from the oldest renewal; false if it is over."""
        with self._lock:
            oldest = min((one.sent_at for one in session.holdings.values()), default=renewed_at)
            session.since = max(session.since, oldest)
        return session.lease.renewed(oldest)

    def _renewed(self, session: Session, begun: float, errors: Sequence[BaseException]) -> None:
        if self._prolong(session, begun):
            gone = self._context.clock.now() - begun
            pause = _AFTER_TROUBLE if errors else max(0.0, self._interval - gone)
            self._pulse.after(pause, partial(self._round, session))

    def _end(self, session: Session, reason: str) -> None:
        with self._lock:
            if session is self._session:
                self._session = None
        self._bury(session, reason)

    def _bury(self, session: Session, reason: str) -> None:
        """End *session*, but know its rows for as long as they may be there."""
        session.lease.end(reason)
        with self._lock:
            self._former.add(session)
        self._pulse.after(2 * self.row_seconds, partial(self._forget_former, session))

    def _forget_former(self, session: Session) -> None:
        with self._lock:
            self._former.discard(session)
