"""The session of a backend: its lease is as recent as the oldest renewal of its rows.

Every claim is a row with a time to live, renewed on its own. Renewals are sent in batches, a few at
a time, so that other requests get through. One lease covers all of them: when one row is found to
be gone, all are lost, and the next claim begins another session.
"""

import logging
import math
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from kip30.driver import Context
from kip30.driver.kit.batch_splitting import parts
from kip30.driver.kit.futures import all_of
from kip30.driver.kit.timer import Timer
from kip30.driver.lease import LATE, Lease
from kip30.driver.records import Entry
from kip30_backends.cassandra.client.connections import Statement, Statements
from kip30_backends.cassandra.errors import closed
from kip30_backends.cassandra.partition_queue import ConcurrencyLimit


class ClaimRow(NamedTuple):
    """The row of a claim.

    Attributes:
        kind: ``members`` or ``leaders``.
        scope: The group or service.
        name: The id or candidate.
    """

    kind: str
    scope: str
    name: str

    @property
    def place(self) -> tuple[str, str]:
        """The partition."""
        return self.kind, self.scope

    @property
    def row(self) -> tuple[str, ...]:
        """The row: a service has one for all candidates."""
        return self.place if self.kind == "leaders" else (*self.place, self.name)


class ClaimStatements:
    """The statements about claims, which live for a number of whole seconds."""

    def __init__(self, statements: Statements, root: str, seconds: int) -> None:
        """Prepare statements about the claims below *root*."""
        self.seconds = seconds
        self._bind = statements.bind
        self._root = root

    def write(self, claim_row: ClaimRow, entry: Entry, held: str, beat: int) -> Statement:
        """Return the statement that writes *entry*, for its whole time, if the nonce is *held*.

        It also requires a lower *beat* in the row: an earlier renewal must not be applied after
        this one, because the row would then end sooner.
        """
        version, nonce, data = entry
        if claim_row.kind == "leaders":
            seat = (claim_row.name, nonce, data, beat, self._root, claim_row.scope)
            return self._bind("renew_seat", self.seconds, *seat, held, beat)
        member = (version.major, nonce, data, beat, self._root, claim_row.scope, claim_row.name)
        return self._bind("write_member", self.seconds, *member, held, version.major, beat)

    def insert(self, claim_row: ClaimRow, entry: Entry, beat: int) -> Statement:
        """Return the statement that inserts *entry* of a member if there is no such row.

        Its *beat* must be below those of its renewals. The revision in *entry* may be above them:
        it follows the group's, which a client with a wrong clock may have raised.
        """
        (rev, _), nonce, data = entry
        where = (self._root, claim_row.scope, claim_row.name)
        return self._bind("insert_member", self.seconds, rev, nonce, data, beat, *where)

    def take(
        self, claim_row: ClaimRow, nonce: str, data: bytes, beat: int, creation: int | None = None
    ) -> Statement:
        """Return the statement that writes the leader if there is none, at that *creation*."""
        seat = (self.seconds, claim_row.name, nonce, data, beat, self._root, claim_row.scope)
        if creation is None:
            return self._bind("take_seat", *seat)
        return self._bind("take_first_seat", *seat, creation)

    def delete(self, claim_row: ClaimRow, entry: Entry) -> Statement:
        """Return the statement that deletes the row of *entry*.

        It compares the version too: a later claim of the same client may have the same nonce, and
        this statement may be applied after that claim.
        """
        held = (entry.nonce, entry.version.major)
        if claim_row.kind == "leaders":
            return self._bind("leave_seat", self._root, claim_row.scope, *held)
        return self._bind("delete_member", self._root, claim_row.scope, claim_row.name, *held)


@dataclass(eq=False, slots=True)
class HeldClaim:
    """A claim that this client holds.

    Attributes:
        post: The row.
        entry: The content of the row, as far as is known.
        sent_at: When the last acknowledged renewal was sent.
        doubtful: What it may be instead, by nonce, because answers were lost.
    """

    claim_row: ClaimRow
    entry: Entry
    sent_at: float
    doubtful: dict[str, Entry] = field(default_factory=dict[str, Entry])

    def may_be(self, nonce: str, version: int) -> bool:
        """Return whether a row with *nonce* and *version* is this one, as far as is known."""
        is_same = version == self.entry.version.major
        return is_same and nonce in {self.entry.nonce, *self.doubtful}

    def has_now(self, nonce: str) -> bool:
        """Record that the row has *nonce*, as its holder has read; false if it cannot have it."""
        self.entry = self.doubtful.pop(nonce, self.entry)
        return self.entry.nonce == nonce

    def renewed(self, entry: Entry, sent_at: float) -> None:
        """Record that the row has *entry*, by a request sent at *sent_at*.

        Writes in doubt name the nonce that they replace: only another nonce rules them out.
        """
        if entry.nonce != self.entry.nonce:
            self.doubtful.clear()
        self.entry = entry
        self.sent_at = max(self.sent_at, sent_at)


_MOST = 50
_MOST_BYTES = 256 * 1024

ClaimBatch = Sequence[HeldClaim]
Renew = Callable[[ClaimBatch], Future[ClaimBatch]]
"""Renews a batch; its future has what was found to be gone."""


def renewal_batches(held: Iterable[HeldClaim]) -> list[ClaimBatch]:
    """Return batches that one statement each can renew, the longest unrenewed first."""
    by_place = groupby(
        sorted(held, key=lambda one: one.claim_row.place), lambda one: one.claim_row.place
    )
    made = [batch for _, there in by_place for batch in _fitting(there)]
    return sorted(made, key=lambda batch: min(one.sent_at for one in batch))


def renew_all(
    waiting: Iterable[ClaimBatch],
    renew: Renew,
    heard: Callable[[Future[ClaimBatch]], None],
    limiter: ConcurrencyLimit,
) -> Future[None]:
    """Renew all batches with *renew*, report each to *heard*; return what is done after that.

    The batches of one place are renewed one after the other.
    """
    places = defaultdict[tuple[str, str], ConcurrencyLimit](lambda: ConcurrencyLimit(1))
    renewals = [
        places[batch[0].claim_row.place].do(partial(limiter.do, partial(renew, batch)))
        for batch in waiting
    ]
    for one in renewals:
        one.add_done_callback(heard)
    return all_of(renewals)


def _fitting(holdings: Iterable[HeldClaim]) -> Iterator[ClaimBatch]:
    """Yield *holdings* of one place in batches, each of holdings of about the same age."""
    by_age = sorted(holdings, key=attrgetter("sent_at"))
    return parts(
        by_age,
        lambda one: len(one.entry.data),
        most=_MOST,
        most_bytes=_MOST_BYTES,
        key=attrgetter("claim_row.row"),
    )


_log = logging.getLogger(__name__)

_AFTER_TROUBLE = 0.1
_AT_ONCE = 16
_GRAIN = 1
"""By how many seconds Cassandra may expire a row before its TTL: it counts whole seconds."""


class Session:
    """A lease and the claims under it.

    Attributes:
        lease: Until when all of them are valid.
        since: When the renewal from which the lease is dated was sent.
        holdings: The claims, by row.
    """

    def __init__(self, lease: Lease, since: float) -> None:
        """Start without claims."""
        self.lease = lease
        self.since = since
        self.holdings: dict[tuple[str, ...], HeldClaim] = {}

    def has(self, holding: HeldClaim) -> bool:
        """Return whether this very *holding* is held."""
        return self.holdings.get(holding.claim_row.row) is holding


class Sessions:
    """Begins, renews and ends the sessions of one backend, one at a time. Thread-safe."""

    def __init__(self, context: Context, timer: Timer, renew: Renew, interval: float) -> None:
        """Renew all claims with *renew*, every *interval* seconds."""
        self.row_seconds = math.ceil(context.session_timeout_seconds) + _GRAIN
        self._context = context
        self._timer = timer
        self._renew = renew
        self._interval = interval
        self._limiter = ConcurrencyLimit(_AT_ONCE)
        # All of these are written under the lock.
        # The session that new claims use; None before the first and after a lost one.
        self._session: Session | None = None
        # Lost sessions whose rows may still be there: a claim with a nonce of theirs is their own.
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
                self._former.add(old)  # in one step: `close` deletes the claims of both
        if old is not None:
            self._end(old, LATE)
        self._timer.after(self._interval, partial(self._round, session))
        return session

    def find(self, claim_row: ClaimRow, nonce: str) -> tuple[Session, HeldClaim] | None:
        """Return what *claim_row* is held by under *nonce*, if the session is good."""
        session = self._session
        if session is None or not session.lease.is_valid():
            return None
        holding = session.holdings.get(claim_row.row)
        return (session, holding) if holding and holding.entry.nonce == nonce else None

    def former(self, nonce: str, version: int) -> HeldClaim | None:
        """Return what an ended session held, whose holder no longer believes in it.

        A claim of the present session may have the same *nonce*, but never the same *version*
        (epoch). None for a leader while work goes on under a term of that session: no other
        candidate leads before that work has ended.
        """
        return next((one for one in self._left() if one.may_be(nonce, version)), None)

    def holds(self, session: Session, holding: HeldClaim) -> bool:
        """Add *holding* to *session*; false if it must be renewed before that is safe.

        Its row may be older than the renewal that the lease is dated from, or the session may have
        ended. A claim that held that row before is known to be gone.
        """
        with self._lock:
            if session is not self._session or holding.sent_at < session.since:
                return False
            session.holdings[holding.claim_row.row] = holding
            return True

    def forget(self, holding: HeldClaim) -> None:
        """Stop renewing *holding*."""
        session = self._session
        if session is not None:
            with self._lock:
                if session.has(holding):
                    del session.holdings[holding.claim_row.row]

    def held(self) -> list[HeldClaim]:
        """Return all claims."""
        session = self._session
        if session is None:
            return []
        with self._lock:
            return list(session.holdings.values())

    def is_held(self, holding: HeldClaim) -> bool:
        """Return whether *holding* is to be renewed."""
        session = self._session
        return session is not None and session.lease.end_reason is None and session.has(holding)

    def close(self) -> tuple[list[HeldClaim], list[HeldClaim]]:
        """End the lease for good; return its claims, and what ended sessions may have left."""
        with self._lock:
            self._closed = True
            session, self._session = self._session, None
        held = dict[tuple[str, ...], HeldClaim]()
        if session is not None:
            session.lease.end("closed")
            held = session.holdings
        left = {one.claim_row.row: one for one in self._left()}
        return list(held.values()), [left[row] for row in left.keys() - held.keys()]

    def _left(self) -> list[HeldClaim]:
        """Return what ended sessions held, the oldest first, but no leader whose work goes on."""
        with self._lock:
            former = sorted(self._former, key=attrgetter("since"))
            held = [(one, old.lease) for old in former for one in old.holdings.values()]
        return [
            one for one, lease in held if one.claim_row.kind != "leaders" or not lease.is_in_use()
        ]

    def _begun(self) -> Session:
        now = self._context.clock.now()
        seconds = float(self.row_seconds - _GRAIN)
        return Session(self._context.lease(sent_at=now, timeout_seconds=seconds), now)

    def _round(self, session: Session) -> None:
        """Renew all claims, and extend the lease accordingly."""
        if session is not self._session:
            return
        if session.lease.expire():
            return
        begun, errors = self._context.clock.now(), list[BaseException]()
        heard = partial(self._heard, session, errors)
        renew = partial(self._measured, session)
        round_ = renew_all(renewal_batches(self.held()), renew, heard, self._limiter)
        round_.add_done_callback(lambda _: self._renewed(session, begun, errors))

    def _measured(self, session: Session, batch: ClaimBatch) -> Future[ClaimBatch]:
        """Renew *batch*, and measure how long that takes: the lease has another date."""
        begun = self._context.clock.now()

        def measure(renewal: Future[ClaimBatch]) -> None:
            is_done = renewal.exception() is None and not renewal.result()
            if is_done and session.lease.is_valid():
                session.lease.measure_renewal(begun)

        renewal = self._renew(batch)
        renewal.add_done_callback(measure)
        return renewal

    def _heard(
        self, session: Session, errors: list[BaseException], renewal: Future[ClaimBatch]
    ) -> None:
        error = renewal.exception()
        if error is not None:
            _log.debug("a claim was not renewed: %s", error)
            errors.append(error)
            session.lease.renewal_failed(error)
            session.lease.expire()
        elif any(map(session.has, renewal.result())):
            self._end(session, "the store ended a claim")
        else:
            self._prolong(session)

    def _prolong(self, session: Session, renewed_at: float = -math.inf) -> bool:
        """Date the lease from the oldest renewal; false if it has ended."""
        with self._lock:
            oldest = min((one.sent_at for one in session.holdings.values()), default=renewed_at)
            session.since = max(session.since, oldest)
        return session.lease.extend(oldest)

    def _renewed(self, session: Session, begun: float, errors: Sequence[BaseException]) -> None:
        if self._prolong(session, begun):
            gone = self._context.clock.now() - begun
            pause = _AFTER_TROUBLE if errors else max(0.0, self._interval - gone)
            self._timer.after(pause, partial(self._round, session))

    def _end(self, session: Session, reason: str) -> None:
        """End *session*, but remember its rows for as long as they may exist."""
        session.lease.end(reason)
        with self._lock:
            if session is self._session:
                self._session = None
            self._former.add(session)
        self._timer.after(2 * self.row_seconds, partial(self._forget_former, session))

    def _forget_former(self, session: Session) -> None:
        with self._lock:
            self._former.discard(session)
