"""Leaders: a partition per service, with an epoch that stays and a seat with a time to live.

An epoch must never occur twice, because a write that was fenced with it may still be under way. So
before pruning removes an unused partition, it raises the *floor* of the root: the epoch of the
service without a name, above those of all services to be removed. Then it raises the fences of the
service above its last epoch, as before a claim; then it deletes the partition, unless a claim or a
fence was made meanwhile. Each of these steps is safe if the next one never happens.

A conditional write sees one partition, so no claim can compare the floor. Therefore the first claim
of a service without a partition takes three steps: it marks the partition with a random number, its
*creation*, reads the floor, and takes the next epoch on the condition that it is unchanged. As
long as it is, no partition of that service has been pruned; so the floor that was read after the
creation is above all its epochs.

A fenced write cannot compare the epoch, which is in another partition. So a leader that writes
with a fence first notes the namespace in its service, then raises the fence there. A candidate
first raises the fence to the next epoch in every noted namespace, then claims that epoch, and only
while the service has no leader. The claim fails if a namespace was noted meanwhile.
"""

import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import NamedTuple

from typing_extensions import override

from kip30.driver import ElectionDriver
from kip30.driver.kit import refusals
from kip30.driver.kit.future_chaining import gathered, then
from kip30.driver.kit.futures import Completed, mapped
from kip30.driver.records import Claim, Entry, Fence, HeldByOther, Kind, Pruned, Snapshot, Version
from kip30.errors import OutcomeUnknownError, StoreError, UnavailableError
from kip30_backends.cassandra.calls import Answer, Ask, Calls, is_applied
from kip30_backends.cassandra.claims import Claims, insist
from kip30_backends.cassandra.client.connections import FIRST, Row
from kip30_backends.cassandra.session import ClaimRow, Holding
from kip30_backends.cassandra.target_states import (
    NO_EPOCH,
    Service,
    checked,
    seat_of,
    service_of,
    unreadable,
)

_EPOCHS = range(1, 2**63)


class Fences:
    """The fences of one namespace of the configuration."""

    def __init__(self, calls: Calls) -> None:
        """Raise fences with *calls*."""
        self._calls = calls

    def raise_one(self, namespace: str, fence: Fence, until: float) -> Future[None]:
        """Fence *namespace* for the current leader; `FencedError` if its term has ended."""
        if fence.epoch not in _EPOCHS:
            raise refusals.fenced(fence)
        noted = self._note(namespace, fence, until)
        return then(noted, lambda _: self._raised(namespace, fence, fence.epoch - 1, until))

    def raise_all(self, namespaces: Iterable[str], fence: Fence, until: float) -> Future[None]:
        """Raise the fence of a service in all *namespaces* to a future epoch."""
        begun = [self._raised(one, fence, fence.epoch - 1, until) for one in namespaces]
        return mapped(gathered(begun), lambda _: None)

    def _note(self, namespace: str, fence: Fence, until: float) -> Future[None]:
        calls = self._calls

        def read(answer: Answer) -> None:
            if not answer.applied:
                raise refusals.fenced(fence)

        statement = calls.statements.bind(
            "fence_off", {namespace}, calls.root, fence.service, fence.epoch
        )
        return calls.send(Ask(statement, read, writes=True), until)

    def _raised(
        self, namespace: str, fence: Fence, guess: int | None, until: float
    ) -> Future[None]:
        """Raise one fence, expected to be at *guess*, unless it is already as high."""
        calls, (service, epoch) = self._calls, fence

        def read(answer: Answer) -> Future[None] | None:
            if answer.applied:
                return None
            met = height(answer.rows[0], service)
            if met is None or met < epoch:
                return self._raised(namespace, fence, met, until)
            return None

        statement = calls.statements.bind(
            "raise_fence", service, epoch, calls.root, namespace, service, guess
        )
        return calls.send(Ask(statement, read, writes=True), until)


def height(row: Row, service: str) -> int | None:
    """Return the fence of *service* in a row of its partition."""
    fences: Mapping[str, int] | None = row.get("fences")
    return None if fences is None else fences.get(service)


NO_NAME = ""
"""The service that has the floor as its epoch: none is called that."""

_ROWS = 500
"""Number of services, those of other roots too, that one call looks at."""
_AT_ONCE = 20
"""Most services that one call removes."""
_LAST_TO_REMOVE = 2**62
"""Greater epochs are not kip30's: a floor as high as that would leave none for other services."""
_MICROSECONDS = 1_000_000


class _ServiceRemains(NamedTuple):
    """A vacant service."""

    service: str
    epoch: int
    fenced: frozenset[str]
    creation: int | None
    ring: int


class Pruning:
    """Removes services of one root. Thread-safe."""

    def __init__(self, calls: Calls, fences: Fences) -> None:
        """Prune with *calls*."""
        self._calls = calls
        self._fences = fences

    def prune(self, unused_seconds: float, after: str, *, dry_run: bool) -> Future[Pruned]:
        """Check the services behind the token *after*. See `kip30.driver.Backend.prune`."""
        self._calls.gate.check()
        until = self._calls.until()
        oldest = (time.time() - unused_seconds) * _MICROSECONDS if unused_seconds else float("inf")

        def read(answer: Answer) -> Future[Pruned]:
            left = _remains_of(answer.rows, self._calls.root, oldest)
            now = left[:_AT_ONCE]
            reached = _reached(answer.rows, now if len(left) > _AT_ONCE else ())
            if dry_run or not now:
                return Completed(_outcome([True] * len(now), reached))
            return mapped(self._remove(now, until), partial(_outcome, reached=reached))

        statement = self._calls.statements.bind("walk_leaders", int(after or FIRST), _ROWS)
        return self._calls.send(Ask(statement, read, scans=True), until)

    def _remove(self, some: Sequence[_ServiceRemains], until: float) -> Future[list[bool]]:
        """Return which of *some* were removed; those claimed meanwhile are not."""
        # Fences are raised by one: a client that has not noted them must not lead with that epoch.
        floor = 1 + max(one.epoch for one in some)
        raised = self._raise_floor(floor, None, until)
        return then(raised, lambda _: gathered([self._remove_one(one, until) for one in some]))

    def _raise_floor(self, floor: int, guess: int | None, until: float) -> Future[None]:
        calls = self._calls

        def read(answer: Answer) -> Future[None] | None:
            met: int | None = None if answer.applied else answer.rows[0].get("epoch")
            if answer.applied or (met is not None and met >= floor):
                return None
            return self._raise_floor(floor, met, until)

        statement = calls.statements.bind("raise_floor", floor, calls.root, NO_NAME, guess)
        return calls.send(Ask(statement, read, writes=True), until)

    def _remove_one(self, left: _ServiceRemains, until: float) -> Future[bool]:
        fence = Fence(left.service, left.epoch + 1)
        raised = self._fences.raise_all(left.fenced, fence, until)
        return then(raised, lambda _: self._delete(left, until))

    def _delete(self, left: _ServiceRemains, until: float) -> Future[bool]:
        bind, where = self._calls.statements.bind, (self._calls.root, left.service)
        both = [
            bind("prune_leaders", *where, left.epoch, set(left.fenced) or None),
            bind("prune_seat", *where, left.creation),
        ]
        statement = self._calls.statements.batch(both)
        return self._calls.send(Ask(statement, is_applied, writes=True), until)


def _remains_of(rows: Sequence[Row], root: str, oldest: float) -> list[_ServiceRemains]:
    """Return the vacant services of *root* whose last claim is older than *oldest*."""
    return [
        _ServiceRemains(
            row["service"],
            row["epoch"],
            frozenset[str](row["fenced"] or ()),
            row["beat"],
            row["ring"],
        )
        for row in rows
        if row["root"] == root
        and row["service"] != NO_NAME
        and row["nonce"] is None
        and row["epoch"] is not None
        and 0 <= row["epoch"] < _LAST_TO_REMOVE
        and row["written"] <= oldest
    ]


def _reached(rows: Sequence[Row], some: Sequence[_ServiceRemains]) -> str:
    """Return the token from which to continue: that of the last of *some*, or of all *rows*."""
    if some:
        return str(some[-1].ring)
    return str(rows[-1]["ring"]) if len(rows) == _ROWS else ""


def _outcome(removed: Sequence[bool], reached: str) -> Pruned:
    return Pruned({Kind.SERVICE: sum(removed)}, reached)


_LAST_EPOCH = 2**63 - 1
# Of a row found, not written now: too old to be valid before it is renewed.
_LONG_AGO = float("-inf")


class _Bid(NamedTuple):
    claim_row: ClaimRow
    nonce: str
    data: bytes
    until: float

    def holding(self, epoch: int, sent_at: float) -> Holding:
        return Holding(self.claim_row, Entry(Version(epoch), self.nonce, self.data), sent_at)


_MOST_KNOWN = 1000


class KnownServices:
    """The state of each service seen last, of those used last. Thread-safe.

    A guess, because each claim compares it in the store: a service that was forgotten costs a
    round trip. So it is limited: a client may claim services with names that are used once.
    """

    def __init__(self) -> None:
        """Know no service."""
        # The service that was used longest ago comes first. Used under the lock.
        self._states: OrderedDict[str, Service] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, service: str) -> Service:
        """Return the state of *service*, without its leader's data."""
        with self._lock:
            if service not in self._states:
                return Service()
            self._states.move_to_end(service)
            return self._states[service]

    def put(self, service: str, state: Service) -> None:
        """Remember *state*, except for the leader's data."""
        with self._lock:
            self._states[service] = state._replace(data=b"")
            self._states.move_to_end(service)
            if len(self._states) > _MOST_KNOWN:
                self._states.popitem(last=False)

    def forget(self, service: str) -> None:
        """Forget the state of *service*, if it is known."""
        with self._lock:
            self._states.pop(service, None)


class CassandraElection(ElectionDriver):
    """Services and their leaders.

    Candidates form no line: members of one line would be renewed by writes of one partition, and
    candidates poll a service at different moments anyway, so that few of them find it vacant.
    """

    forms_line = False

    def __init__(self, calls: Calls, claims: Claims, fences: Fences) -> None:
        """Keep leaders under the session of *claims*."""
        self._calls = calls
        self._claims = claims
        self._fences = fences
        # Written in the turn of the service, and when a leader was released.
        self._known = KnownServices()

    @override
    def claim(
        self, service: str, candidate: str, nonce: str, data: bytes
    ) -> Future[Claim | HeldByOther]:
        self._calls.gate.check()
        claim_row = ClaimRow("leaders", service, candidate)

        def work(until: float) -> Future[Claim | HeldByOther]:
            again = self._claims.held_already(claim_row, nonce)
            if again is not None:
                return Completed(again)
            self._claims.sessions.current()
            bid = _Bid(claim_row, nonce, data, until)
            return insist(partial(self._try, bid))

        return self._claims.in_turn(claim_row.place, work)

    @override
    def release(self, service: str, claim: Claim) -> Future[None]:
        self._calls.gate.check()
        return mapped(self._claims.give_up(claim), partial(self._released, service, claim))

    def _released(self, service: str, claim: Claim, _: None) -> None:
        known = self._known.get(service)
        if known.nonce == claim.entry.nonce:
            self._known.put(service, Service(known.epoch, known.fenced))

    def _try(self, bid: _Bid) -> Future[Claim | HeldByOther | None]:
        """Claim the next epoch; None if the claim must be retried.

        If the last term has ended, its fences are raised before.
        """
        if time.monotonic() >= bid.until:
            raise UnavailableError(
                f"gave up claiming {bid.claim_row.scope!r}: other clients keep writing it;"
                " nothing was claimed"
            )
        known = self._known.get(bid.claim_row.scope)
        if known.epoch == _LAST_EPOCH:
            self._known.forget(bid.claim_row.scope)  # it may be repaired meanwhile
            raise StoreError(_forged(bid.claim_row.scope))
        if known.epoch is None or known.epoch == NO_EPOCH:
            return self._first(bid, known)
        if not known.fenced:
            return self._take(bid, known, known.epoch + 1)
        if known.candidate is not None:
            return self._look(bid)
        fence = Fence(bid.claim_row.scope, known.epoch + 1)
        raised = self._fences.raise_all(known.fenced, fence, bid.until)
        return then(raised, lambda _: self._take(bid, known, fence.epoch))

    def _first(self, bid: _Bid, known: Service) -> Future[Claim | HeldByOther | None]:
        """Take the epoch above those of pruned services, once the service is marked."""
        if known.creation is None:
            return self._initialise_service(bid, known)
        calls = self._calls

        def read(answer: Answer) -> Future[Claim | HeldByOther | None]:
            floor = service_of(answer.rows).epoch or NO_EPOCH
            if floor == _LAST_EPOCH:
                raise StoreError(_forged(NO_NAME))
            return self._take(bid, known, floor + 1)

        statement = calls.statements.bind("read_floor", calls.root, NO_NAME)
        return calls.send(Ask(statement, read), bid.until)

    def _initialise_service(self, bid: _Bid, known: Service) -> Future[Claim | HeldByOther | None]:
        """Mark a service that had no leader yet, or read its state."""
        calls, creation, where = (
            self._calls,
            secrets.randbits(62),
            (self._calls.root, bid.claim_row.scope),
        )
        asked_at = calls.orders.stamp()

        def read(answer: Answer) -> Future[Claim | HeldByOther | None]:
            created = Service(NO_EPOCH, creation=creation)
            met = created if answer.applied else service_of(answer.rows)
            self._known.put(bid.claim_row.scope, met)
            return self._decide(bid, asked_at, met)

        begin = calls.statements.bind("begin_leaders", *where, known.epoch, None)
        both = calls.statements.batch(
            [begin, calls.statements.bind("create_seat", creation, *where)]
        )
        return calls.send(Ask(both, read, writes=True), bid.until)

    def _take(self, bid: _Bid, known: Service, epoch: int) -> Future[Claim | HeldByOther | None]:
        """Take the seat if it is empty, and the epoch and the fences are those that are *known*."""
        calls, claims = self._calls, self._claims
        asked_at, sent_at = calls.orders.stamp(), claims.now()

        def read(answer: Answer) -> Future[Claim | HeldByOther | None]:
            if not answer.applied:
                met = service_of(answer.rows)
                self._known.put(bid.claim_row.scope, met)
                if not answer.is_last and met.admits(known):
                    raise OutcomeUnknownError("a claim that was not answered may be granted yet")
                return self._decide(bid, asked_at, met)
            new = Service(epoch, known.fenced, bid.claim_row.name, bid.nonce, bid.data)
            self._known.put(bid.claim_row.scope, new)
            return self._taken(bid, new, sent_at)

        where = (calls.root, bid.claim_row.scope)
        advance = calls.statements.bind(
            "advance_leaders", epoch, *where, known.epoch, set(known.fenced) or None
        )
        seat = claims.table.take(
            bid.claim_row, bid.nonce, bid.data, calls.revisions.next(), known.creation
        )
        statement = calls.statements.batch([advance, seat])
        return calls.send(Ask(statement, read, writes=True), bid.until)

    def _decide(self, bid: _Bid, asked_at: int, met: Service) -> Future[Claim | HeldByOther | None]:
        """Continue from the state found: this client's claim, another client's, or none."""
        if not met.is_readable:
            self._known.forget(bid.claim_row.scope)  # it may be removed meanwhile
            checked(unreadable(seat_of(bid.claim_row.scope)))
        if met.candidate is None:
            return Completed(None)
        cleared = self._claims.clear(met.nonce, met.epoch or 0, bid.until)
        if cleared is not None:
            return mapped(cleared, lambda _: None)
        if met.nonce == bid.nonce:
            return self._taken(bid, met, _LONG_AGO)
        return Completed(HeldByOther(Snapshot(asked_at, met.leaders(bid.claim_row.scope))))

    def _taken(self, bid: _Bid, new: Service, sent_at: float) -> Future[Claim | HeldByOther | None]:
        taken = self._claims.taken(bid.holding(new.epoch or 0, sent_at), bid.until)
        return mapped(taken, lambda claim: claim)

    def _look(self, bid: _Bid) -> Future[Claim | HeldByOther | None]:
        """Continue from the state in the store."""
        calls, asked_at = self._calls, self._calls.orders.stamp()

        def read(answer: Answer) -> Future[Claim | HeldByOther | None]:
            met = service_of(answer.rows)
            self._known.put(bid.claim_row.scope, met)
            return self._decide(bid, asked_at, met)

        statement = calls.statements.bind("read_leaders", calls.root, bid.claim_row.scope)
        return calls.send(Ask(statement, read), bid.until)


def _forged(service: str) -> str:
    return (
        f"table leaders has epoch = {_LAST_EPOCH} where service = {service!r}: kip30 did not write"
        " that, and there is no greater one, so no client can lead; use another name for the"
        " service,"
        " or set it to the greatest epoch of any fence in use"
    )
