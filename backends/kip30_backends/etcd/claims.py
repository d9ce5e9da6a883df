"""Shared code of members and leaders: keys that are taken, and end with the lease."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from typing_extensions import override

from kip30.driver.kit import refusals
from kip30.driver.kit.futures import Completed
from kip30.driver.kit.key_claims import ClaimRequest, KeyClaims, Refused
from kip30.driver.kit.operation import OperationFuture, Steps, begun
from kip30.driver.kit.time_left import seconds_left
from kip30.driver.records import Claim
from kip30.errors import StoreError
from kip30_backends.etcd.calls import Calls, TypedRequest
from kip30_backends.etcd.client import messages
from kip30_backends.etcd.client.channel import RANGE, TXN
from kip30_backends.etcd.client.messages import KeyValue, RangeAnswer, TxnAnswer, only
from kip30_backends.etcd.errors import LeaseGoneError, SpaceExceededError
from kip30_backends.etcd.observation_order import OrderMark
from kip30_backends.etcd.session import Session, Sessions
from kip30_backends.etcd.target_states import claimed

T = TypeVar("T")

_MOST = 100
"""Number of nested transactions in one: their operations count against the same limit of 128."""


class Claims(KeyClaims[bytes]):
    """Keys with an owner."""

    def __init__(self, calls: Calls, sessions: Sessions) -> None:
        """Tie keys to the lease of *sessions*."""
        self._calls = calls
        self._sessions = sessions

    @override
    def take(
        self, wanted: ClaimRequest[bytes], meaning: Callable[[Claim | Refused], T]
    ) -> Future[T]:
        return OperationFuture(self._taken(wanted, meaning, time.monotonic() + self._calls.seconds))

    @override
    def replace(self, wanted: ClaimRequest[bytes], claim: Claim) -> Future[Claim | None]:
        return begun(self._replaced(wanted, claim))

    @override
    def give_up(self, at: bytes, claim: Claim) -> Future[None]:
        # Another session opens only after the store has ended the one before, with all its keys.
        if self._sessions.has_ended(claim.handle):
            return Completed(None)
        return self._calls.send(
            TypedRequest(TXN, _giving_up(at, claim), self._given_up, writes=True)
        )

    @override
    def give_up_all(self, held: Sequence[tuple[bytes, Claim]]) -> list[Future[None]]:
        answers: list[Future[None]] = []
        for start in range(0, len(held), _MOST):
            part = held[start : start + _MOST]
            request = messages.txn([], [messages.nested(_giving_up(*one)) for one in part])
            done = self._calls.send(TypedRequest(TXN, request, self._given_up, writes=True))
            answers += [done] * len(part)
        return answers

    def _taken(
        self, wanted: ClaimRequest[bytes], meaning: Callable[[Claim | Refused], T], until: float
    ) -> Steps[T]:
        """Take a key in the session, or in another one if the store no longer knows that."""
        while True:
            session: Session = yield self._sessions.current(until)
            try:
                return meaning((yield from self._granted(wanted, session, until)))
            except LeaseGoneError:
                self._sessions.mark_lost(session)

    def _granted(
        self, wanted: ClaimRequest[bytes], session: Session, until: float
    ) -> Steps[Claim | Refused]:
        def outcome(answer: TxnAnswer, sent: OrderMark) -> Claim | Refused:
            order = self._calls.orders.of(answer.header, sent)
            if answer.succeeded:
                return _claim(wanted, session, order, answer.header.revision)
            return _held(wanted, session, order, answer.responses[0].response_range.kvs[0])

        free = [messages.is_absent(wanted.at)]
        take = [messages.put(wanted.at, wanted.sealed(), session.ident)]
        request = messages.txn(free, take, [messages.find(wanted.at)])
        ask = TypedRequest(TXN, request, outcome, writes=True, lease=session.ident)
        try:
            granted: Claim | Refused = yield self._calls.on_demand(ask, seconds_left(until))
        except SpaceExceededError as error:
            # A retry would not find a claim that was granted with this error: a full store refuses
            # each transaction that might put something.
            found: Claim | Refused | None = yield self._holder(wanted, session, until)
            if found is None:
                raise StoreError(f"{error}: nothing is held") from error
            return found
        return granted

    def _holder(
        self, wanted: ClaimRequest[bytes], session: Session, until: float
    ) -> Future[Claim | Refused | None]:
        def holder(answer: RangeAnswer, sent: OrderMark) -> Claim | Refused | None:
            order = self._calls.orders.of(answer.header, sent)
            found = only(answer)
            return None if found is None else _held(wanted, session, order, found)

        return self._calls.send(
            TypedRequest(RANGE, messages.read(wanted.at), holder), seconds_left(until)
        )

    def _replaced(self, wanted: ClaimRequest[bytes], claim: Claim) -> Steps[Claim | None]:
        session: Session = claim.handle

        def outcome(answer: TxnAnswer, sent: OrderMark) -> Claim | None:
            order = self._calls.orders.of(answer.header, sent)
            if answer.succeeded:
                entry = wanted.entry(claim.entry.version.major)
                return claim._replace(entry=entry, order=order)
            holder = (claim.entry.version.major, session.ident)
            for found in answer.responses[0].response_range.kvs:
                if (found.create_revision, found.lease) == holder:
                    raise refusals.other_record(wanted.name)
            return None

        put = messages.put(wanted.at, wanted.sealed(), session.ident)
        former = wanted._replace(nonce=claim.entry.nonce, data=claim.entry.data)
        unchanged = messages.has_value(wanted.at, former.sealed())
        compare = [*_still_held(wanted.at, claim), unchanged]
        request = messages.txn(compare, [put], [messages.find(wanted.at)])
        ask = TypedRequest(TXN, request, outcome, writes=True, lease=session.ident)
        try:
            replaced: Claim | None = yield self._calls.send(ask)
        except LeaseGoneError:
            return None
        return replaced

    def _given_up(self, answer: TxnAnswer, sent: OrderMark) -> None:
        self._calls.orders.of(answer.header, sent)


def _giving_up(key: bytes, claim: Claim) -> Any:
    return messages.txn(_still_held(key, claim), [messages.delete(key)])


def _held(
    wanted: ClaimRequest[bytes], session: Session, order: int, found: KeyValue
) -> Claim | Refused:
    holder = claimed(found)
    # An earlier attempt took the key, and its answer was lost.
    if found.lease == session.ident and holder.nonce == wanted.nonce:
        return _claim(wanted, session, order, found.create_revision)
    return Refused(order, holder, found.create_revision)


def _claim(wanted: ClaimRequest[bytes], session: Session, order: int, created: int) -> Claim:
    return Claim(wanted.name, wanted.entry(created), session.lease, order, session)


def _still_held(key: bytes, claim: Claim) -> list[object]:
    session: Session = claim.handle
    return [
        messages.was_created(key, claim.entry.version.major),
        messages.ends_with(key, session.ident),
    ]
