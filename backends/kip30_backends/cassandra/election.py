"""Leaders: a partition per service, with an epoch that stays and a seat with a time to live."""

import time
from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial
from typing import NamedTuple

from typing_extensions import override

from kip30.driver import ElectionDriver
from kip30.errors import OutcomeUnknownError, UnavailableError
from kip30.following import then
from kip30.futures import Completed, mapped
from kip30.records import Claim, Entry, Fence, Held, Snapshot, Version
from kip30_backends.cassandra.attempts import insist
from kip30_backends.cassandra.call import Answer, Ask
from kip30_backends.cassandra.calls import Calls
from kip30_backends.cassandra.claims import Claims
from kip30_backends.cassandra.fences import Fences
from kip30_backends.cassandra.library import Row
from kip30_backends.cassandra.posts import Holding, Post

_LONG_AGO = float("-inf")


class Service(NamedTuple):
    """What there is to know of a service.

    Attributes:
        epoch: The newest one; None before the first.
        fenced: The namespaces with a fence of this service.
        candidate: Who leads, or None.
        nonce: Of the leader's record.
        data: The leader's own.
    """

    epoch: int | None = None
    fenced: frozenset[str] = frozenset()
    candidate: str | None = None
    nonce: str = ""
    data: bytes = b""

    def admits(self, other: "Service") -> bool:
        """Say whether a claim that knew *other* can be granted once nobody leads."""
        return (self.epoch, self.fenced) == (other.epoch, other.fenced)

    def leaders(self) -> dict[str, Entry]:
        """Return who leads, as a snapshot has it."""
        if self.candidate is None:
            return {}
        return {self.candidate: Entry(Version(self.epoch or 0), self.nonce, self.data)}


class _Bid(NamedTuple):
    post: Post
    nonce: str
    data: bytes
    until: float

    def holding(self, epoch: int, sent_at: float) -> Holding:
        return Holding(self.post, Entry(Version(epoch), self.nonce, self.data), sent_at)


def service_of(rows: Sequence[Row]) -> Service:
    """Return what the rows of a partition tell of its service."""
    if not rows:
        return Service()
    first = rows[0]
    epoch, fenced = first.get("epoch"), frozenset[str](first.get("fenced") or ())
    for row in rows:
        if row.get("nonce") is not None:
            return Service(epoch, fenced, row["candidate"], row["nonce"], row["data"] or b"")
    return Service(epoch, fenced)


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
        post = Post("leaders", service, candidate)

        def work(until: float) -> Future[Claim | Held]:
            again = self._claims.again(post, nonce)
            if again is not None:
                return Completed(again)
            self._claims.sessions.current()
            bid = _Bid(post, nonce, data, until)
            return insist(partial(self._try, bid))

        return self._claims.in_turn(post.place, work)

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
            raise UnavailableError("others were quicker, again and again")
        known = self._known.get(bid.post.scope, Service())
        if not known.fenced:
            return self._take(bid, known)
        if known.candidate is not None:
            return self._look(bid)
        fence = Fence(bid.post.scope, (known.epoch or 0) + 1)
        raised = self._fences.raise_all(known.fenced, fence, bid.until)
        return then(raised, lambda _: self._take(bid, known))

    def _take(self, bid: _Bid, known: Service) -> Future[Claim | Held | None]:
        """Take the seat if it is empty, and the epoch and the fences are those that are *known*."""
        calls, claims, epoch = self._calls, self._claims, (known.epoch or 0) + 1
        asked_at, sent_at = calls.orders.tell(), claims.now()

        def read(answer: Answer) -> Future[Claim | Held | None]:
            if not answer.applied:
                met = service_of(answer.rows)
                self._known[bid.post.scope] = met
                if not answer.is_last and met.admits(known):
                    raise OutcomeUnknownError("a claim that was not answered may be granted yet")
                return self._decide(bid, asked_at, met)
            new = Service(epoch, known.fenced, bid.post.name, bid.nonce, bid.data)
            self._known[bid.post.scope] = new
            return self._taken(bid, new, sent_at)

        where = (calls.root, bid.post.scope)
        advance = calls.statements.bind(
            "advance_leaders", epoch, *where, known.epoch, set(known.fenced) or None
        )
        seat = claims.table.take(bid.post, bid.nonce, bid.data, calls.revisions.next())
        statement = calls.statements.batch([advance, seat])
        return calls.send(Ask(statement, read, writes=True), bid.until)

    def _decide(self, bid: _Bid, asked_at: int, met: Service) -> Future[Claim | Held | None]:
        """Go on from what was met: our own claim, somebody else's, or none."""
        if met.candidate is None:
            return Completed(None)
        cleared = self._claims.clear(met.nonce, bid.until)
        if cleared is not None:
            return mapped(cleared, lambda _: None)
        if met.nonce == bid.nonce:
            return self._taken(bid, met, _LONG_AGO)
        return Completed(Held(Snapshot(asked_at, met.leaders())))

    def _taken(self, bid: _Bid, new: Service, sent_at: float) -> Future[Claim | Held | None]:
        taken = self._claims.taken(bid.holding(new.epoch or 0, sent_at), bid.until)
        return mapped(taken, lambda claim: claim)

    def _look(self, bid: _Bid) -> Future[Claim | Held | None]:
        """Go on from what is there."""
        calls, asked_at = self._calls, self._calls.orders.tell()

        def read(answer: Answer) -> Future[Claim | Held | None]:
            met = self._known[bid.post.scope] = service_of(answer.rows)
            return self._decide(bid, asked_at, met)

        statement = calls.statements.bind("read_leaders", calls.root, bid.post.scope)
        return calls.send(Ask(statement, read), bid.until)
