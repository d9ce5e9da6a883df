"""Sessions that have ended, whose rows may still be there."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, cast

import pytest

from kip30.driver import Context
from kip30.driver.clock import ManualClock
from kip30.driver.kit.futures import Completed
from kip30.driver.records import Entry, Version
from kip30_backends.cassandra.session import ClaimBatch, ClaimRow, HeldClaim, Sessions

A_MOMENT = 0.2
LONG = 10.0


class Alarm:
    """Stands for a `Timer`: keeps what is to be done last, until a test does it."""

    def __init__(self) -> None:
        self.action: Callable[[], object] = lambda: None

    def after(self, _seconds: float, action: Callable[[], object]) -> None:
        self.action = action


def test_none_is_forgotten_while_somebody_looks_for_it() -> None:
    alarm: Any = Alarm()
    sessions = Sessions(_context(), alarm, lambda _: Completed(()), 1.0)
    session = sessions.current()
    holding = HeldClaim(ClaimRow("members", "g", "m"), Entry(Version(1), "n", b""), session.since)
    assert sessions.holds(session, holding)
    sessions._end(session, "it is gone")
    with sessions._lock:
        forgetting = threading.Thread(target=alarm.action)
        forgetting.start()
        forgetting.join(A_MOMENT)
        assert session in sessions._former
    forgetting.join(LONG)
    assert sessions.former("n", 1) is None


@pytest.mark.parametrize(("kind", "is_kept"), [("leaders", True), ("members", False)])
def test_the_row_of_a_term_is_kept_while_work_goes_on_under_it(kind: str, *, is_kept: bool) -> None:
    alarm: Any = Alarm()
    sessions = Sessions(_context(), alarm, lambda _: Completed(()), 1.0)
    session = sessions.current()
    holding = HeldClaim(ClaimRow(kind, "s", "c"), Entry(Version(1), "n", b""), session.since)
    assert sessions.holds(session, holding)
    session.lease.begin_use()
    sessions._end(session, "not renewed in time")
    assert sessions.former("n", 1) is (None if is_kept else holding)
    session.lease.end_use()
    assert sessions.former("n", 1) is holding


def test_each_renewal_is_measured_from_its_own_request() -> None:
    clock, alarm, took = ManualClock(), cast("Any", Alarm()), list[float]()
    under_way: list[tuple[ClaimBatch, Future[ClaimBatch]]] = []

    def renew(batch: ClaimBatch) -> Future[ClaimBatch]:
        under_way.append((batch, Future()))
        return under_way[-1][1]

    sessions = Sessions(_context(clock), alarm, renew, 1.0)
    session = sessions.current()
    session.lease.on_renewal = took.append
    for kind in ("leaders", "members"):
        entry = Entry(Version(1), "n", b"")
        assert sessions.holds(session, HeldClaim(ClaimRow(kind, "s", "c"), entry, session.since))
    clock.advance(1)
    alarm.action()
    for batch, renewal in under_way:
        clock.advance(0.25)
        for one in batch:
            one.renewed(one.entry, clock.now() - 0.25)
            sessions.forget(one)  # given up meanwhile
        renewal.set_result(())
    assert took == [0.25, 0.5]


def _context(clock: ManualClock | None = None) -> Context:
    return Context(
        clock=clock or ManualClock(),
        namespace="",
        session_timeout_seconds=3.0,
        operation_timeout_seconds=3.0,
        connect_timeout_seconds=3.0,
        margin_seconds=0.3,
    )
