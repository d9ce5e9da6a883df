"""Taking and giving up keys that end with the session: what members and leaders have in common."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import NamedTuple, TypeVar

from kip30.driver.record_format import seal
from kip30.driver.records import Claim, Entry, Version
from kip30_backends.consul import transactions
from kip30_backends.consul.client.exchange import Exchange
from kip30_backends.consul.order import Mark
from kip30_backends.consul.request import Calls
from kip30_backends.consul.session import Session, Sessions
from kip30_backends.consul.transactions import Record, at_key

T = TypeVar("T")

_ABSENT = "doesn't exist"
_LOCK_DELAY = "due to lock delay"
_NO_SESSION = "invalid session"
_MOST_FREED = transactions.MAX_OPS // 2
DELAYED_SECONDS = 0.1
"""In how long to try again while a lock-delay runs; Consul tells neither its end nor its length."""


class Bid(NamedTuple):
    """Who wants *key*: a *name* (*label* in the record, where the key does not tell) and record.

    *place* is what is read or watched to see it.
    """

    place: str
    key: str
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


class Hold(NamedTuple):
    """How a claim holds its key: by which session, and when it was written last."""

    session: Session
    modified: int


class Refused(NamedTuple):
    """Who has the key instead, at which order."""

    order: int
    holder: Record


class Delayed(NamedTuple):
    """The key is free, and no client can take it before a lock-delay is over."""

    order: int


class Claims:
    """Keys with an owner."""

    def __init__(self, calls: Calls, sessions: Sessions) -> None:
        """Tie keys to the session of *sessions*."""
        self._calls = calls
        self._sessions = sessions

    def try_to_take(self, bid: Bid, meaning: Callable[[Claim | Refused | Delayed], T]) -> Future[T]:
        """Take a key if it is free; *meaning* makes the answer of what came of it."""
        return self._calls.on_demand(lambda exchange: meaning(self._take(bid, exchange)))

    def take(self, bid: Bid, meaning: Callable[[Claim | Refused], T]) -> Future[T]:
        """Do that, and wait for the end of a lock-delay."""
        return self._calls.on_demand(lambda exchange: meaning(self._wait_and_take(bid, exchange)))

    def replace(self, bid: Bid, claim: Claim) -> Future[Claim | None]:
        """Give the record of *claim* other contents; None if it is gone."""
        return self._calls.on_demand(lambda exchange: self._replace(bid, claim, exchange))

    def give_up(self, key: str, claim: Claim) -> Future[None]:
        """Delete *key* if *claim* still has it."""
        return self._calls.on_demand(lambda exchange: self._give_up(key, claim, exchange))

    def give_up_all(self, held: Sequence[tuple[str, Claim]]) -> list[Future[None]]:
        """Delete each key that its claim still has, many in a transaction."""
        answers: list[Future[None]] = []
        for at in range(0, len(held), _MOST_FREED):
            part = held[at : at + _MOST_FREED]
            done = self._calls.begin(partial(self._give_up_together, part))
            answers += [done] * len(part)
        return answers

    def _give_up_together(self, held: Sequence[tuple[str, Claim]], exchange: Exchange) -> None:
        """Delete all keys in one transaction; those that are refused by themselves.

        What was deleted unheard is refused the next time, and then found to be released.
        """
        pairs = [(_still_held(key, one.handle), transactions.delete(key)) for key, one in held]
        outcome = exchange.ask(transactions.write([one for pair in pairs for one in pair]))
        if not outcome.refusals:
            for key, claim in held:
                claim.handle.session.held.discard(key)
            return
        refused = {refusal.number // 2 for refusal in outcome.refusals}
        rest = [one for number, one in enumerate(held) if number not in refused]
        if rest:
            self._give_up_together(rest, exchange)
        for number in refused:
            self._give_up(*held[number], exchange)

    def _wait_and_take(self, bid: Bid, exchange: Exchange) -> Claim | Refused:
        while isinstance(answer := self._take(bid, exchange), Delayed):
            exchange.pause(DELAYED_SECONDS)
        return answer

    def _take(self, bid: Bid, exchange: Exchange) -> Claim | Refused | Delayed:
        while True:
            session = self._sessions.current(exchange)
            mark = self._calls.orders.mark(bid.place)
            outcome = exchange.ask(transactions.write(_taking(bid, session)))
            if not outcome.refusals:
                return self._taken(bid, session, outcome.records[-1], mark)
            if outcome.says(_NO_SESSION):
                self._sessions.lost(session)
            else:
                answer = self._held(bid, session, exchange)
                if isinstance(answer, Claim | Refused) or outcome.says(_LOCK_DELAY):
                    return answer

    def _held(self, bid: Bid, session: Session, exchange: Exchange) -> Claim | Refused | Delayed:
        """Return who has the key, if it is not free by now."""
        mark = self._calls.orders.mark(bid.key)
        found = exchange.ask(at_key(bid.key))
        free = Delayed(self._calls.orders.of(found.at, mark))
        if not found.records:
            return free
        (holder,) = found.records
        nonce = holder.unsealed().nonce
        if not holder.session:  # as after a backup was restored
            exchange.ask(
                transactions.clear([transactions.delete_over(holder.key, holder.modified)])
            )
            return free
        if (holder.session, nonce) == (session.ident, bid.nonce):
            since_ever = self._calls.orders.mark(bid.place)._replace(at=0)
            return self._taken(bid, session, holder, since_ever)
        return Refused(self._calls.orders.of(found.at, mark), holder)

    def _taken(self, bid: Bid, session: Session, record: Record, mark: Mark) -> Claim:
        session.held.add(bid.key)
        order = self._calls.orders.of(record.modified, mark)
        entry = bid.entry(record.created)
        return Claim(bid.name, entry, session.lease, order, Hold(session, record.modified))

    def _replace(self, bid: Bid, claim: Claim, exchange: Exchange) -> Claim | None:
        hold: Hold | None = claim.handle
        while hold is not None:
            mark = self._calls.orders.mark(bid.place)
            put = transactions.put(bid.key, bid.sealed())
            outcome = exchange.ask(transactions.write([_still_held(bid.key, hold), put]))
            if not outcome.refusals:
                replaced = self._taken(bid, hold.session, outcome.records[-1], mark)
                return replaced._replace(entry=bid.entry(claim.entry.version.major))
            hold = _held_by_now(bid.key, claim, outcome, exchange)
        return None

    def _give_up(self, key: str, claim: Claim, exchange: Exchange) -> None:
        hold: Hold | None = claim.handle
        while hold is not None:
            delete = transactions.delete(key)
            outcome = exchange.ask(transactions.write([_still_held(key, hold), delete]))
            if not outcome.refusals:
                hold.session.held.discard(key)
                return
            hold = _held_by_now(key, claim, outcome, exchange)


def _taking(bid: Bid, session: Session) -> list[transactions.Operation]:
    lock = transactions.lock(bid.key, bid.sealed(), session.ident)
    return [transactions.is_absent(bid.key), lock]


def _still_held(key: str, hold: Hold) -> transactions.Operation:
    return transactions.was_modified(key, hold.modified)


def _held_by_now(
    key: str, claim: Claim, outcome: transactions.Outcome, exchange: Exchange
) -> Hold | None:
    """Return how *claim* holds *key* after all: its record may have been replaced, unheard."""
    if outcome.says(_ABSENT):
        return None
    hold: Hold = claim.handle
    for record in exchange.ask(at_key(key)).records:
        if (record.created, record.session) == (claim.entry.version.major, hold.session.ident):
            return hold._replace(modified=record.modified)
    return None
