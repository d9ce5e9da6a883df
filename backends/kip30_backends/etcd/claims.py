"""Taking and giving up keys that end with the session: what members and leaders have in common."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, NamedTuple, TypeVar

from kip30.driver.kit.futures import Completed
from kip30.driver.record_format import Unsealed, seal
from kip30.driver.records import Claim, Entry, Version
from kip30_backends.etcd.client import messages
from kip30_backends.etcd.client.channel import TXN
from kip30_backends.etcd.client.messages import TxnAnswer
from kip30_backends.etcd.order import Mark
from kip30_backends.etcd.request import Ask, Calls
from kip30_backends.etcd.session import Again, Session, Sessions
from kip30_backends.etcd.snapshots import unsealed

T = TypeVar("T")

_MOST = 100
"""How many nested transactions are in one: what they do counts against the same limit of 128."""


class Bid(NamedTuple):
    """Who wants *key*: a *name* (*label* in the record, where the key does not tell) and record."""

    key: bytes
    name: str
    nonce: str
    data: bytes
    label: str = ""

    def sealed(self) -> bytes:
        """Return the record as it is stored."""
        return seal(self.nonce, self.data, name=self.label)

    def entry(self, created: int) -> Entry:
        """Return the record as the holder of the key since *created* has it."""
        return Entry(Version(created), self.nonce, self.data)


class Refused(NamedTuple):
    """Who has the key instead, at which order."""

    order: int
    holder: Unsealed
    created: int


class Claims:
    """Keys with an owner."""

    def __init__(self, calls: Calls, sessions: Sessions) -> None:
        """Tie keys to the lease of *sessions*."""
        self._calls = calls
        self._sessions = sessions

    def take(self, bid: Bid, meaning: Callable[[Claim | Refused], T]) -> Future[T]:
        """Take a key if it is free; *meaning* makes the answer of what came of it."""
        return self._sessions.within(partial(self._take, bid, meaning))

    def replace(self, bid: Bid, claim: Claim) -> Future[Claim | None]:
        """Give the record of *claim* other contents; None if it is gone."""
        session: Session = claim.handle

        def read(answer: TxnAnswer, sent: Mark) -> Claim | None:
            order = self._calls.orders.of(answer.header, sent)
            entry = bid.entry(claim.entry.version.major)
            return claim._replace(entry=entry, order=order) if answer.succeeded else None

        put = messages.put(bid.key, bid.sealed(), session.ident)
        request = messages.txn(_still_held(bid.key, claim), [put])
        ask = Ask(TXN, request, read, writes=True, if_gone=_none, lease=session.ident)
        return self._calls.send(ask)

    def give_up(self, key: bytes, claim: Claim) -> Future[None]:
        """Delete *key* if *claim* still has it."""
        if self._sessions.has_ended(claim.handle):
            return Completed(None)
        return self._calls.send(Ask(TXN, _giving_up(key, claim), self._given_up, writes=True))

    def give_up_all(self, held: Sequence[tuple[bytes, Claim]]) -> list[Future[None]]:
        """Delete each key that its claim still has, many in a transaction."""
        answers: list[Future[None]] = []
        for at in range(0, len(held), _MOST):
            part = held[at : at + _MOST]
            request = messages.txn([], [messages.nested(_giving_up(*one)) for one in part])
            done = self._calls.send(Ask(TXN, request, self._given_up, writes=True))
            answers += [done] * len(part)
        return answers

    def _take(
        self,
        bid: Bid,
        meaning: Callable[[Claim | Refused], T],
        session: Session,
        seconds: float,
        if_gone: Again[T] | None,
    ) -> Future[T]:
        def read(answer: TxnAnswer, sent: Mark) -> T:
            return meaning(self._taken(bid, session, answer, sent))

        free = [messages.is_absent(bid.key)]
        take = [messages.put(bid.key, bid.sealed(), session.ident)]
        request = messages.txn(free, take, [messages.find(bid.key)])
        ask = Ask(TXN, request, read, writes=True, if_gone=if_gone, lease=session.ident)
        return self._calls.on_demand(ask, seconds)

    def _taken(self, bid: Bid, session: Session, answer: TxnAnswer, sent: Mark) -> Claim | Refused:
        order = self._calls.orders.of(answer.header, sent)
        if answer.succeeded:
            return _claim(bid, session, order, answer.header.revision)
        found = answer.responses[0].response_range.kvs[0]
        holder = unsealed(found)
        if found.lease == session.ident and holder.nonce == bid.nonce:
            return _claim(bid, session, order, found.create_revision)
        return Refused(order, holder, found.create_revision)

    def _given_up(self, answer: TxnAnswer, sent: Mark) -> None:
        self._calls.orders.of(answer.header, sent)


def _giving_up(key: bytes, claim: Claim) -> Any:
    return messages.txn(_still_held(key, claim), [messages.delete(key)])


def _none() -> Future[Claim | None]:
    return Completed(None)


def _claim(bid: Bid, session: Session, order: int, created: int) -> Claim:
    return Claim(bid.name, bid.entry(created), session.lease, order, session)


def _still_held(key: bytes, claim: Claim) -> list[object]:
    session: Session = claim.handle
    return [
        messages.was_created(key, claim.entry.version.major),
        messages.ends_with(key, session.ident),
    ]
