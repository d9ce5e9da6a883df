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
from typing import NamedTuple, TypeAlias

from typing_extensions import override

from kip30.driver import ElectionDriver
from kip30.driver.kit import refusals
from kip30.driver.kit.futures import gathered
from kip30.driver.kit.operation import Steps, begun
from kip30.driver.records import Claim, Entry, Fence, HeldByOther, Kind, Pruned, Snapshot, Version
from kip30.errors import OutcomeUnknownError, StoreError, UnavailableError
from kip30_backends.cassandra.calls import Calls, TypedRequest, rows_of
from kip30_backends.cassandra.claims import Claims
from kip30_backends.cassandra.client.connections import FIRST, Row
from kip30_backends.cassandra.session import ClaimRow, HeldClaim
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

    def raise_one(self, namespace: str, fence: Fence, until: float) -> Steps[None]:
        """Fence *namespace* for the current leader; `FencedError` if its term has ended."""
        if fence.epoch not in _EPOCHS:
            raise refusals.fenced(fence)
        calls = self._calls
        note = calls.statements.bind(
            "fence_off", {namespace}, calls.root, fence.service, fence.epoch
        )
        if not (yield from calls.write(note, until)).applied:
            raise refusals.fenced(fence)
        yield from self._raise(namespace, fence, until)

    def raise_all(self, namespaces: Iterable[str], fence: Fence, until: float) -> Steps[None]:
        """Raise the fence of a service in all *namespaces* to a future epoch."""
        yield gathered([begun(self._raise(one, fence, until)) for one in namespaces])

    def _raise(self, namespace: str, fence: Fence, until: float) -> Steps[None]:
        """Raise one fence, expected to be at the epoch before, unless it is already as high."""
        calls, (service, epoch) = self._calls, fence
        met: int | None = epoch - 1
        while met is None or met < epoch:
            statement = calls.statements.bind(
                "raise_fence", service, epoch, calls.root, namespace, service, met
            )
            answer = yield from calls.write(statement, until)
            met = epoch if answer.applied else height(answer.rows[0], service)


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
        oldest = (time.time() - unused_seconds) * _MICROSECONDS if unused_seconds else float("inf")
        return begun(self._prune(oldest, after, self._calls.until(), dry_run=dry_run))

    def _prune(self, oldest: float, after: str, until: float, *, dry_run: bool) -> Steps[Pruned]:
        statement = self._calls.statements.bind("walk_leaders", int(after or FIRST), _ROWS)
        rows: Sequence[Row] = yield self._calls.send(
            TypedRequest(statement, rows_of, scans=True), until
        )
        left = _remains_of(rows, self._calls.root, oldest)
        now = left[:_AT_ONCE]
        reached = _reached(rows, now if len(left) > _AT_ONCE else ())
        removed = [True] * len(now)
        if now and not dry_run:
            removed = yield from self._remove(now, until)
        return Pruned({Kind.SERVICE: sum(removed)}, reached)

    def _remove(self, some: Sequence[_ServiceRemains], until: float) -> Steps[list[bool]]:
        """Return which of *some* were removed; those claimed meanwhile are not."""
        # Fences are raised by one: a client that has not noted them must not lead with that epoch.
        yield from self._raise_floor(1 + max(one.epoch for one in some), until)
        removed: list[bool] = yield gathered([begun(self._remove_one(one, until)) for one in some])
        return removed

    def _raise_floor(self, floor: int, until: float) -> Steps[None]:
        calls = self._calls
        met: int | None = None
        while met is None or met < floor:
            statement = calls.statements.bind("raise_floor", floor, calls.root, NO_NAME, met)
            answer = yield from calls.write(statement, until)
            met = floor if answer.applied else answer.rows[0].get("epoch")

    def _remove_one(self, left: _ServiceRemains, until: float) -> Steps[bool]:
        fence = Fence(left.service, left.epoch + 1)
        yield from self._fences.raise_all(left.fenced, fence, until)
        return (yield from self._delete(left, until))

    def _delete(self, left: _ServiceRemains, until: float) -> Steps[bool]:
        bind, where = self._calls.statements.bind, (self._calls.root, left.service)
        both = [
            bind("prune_leaders", *where, left.epoch, set(left.fenced) or None),
            bind("prune_seat", *where, left.creation),
        ]
        return (yield from self._calls.write(self._calls.statements.batch(both), until)).applied


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


_LAST_EPOCH = 2**63 - 1
# Of a row found, not written now: too old to be valid before it is renewed.
_LONG_AGO = float("-inf")


class _ClaimRequest(NamedTuple):
    claim_row: ClaimRow
    nonce: str
    data: bytes
    until: float

    def holding(self, epoch: int, sent_at: float) -> HeldClaim:
        return HeldClaim(self.claim_row, Entry(Version(epoch), self.nonce, self.data), sent_at)


_Attempt: TypeAlias = Steps[Claim | HeldByOther | None]
"""An attempt to claim a service; its result is None if the claim must be retried."""

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

        def claimed(until: float) -> Steps[Claim | HeldByOther]:
            again = self._claims.held_already(claim_row, nonce)
            if again is not None:
                return again
            self._claims.sessions.current()
            wanted = _ClaimRequest(claim_row, nonce, data, until)
            while (outcome := (yield from self._try(wanted))) is None:
                pass
            return outcome

        return self._claims.in_turn(claim_row.place, claimed)

    @override
    def release(self, service: str, claim: Claim) -> Future[None]:
        self._calls.gate.check()
        return begun(self._release(service, claim))

    def _release(self, service: str, claim: Claim) -> Steps[None]:
        yield self._claims.give_up(claim)
        known = self._known.get(service)
        if known.nonce == claim.entry.nonce:
            self._known.put(service, Service(known.epoch, known.fenced))

    def _try(self, wanted: _ClaimRequest) -> _Attempt:
        """Claim the next epoch; None if the claim must be retried.

        If the last term has ended, its fences are raised before.
        """
        service = wanted.claim_row.scope
        if time.monotonic() >= wanted.until:
            raise UnavailableError(
                f"gave up claiming {service!r}: other clients keep writing it; nothing was claimed"
            )
        known = self._known.get(service)
        if known.epoch == _LAST_EPOCH:
            self._known.forget(service)  # it may be repaired meanwhile
            raise StoreError(_forged(service))
        if known.epoch is None or known.epoch == NO_EPOCH:
            return (yield from self._first(wanted, known))
        if known.fenced and known.candidate is not None:
            return (yield from self._look(wanted))
        fence = Fence(service, known.epoch + 1)
        if known.fenced:
            yield from self._fences.raise_all(known.fenced, fence, wanted.until)
        return (yield from self._take(wanted, known, fence.epoch))

    def _first(self, wanted: _ClaimRequest, known: Service) -> _Attempt:
        """Take the epoch above those of pruned services, once the service is marked."""
        if known.creation is None:
            return (yield from self._initialise_service(wanted, known))
        calls = self._calls
        statement = calls.statements.bind("read_floor", calls.root, NO_NAME)
        answer = yield from calls.read(statement, wanted.until)
        floor = service_of(answer.rows).epoch or NO_EPOCH
        if floor == _LAST_EPOCH:
            raise StoreError(_forged(NO_NAME))
        return (yield from self._take(wanted, known, floor + 1))

    def _initialise_service(self, wanted: _ClaimRequest, known: Service) -> _Attempt:
        """Mark a service that had no leader yet, or read its state."""
        calls, where = self._calls, (self._calls.root, wanted.claim_row.scope)
        creation = secrets.randbits(62)
        asked_at = calls.orders.stamp()
        begin = calls.statements.bind("begin_leaders", *where, known.epoch, None)
        create = calls.statements.bind("create_seat", creation, *where)
        answer = yield from calls.write(calls.statements.batch([begin, create]), wanted.until)
        created = Service(NO_EPOCH, creation=creation)
        met = created if answer.applied else service_of(answer.rows)
        self._known.put(wanted.claim_row.scope, met)
        return (yield from self._decide(wanted, asked_at, met))

    def _take(self, wanted: _ClaimRequest, known: Service, epoch: int) -> _Attempt:
        """Take the seat if it is empty, and the epoch and the fences are those that are *known*."""
        calls, claims, service = self._calls, self._claims, wanted.claim_row.scope
        asked_at, sent_at = calls.orders.stamp(), claims.now()
        fenced = set(known.fenced) or None
        advance = calls.statements.bind(
            "advance_leaders", epoch, calls.root, service, known.epoch, fenced
        )
        beat = calls.revisions.next()
        seat = claims.statements.take(
            wanted.claim_row, wanted.nonce, wanted.data, beat, known.creation
        )
        answer = yield from calls.write(calls.statements.batch([advance, seat]), wanted.until)
        if answer.applied:
            new = Service(epoch, known.fenced, wanted.claim_row.name, wanted.nonce, wanted.data)
            self._known.put(service, new)
            return (yield from self._taken(wanted, new, sent_at))
        met = service_of(answer.rows)
        self._known.put(service, met)
        if not answer.is_last and met.admits(known):
            raise OutcomeUnknownError("a claim that was not answered may be granted yet")
        return (yield from self._decide(wanted, asked_at, met))

    def _decide(self, wanted: _ClaimRequest, asked_at: int, met: Service) -> _Attempt:
        """Continue from the state found: this client's claim, another client's, or none."""
        service = wanted.claim_row.scope
        if not met.is_readable:
            self._known.forget(service)  # it may be removed meanwhile
            checked(unreadable(seat_of(service)))
        if met.candidate is None:
            return None
        if (yield from self._claims.cleared(met.nonce, met.epoch or 0, wanted.until)):
            return None
        if met.nonce == wanted.nonce:
            return (yield from self._taken(wanted, met, _LONG_AGO))
        return HeldByOther(Snapshot(asked_at, met.leaders(service)))

    def _taken(self, wanted: _ClaimRequest, new: Service, sent_at: float) -> Steps[Claim | None]:
        return self._claims.taken(wanted.holding(new.epoch or 0, sent_at), wanted.until)

    def _look(self, wanted: _ClaimRequest) -> _Attempt:
        """Continue from the state in the store."""
        calls, service = self._calls, wanted.claim_row.scope
        asked_at = calls.orders.stamp()
        statement = calls.statements.bind("read_leaders", calls.root, service)
        met = service_of((yield from calls.read(statement, wanted.until)).rows)
        self._known.put(service, met)
        return (yield from self._decide(wanted, asked_at, met))


def _forged(service: str) -> str:
    return (
        f"table leaders has epoch = {_LAST_EPOCH} where service = {service!r}: kip30 did not write"
        " that, and there is no greater one, so no client can lead; use another name for the"
        " service,"
        " or set it to the greatest epoch of any fence in use"
    )
