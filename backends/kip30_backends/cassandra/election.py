"""Leaders: a partition per service, with an epoch that stays and a seat with a time to live.

An epoch must never come again, because a write that was fenced with it may still be on its way. So
before a partition that is not used any more is pruned, the *floor* of the root is raised: the epoch
of the service without a name, above all that are removed. Then the fences of the service are raised
above its last epoch, as before a claim; then its partition is deleted, unless it was claimed or
fenced meanwhile. Each of these steps leaves everything right if the next one is never done.

A conditional write sees one partition, so no claim can compare the floor. Therefore the first claim
of a service without a partition takes three steps: it marks the partition with a random number, its
*birth*, reads the floor, and takes the next epoch on the condition that the birth is still there.
While it is, no partition of that service has been pruned; so the floor that was read after the
birth is above all its epochs.
"""

import secrets
import time
from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial
from typing import NamedTuple

from typing_extensions import override

from kip30.driver import ElectionDriver
from kip30.driver.kit.following import gathered, then
from kip30.driver.kit.futures import Completed, mapped
from kip30.driver.records import Claim, Entry, Fence, Held, Kind, Pruned, Snapshot, Version
from kip30.errors import OutcomeUnknownError, StoreError, UnavailableError
from kip30_backends.cassandra.batched_reads import checked, unreadable
from kip30_backends.cassandra.claims import Claims, insist
from kip30_backends.cassandra.client.library import Row
from kip30_backends.cassandra.client.statements import FIRST
from kip30_backends.cassandra.fences import Fences
from kip30_backends.cassandra.request import Answer, Ask, Calls
from kip30_backends.cassandra.session import ClaimRow, Holding

NO_NAME = ""
"""The service that has the floor as its epoch: none is called that."""

_ROWS = 500
"""How many services, those of other roots too, one call looks at."""
_AT_ONCE = 20
"""How many it removes."""
_LAST_TO_REMOVE = 2**62
"""Greater epochs are not kip30's: a floor as high as that would leave none for other services."""
_MICROSECONDS = 1_000_000


class _Left(NamedTuple):
    """What is left of a service."""

    service: str
    epoch: int
    fenced: frozenset[str]
    birth: int | None
    ring: int


class Pruning:
    """Removes services of one root. Thread-safe."""

    def __init__(self, calls: Calls, fences: Fences) -> None:
        """Ask with *calls*."""
        self._calls = calls
        self._fences = fences

    def prune(self, unused_seconds: float, after: str, *, dry_run: bool) -> Future[Pruned]:
        """Look at the services behind the token *after*. See `kip30.driver.Backend.prune`."""
        self._calls.check()
        until = self._calls.until()
        oldest = (time.time() - unused_seconds) * _MICROSECONDS if unused_seconds else float("inf")

        def read(answer: Answer) -> Future[Pruned]:
            left = _left_of(answer.rows, self._calls.root, oldest)
            now = left[:_AT_ONCE]
            reached = _reached(answer.rows, now if len(left) > _AT_ONCE else ())
            if dry_run or not now:
                return Completed(_outcome([True] * len(now), reached))
            return mapped(self._remove(now, until), partial(_outcome, reached=reached))

        statement = self._calls.statements.bind("walk_leaders", int(after or FIRST), _ROWS)
        return self._calls.send(Ask(statement, read, scans=True), until)

    def _remove(self, some: Sequence[_Left], until: float) -> Future[list[bool]]:
        """Return which of *some* are removed; not those that are claimed meanwhile."""
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

    def _remove_one(self, left: _Left, until: float) -> Future[bool]:
        fence = Fence(left.service, left.epoch + 1)
        raised = self._fences.raise_all(left.fenced, fence, until)
        return then(raised, lambda _: self._delete(left, until))

    def _delete(self, left: _Left, until: float) -> Future[bool]:
        bind, where = self._calls.statements.bind, (self._calls.root, left.service)
        both = [
            bind("prune_leaders", *where, left.epoch, set(left.fenced) or None),
            bind("prune_seat", *where, left.birth),
        ]
        statement = self._calls.statements.batch(both)
        return self._calls.send(Ask(statement, _applied, writes=True), until)


def _left_of(rows: Sequence[Row], root: str, oldest: float) -> list[_Left]:
    """Return the vacant services of *root* that were last claimed by then."""
    return [
        _Left(
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


def _reached(rows: Sequence[Row], some: Sequence[_Left]) -> str:
    """Return behind which token to go on: that of the last of *some*, or of all *rows*."""
    if some:
        return str(some[-1].ring)
    return str(rows[-1]["ring"]) if len(rows) == _ROWS else ""


def _outcome(removed: Sequence[bool], reached: str) -> Pruned:
    return Pruned({Kind.SERVICE: sum(removed)}, reached)


def _applied(answer: Answer) -> bool:
    return answer.applied


_LAST_EPOCH = 2**63 - 1
_UNLED = 0
"""The epoch of a service that was not led yet, or of which nothing was left."""
_LONG_AGO = float("-inf")


class Service(NamedTuple):
    """What there is to know of a service.

    Attributes:
        epoch: The newest one; None before the first.
        fenced: The namespaces with a fence of this service.
        candidate: Who leads, or None.
        nonce: Of the leader's record.
        data: The leader's own.
        is_readable: Whether the row of the leader is one of kip30's, if there is one.
        birth: What it was marked with before it was first led; see `pruning`. None if it was led.
    """

    epoch: int | None = None
    fenced: frozenset[str] = frozenset()
    candidate: str | None = None
    nonce: str = ""
    data: bytes = b""
    is_readable: bool = True
    birth: int | None = None

    def admits(self, other: "Service") -> bool:
        """Say whether a claim that knew *other* can be granted once the service has no leader."""
        mine = (self.epoch, self.fenced, self.birth)
        return mine == (other.epoch, other.fenced, other.birth)

    def leaders(self, service: str) -> dict[str, Entry]:
        """Return who leads, as `readings.snapshot` takes it."""
        if not self.is_readable:
            return {service: unreadable(_place(service))}
        if self.candidate is None:
            return {}
        return {self.candidate: Entry(Version(self.epoch or 0), self.nonce, self.data)}


class _Bid(NamedTuple):
    claim_row: ClaimRow
    nonce: str
    data: bytes
    until: float

    def holding(self, epoch: int, sent_at: float) -> Holding:
        return Holding(self.claim_row, Entry(Version(epoch), self.nonce, self.data), sent_at)


def service_of(rows: Sequence[Row]) -> Service:
    """Return what the rows of a partition tell of its service."""
    if not rows:
        return Service()
    first = rows[0]
    epoch, fenced = first.get("epoch"), frozenset[str](first.get("fenced") or ())
    for row in rows:
        candidate, nonce, data = row.get("candidate"), row.get("nonce"), row.get("data")
        if candidate is not None and nonce and data is not None:
            return Service(epoch, fenced, candidate, nonce, data)
        if candidate is not None or nonce is not None or data is not None:
            return Service(epoch, fenced, candidate, is_readable=False)
    return Service(epoch, fenced, birth=first.get("beat") if epoch == _UNLED else None)


class CassandraElection(ElectionDriver):
    """Services and who leads them."""

    def __init__(self, calls: Calls, claims: Claims, fences: Fences) -> None:
        """Keep leaders under the session of *claims*."""
        self._calls = calls
        self._claims = claims
        self._fences = fences
        self._known: dict[str, Service] = {}

    @override
    def claim(self, service: str, candidate: str, nonce: str, data: bytes) -> Future[Claim | Held]:
        self._calls.check()
        claim_row = ClaimRow("leaders", service, candidate)

        def work(until: float) -> Future[Claim | Held]:
            again = self._claims.again(claim_row, nonce)
            if again is not None:
                return Completed(again)
            self._claims.sessions.current()
            bid = _Bid(claim_row, nonce, data, until)
            return insist(partial(self._try, bid))

        return self._claims.in_turn(claim_row.place, work)

    @override
    def release(self, service: str, claim: Claim) -> Future[None]:
        self._calls.check()
        return mapped(self._claims.give_up(claim), partial(self._released, service, claim))

    def _released(self, service: str, claim: Claim, _: None) -> None:
        known = self._known.get(service)
        if known is not None and known.nonce == claim.entry.nonce:
            self._known[service] = Service(known.epoch, known.fenced)

    def _try(self, bid: _Bid) -> Future[Claim | Held | None]:
        """Claim the next epoch; None if that is to be tried again.

        The fences of the last one are raised before, if it is over.
        """
        if time.monotonic() >= bid.until:
            raise UnavailableError(
                f"gave up claiming {bid.claim_row.scope!r}: other clients write it all the time;"
                " nothing was claimed"
            )
        known = self._known.get(bid.claim_row.scope, Service())
        if known.epoch == _LAST_EPOCH:
            self._known.pop(bid.claim_row.scope)  # it may be mended meanwhile
            raise StoreError(_forged(bid.claim_row.scope))
        if known.epoch is None or known.epoch == _UNLED:
            return self._first(bid, known)
        if not known.fenced:
            return self._take(bid, known, known.epoch + 1)
        if known.candidate is not None:
            return self._look(bid)
        fence = Fence(bid.claim_row.scope, known.epoch + 1)
        raised = self._fences.raise_all(known.fenced, fence, bid.until)
        return then(raised, lambda _: self._take(bid, known, fence.epoch))

    def _first(self, bid: _Bid, known: Service) -> Future[Claim | Held | None]:
        """Take the epoch after all that were pruned, once the service is known to be marked."""
        if known.birth is None:
            return self._bear(bid, known)
        calls = self._calls

        def read(answer: Answer) -> Future[Claim | Held | None]:
            floor = service_of(answer.rows).epoch or _UNLED
            if floor == _LAST_EPOCH:
                raise StoreError(_forged(NO_NAME))
            return self._take(bid, known, floor + 1)

        statement = calls.statements.bind("read_floor", calls.root, NO_NAME)
        return calls.send(Ask(statement, read), bid.until)

    def _bear(self, bid: _Bid, known: Service) -> Future[Claim | Held | None]:
        """Mark a service as one that was not led yet, or see what is there."""
        calls, birth, where = (
            self._calls,
            secrets.randbits(62),
            (self._calls.root, bid.claim_row.scope),
        )
        asked_at = calls.orders.tell()

        def read(answer: Answer) -> Future[Claim | Held | None]:
            born = Service(_UNLED, birth=birth)
            met = self._known[bid.claim_row.scope] = (
                born if answer.applied else service_of(answer.rows)
            )
            return self._decide(bid, asked_at, met)

        begin = calls.statements.bind("begin_leaders", *where, known.epoch, None)
        both = calls.statements.batch([begin, calls.statements.bind("bear_seat", birth, *where)])
        return calls.send(Ask(both, read, writes=True), bid.until)

    def _take(self, bid: _Bid, known: Service, epoch: int) -> Future[Claim | Held | None]:
        """Take the seat if it is empty, and the epoch and the fences are those that are *known*."""
        calls, claims = self._calls, self._claims
        asked_at, sent_at = calls.orders.tell(), claims.now()

        def read(answer: Answer) -> Future[Claim | Held | None]:
            if not answer.applied:
                met = service_of(answer.rows)
                self._known[bid.claim_row.scope] = met
                if not answer.is_last and met.admits(known):
                    raise OutcomeUnknownError("a claim that was not answered may be granted yet")
                return self._decide(bid, asked_at, met)
            new = Service(epoch, known.fenced, bid.claim_row.name, bid.nonce, bid.data)
            self._known[bid.claim_row.scope] = new
            return self._taken(bid, new, sent_at)

        where = (calls.root, bid.claim_row.scope)
        advance = calls.statements.bind(
            "advance_leaders", epoch, *where, known.epoch, set(known.fenced) or None
        )
        seat = claims.table.take(
            bid.claim_row, bid.nonce, bid.data, calls.revisions.next(), known.birth
        )
        statement = calls.statements.batch([advance, seat])
        return calls.send(Ask(statement, read, writes=True), bid.until)

    def _decide(self, bid: _Bid, asked_at: int, met: Service) -> Future[Claim | Held | None]:
        """Go on from what was met: our own claim, another client's, or none."""
        if not met.is_readable:
            self._known.pop(bid.claim_row.scope, None)  # it may be removed meanwhile
            checked(unreadable(_place(bid.claim_row.scope)))
        if met.candidate is None:
            return Completed(None)
        cleared = self._claims.clear(met.nonce, bid.until)
        if cleared is not None:
            return mapped(cleared, lambda _: None)
        if met.nonce == bid.nonce:
            return self._taken(bid, met, _LONG_AGO)
        return Completed(Held(Snapshot(asked_at, met.leaders(bid.claim_row.scope))))

    def _taken(self, bid: _Bid, new: Service, sent_at: float) -> Future[Claim | Held | None]:
        taken = self._claims.taken(bid.holding(new.epoch or 0, sent_at), bid.until)
        return mapped(taken, lambda claim: claim)

    def _look(self, bid: _Bid) -> Future[Claim | Held | None]:
        """Go on from what is there."""
        calls, asked_at = self._calls, self._calls.orders.tell()

        def read(answer: Answer) -> Future[Claim | Held | None]:
            met = self._known[bid.claim_row.scope] = service_of(answer.rows)
            return self._decide(bid, asked_at, met)

        statement = calls.statements.bind("read_leaders", calls.root, bid.claim_row.scope)
        return calls.send(Ask(statement, read), bid.until)


def _place(service: str) -> str:
    return f"service = {service!r} and seat = 0 in table leaders"


def _forged(service: str) -> str:
    return (
        f"table leaders has epoch = {_LAST_EPOCH} where service = {service!r}: kip30 did not write"
        " that, and there is no greater one, so no client can lead; use another name for the"
        " service,"
        " or set it to the greatest epoch of any fence in use"
    )
