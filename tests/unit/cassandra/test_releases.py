"""Members that leave together."""

import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from kip30 import UnavailableError
from kip30.driver import Context, MembershipDriver
from kip30.driver.clock import SystemClock
from kip30.driver.kit.futures import Completed, failed
from kip30.driver.kit.gate import Gate
from kip30.driver.kit.timer import Timer
from kip30.driver.records import Claim, Entry, Version
from kip30_backends.cassandra.calls import Answer, Calls, TypedRequest
from kip30_backends.cassandra.claims import Claims
from kip30_backends.cassandra.membership import CassandraMembership
from kip30_backends.cassandra.observation_order import AnswerOrder, Revisions
from kip30_backends.cassandra.session import ClaimRow, HeldClaim
from kip30_backends.cassandra.tombstone_folding import FoldingQueue

SECONDS = 5.0
MEMBERS = 120


class Store:
    """Stands in for `Calls`: keeps the ids that each request deletes."""

    root = ""
    seconds = SECONDS
    timer = Timer("test-releases")
    read, write = Calls.read, Calls.write

    def __init__(self, answer: Callable[[list[str]], Future[Answer]]) -> None:
        self.revisions = Revisions()
        self.orders = AnswerOrder()
        self.statements = self
        self.gate = Gate()
        self.sent = list[list[str]]()
        self._answer = answer

    def bind(self, _name: str, _root: str, _group: str, member_id: str, *_: object) -> list[str]:
        return [member_id]

    def batch(self, statements: list[list[str]]) -> list[str]:
        return [one for statement in statements for one in statement]

    def until(self) -> float:
        return time.monotonic() + SECONDS

    def send(self, ask: TypedRequest[Any], _until: float | None = None) -> Future[Any]:
        self.sent.append(ask.statement)
        return self._answer(ask.statement)


def test_members_leave_in_few_requests() -> None:
    store = Store(lambda _: Completed(_found(is_applied=True)))
    for left in _left(store):
        assert left.result(SECONDS) is None
    assert [len(ids) for ids in store.sent] == [50, 50, 20]


def test_each_member_has_an_outcome_of_its_own() -> None:
    """One whose row is another client's by now keeps no other one from leaving."""

    def answer(ids: list[str]) -> Future[Answer]:
        if ids == ["m7"]:
            return failed(UnavailableError("no answer"))
        return Completed(_found(is_applied="m3" not in ids and "m7" not in ids))

    left = _left(Store(answer))
    with pytest.raises(UnavailableError):
        left[7].result(SECONDS)
    for one in left[:7] + left[8:]:
        assert one.result(SECONDS) is None


def test_a_claim_that_is_given_up_twice() -> None:
    store = Store(lambda _: Completed(_found(is_applied=True)))
    claim = _claim(1)
    both = _members(store).release_many("g", [claim, claim])
    assert [one.result(SECONDS) for one in both] == [None, None]


def _left(store: Store) -> list[Future[None]]:
    return _members(store).release_many("g", [_claim(number) for number in range(MEMBERS)])


def _members(store: Any) -> MembershipDriver:
    context = Context(
        clock=SystemClock(),
        namespace="",
        session_timeout_seconds=SECONDS,
        operation_timeout_seconds=SECONDS,
        connect_timeout_seconds=SECONDS,
        margin_seconds=0.5,
    )
    claims = Claims(context, store, interval=SECONDS)
    return CassandraMembership(store, claims, FoldingQueue(store, store, "ks"))


def _claim(number: int) -> Claim:
    entry = Entry(Version(1), "nonce", b"")
    held = HeldClaim(ClaimRow("members", "g", f"m{number}"), entry, sent_at=float(number))
    lease: Any = None
    return Claim(f"m{number}", entry, lease, 0, held)


def _found(*, is_applied: bool) -> Answer:
    return Answer([{"[applied]": is_applied, "nonce": None}], is_sure=True)
