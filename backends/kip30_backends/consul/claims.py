"""Shared code of members and leaders: keys that are taken, and end with the session."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import NamedTuple, TypeVar

from typing_extensions import override

from kip30.driver.kit import key_claims, refusals
from kip30.driver.kit.key_claims import Refused
from kip30.driver.records import Claim
from kip30.errors import StoreError
from kip30_backends.consul import transactions
from kip30_backends.consul.calls import Calls
from kip30_backends.consul.client.operation_requests import OperationRequests
from kip30_backends.consul.observation_order import OrderMark
from kip30_backends.consul.session import Session, Sessions
from kip30_backends.consul.transactions import KVPair, at_key

T = TypeVar("T")

_ABSENT = "doesn't exist"
_LOCK_DELAY = "due to lock delay"
_NO_SESSION = "invalid session"
_MOST_FREED = transactions.MAX_OPS // 2
DELAYED_SECONDS = 0.1
"""Seconds until a retry while a lock-delay runs; Consul reports neither its end nor its length."""


class ClaimKey(NamedTuple):
    """Location of a claim: its *key*, and the *place* that is read or watched to see it."""

    key: str
    place: str


ClaimRequest = key_claims.ClaimRequest[ClaimKey]


class HeldKey(NamedTuple):
    """Hold of a claim on its key: the session, the index of the last write, and the nonce."""

    session: Session
    modified: int
    nonce: str


class InLockDelay(NamedTuple):
    """The key is free, but no client can take it before its lock-delay has passed."""

    order: int


class Claims(key_claims.KeyClaims[ClaimKey]):
    """Keys with an owner."""

    def __init__(self, calls: Calls, sessions: Sessions) -> None:
        """Tie keys to the session of *sessions*."""
        self._calls = calls
        self._sessions = sessions

    def try_to_take(
        self, wanted: ClaimRequest, meaning: Callable[[Claim | Refused | InLockDelay], T]
    ) -> Future[T]:
        """Take a key if it is free; *meaning* converts the outcome to the answer."""
        return self._calls.on_demand(lambda requests: meaning(self._take(wanted, requests)))

    @override
    def take(self, wanted: ClaimRequest, meaning: Callable[[Claim | Refused], T]) -> Future[T]:
        """Take a key as `try_to_take` does, and wait for the end of a lock-delay."""
        return self._calls.on_demand(
            lambda requests: meaning(self._wait_and_take(wanted, requests))
        )

    @override
    def replace(self, wanted: ClaimRequest, claim: Claim) -> Future[Claim | None]:
        return self._calls.on_demand(lambda requests: self._replace(wanted, claim, requests))

    @override
    def give_up(self, at: ClaimKey, claim: Claim) -> Future[None]:
        return self._calls.on_demand(lambda requests: self._give_up(at.key, claim, requests))

    @override
    def give_up_all(self, held: Sequence[tuple[ClaimKey, Claim]]) -> list[Future[None]]:
        answers: list[Future[None]] = []
        for start in range(0, len(held), _MOST_FREED):
            part = [(at.key, one) for at, one in held[start : start + _MOST_FREED]]
            done = self._calls.begin(partial(self._give_up_together, part))
            answers += [done] * len(part)
        return answers

    def _give_up_together(
        self, held: Sequence[tuple[str, Claim]], requests: OperationRequests
    ) -> None:
        """Delete all keys in one transaction; keys that are refused are deleted alone.

        If the answer is lost, a deleted key is refused in the retry, and then found to be released.
        """
        pairs = [(_still_held(key, one.handle), transactions.delete(key)) for key, one in held]
        outcome = requests.ask(transactions.write([one for pair in pairs for one in pair]))
        if not outcome.refusals:
            for key, claim in held:
                claim.handle.session.gives_up(key, claim.entry.version.major)
            self._sessions.on_released({key for key, _ in held})
            return
        refused = {refusal.number // 2 for refusal in outcome.refusals}
        rest = [one for number, one in enumerate(held) if number not in refused]
        if rest:
            self._give_up_together(rest, requests)
        for number in refused:
            self._give_up(*held[number], requests)

    def _wait_and_take(self, wanted: ClaimRequest, requests: OperationRequests) -> Claim | Refused:
        while isinstance(answer := self._take(wanted, requests), InLockDelay):
            requests.pause(DELAYED_SECONDS)
        return answer

    def _take(
        self, wanted: ClaimRequest, requests: OperationRequests
    ) -> Claim | Refused | InLockDelay:
        while True:
            session = self._sessions.current(requests)
            mark = self._calls.orders.mark(wanted.at.place)
            outcome = requests.ask(transactions.write(_taking(wanted, session)))
            if not outcome.refusals:
                return self._taken(wanted, session, outcome.records[-1], mark)
            if outcome.says(_NO_SESSION):
                # The store ended it since the last renewal: claim in another session.
                self._sessions.mark_lost(session)
            else:
                answer = self._held(wanted, session, requests)
                if isinstance(answer, Claim | Refused) or outcome.says(_LOCK_DELAY):
                    return answer

    def _held(
        self, wanted: ClaimRequest, session: Session, requests: OperationRequests
    ) -> Claim | Refused | InLockDelay:
        """Return the claim or the refusal of a key that is held; `InLockDelay` if it is free."""
        mark = self._calls.orders.mark(wanted.at.key)
        found = requests.ask(at_key(wanted.at.key))
        if not found.records:
            return InLockDelay(self._calls.orders.of(found.at, mark))
        (holder,) = found.records
        unsealed = holder.claimed()
        # An earlier attempt took the key, and its answer was lost. Its index is older than later
        # answers, which does not mean that the store restarted its count.
        if (holder.session, unsealed.nonce) == (session.ident, wanted.nonce):
            since_ever = self._calls.orders.mark(wanted.at.place)._replace(at=0)
            return self._taken(wanted, session, holder, since_ever)
        return Refused(self._calls.orders.of(found.at, mark), unsealed, holder.created)

    def _taken(
        self, wanted: ClaimRequest, session: Session, record: KVPair, mark: OrderMark
    ) -> Claim:
        session.takes(wanted.at.key)
        order = self._calls.orders.of(record.modified, mark)
        entry = wanted.entry(record.created)
        hold = HeldKey(session, record.modified, wanted.nonce)
        return Claim(wanted.name, entry, session.lease, order, hold)

    def _replace(
        self, wanted: ClaimRequest, claim: Claim, requests: OperationRequests
    ) -> Claim | None:
        hold: HeldKey | None = claim.handle
        while hold is not None:
            mark = self._calls.orders.mark(wanted.at.place)
            put = transactions.put(wanted.at.key, wanted.sealed())
            outcome = requests.ask(transactions.write([_still_held(wanted.at.key, hold), put]))
            if not outcome.refusals:
                replaced = self._taken(wanted, hold.session, outcome.records[-1], mark)
                return replaced._replace(entry=wanted.entry(claim.entry.version.major))
            hold = _held_by_now(wanted.at.key, claim, outcome, requests)
            if hold is not None and hold.nonce != claim.entry.nonce:
                raise refusals.other_record(wanted.name)
        return None

    def _give_up(self, key: str, claim: Claim, requests: OperationRequests) -> None:
        hold: HeldKey | None = claim.handle
        while hold is not None:
            delete = transactions.delete(key)
            outcome = requests.ask(transactions.write([_still_held(key, hold), delete]))
            if not outcome.refusals:
                break
            hold = _held_by_now(key, claim, outcome, requests)
        claim.handle.session.gives_up(key, claim.entry.version.major)
        self._sessions.on_released({key})


def _taking(wanted: ClaimRequest, session: Session) -> list[transactions.Operation]:
    lock = transactions.lock(wanted.at.key, wanted.sealed(), session.ident)
    return [transactions.is_absent(wanted.at.key), lock]


def _still_held(key: str, hold: HeldKey) -> transactions.Operation:
    return transactions.was_modified(key, hold.modified)


def _held_by_now(
    key: str, claim: Claim, outcome: transactions.TransactionOutcome, requests: OperationRequests
) -> HeldKey | None:
    """Return the hold of *claim* on *key*, if any: a write may have replaced it unanswered."""
    if outcome.says(_ABSENT):
        return None
    hold: HeldKey = claim.handle
    for record in requests.ask(at_key(key)).records:
        if (record.created, record.session) == (claim.entry.version.major, hold.session.ident):
            return hold._replace(modified=record.modified, nonce=_nonce(record))
    return None


def _nonce(record: KVPair) -> str:
    """Return the nonce of *record*; empty if another program has overwritten it."""
    try:
        return record.unsealed().nonce
    except StoreError:
        return ""
