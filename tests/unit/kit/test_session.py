"""The session of a backend: one at a time, its predecessor ended first, renewed in time."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import pytest

from kip30.driver.clock import ManualClock
from kip30.driver.kit.futures import Completed, failed
from kip30.driver.kit.session import CurrentSession, Renewal
from kip30.driver.kit.timer import Timer
from kip30.driver.lease import Lease
from kip30.errors import ClosedError, UnavailableError
from kip30_conformance.polling import eventually, time_scale

TIMEOUT = 9.0


class Session(NamedTuple):
    number: int
    lease: Lease


class Store:
    """Grants numbered sessions, and can fail."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.done: list[str] = []
        self.fails = dict[str, Exception]()
        self.begin_renewal: Callable[[Session], None] = lambda _: None
        self.sessions: CurrentSession[Session] = CurrentSession(
            open_one=self._open, end=self._end, adopted=self._adopted, closing_seconds=1
        )
        self._number = 0

    def get(self, seconds: float | None = None) -> Session:
        patience = 10 * time_scale() if seconds is None else seconds
        return self.sessions.get(time.monotonic() + patience)

    def _open(self, _until: float) -> Session:
        self._number += 1
        self._do(f"open {self._number}")
        lease = Lease(
            self.clock, sent_at=self.clock.now(), timeout_seconds=TIMEOUT, margin_seconds=1
        )
        return Session(self._number, lease)

    def _end(self, session: Session, _until: float) -> None:
        self._do(f"end {session.number}")

    def _adopted(self, session: Session) -> None:
        self._do(f"renew {session.number}")
        self.begin_renewal(session)

    def _do(self, what: str) -> None:
        self.done.append(what)
        if what in self.fails:
            raise self.fails.pop(what)


@pytest.fixture
def store() -> Store:
    return Store()


def test_claims_share_a_session(store: Store) -> None:
    with ThreadPoolExecutor(8) as pool:
        sessions = [one.result() for one in [pool.submit(store.get) for _ in range(32)]]
    assert {one.number for one in sessions} == {1}
    assert store.done == ["open 1", "renew 1"]


def test_a_lost_session_is_ended_before_the_next_one_opens(store: Store) -> None:
    first = store.get()
    store.sessions.mark_lost(first)
    assert first.lease.end_reason == "the store ended the session"
    assert not store.sessions.has_ended(first)
    assert store.get().number == 2
    assert store.sessions.has_ended(first)
    assert store.done == ["open 1", "renew 1", "end 1", "open 2", "renew 2"]


def test_none_opens_while_the_former_one_cannot_be_ended(store: Store) -> None:
    store.sessions.mark_lost(store.get())
    store.fails["end 1"] = UnavailableError("no answer")
    with pytest.raises(UnavailableError, match="no answer"):
        store.get()
    assert store.get().number == 2
    assert store.done == ["open 1", "renew 1", "end 1", "end 1", "open 2", "renew 2"]


def test_a_session_past_its_deadline_is_replaced(store: Store) -> None:
    first = store.get()
    store.clock.advance(TIMEOUT)
    assert store.sessions.valid() is None
    assert store.get().number == 2
    assert first.lease.end_reason == "not renewed in time"


def test_a_session_past_its_deadline_is_not_ended_while_work_goes_on_under_it(
    store: Store,
) -> None:
    first = store.get()
    first.lease.begin_use()
    store.clock.advance(TIMEOUT - 0.5)
    with pytest.raises(UnavailableError, match="work under a term"):
        store.get(seconds=0.1)
    assert first.lease.end_reason == "not renewed in time"
    assert store.done == ["open 1", "renew 1"]
    first.lease.end_use()
    assert store.get().number == 2
    assert store.done == ["open 1", "renew 1", "end 1", "open 2", "renew 2"]


def test_work_keeps_a_session_no_longer_than_the_store_does(store: Store) -> None:
    store.get().lease.begin_use()
    store.clock.advance(TIMEOUT)
    assert store.get().number == 2


def test_one_that_nothing_renews_is_ended_and_not_used(store: Store) -> None:
    store.fails["renew 1"] = UnavailableError("no thread")
    with pytest.raises(UnavailableError, match="no thread"):
        store.get()
    assert store.sessions.known() is None
    assert store.done == ["open 1", "renew 1", "end 1"]


def test_close_ends_the_session_once(store: Store) -> None:
    session = store.get()
    store.sessions.close()
    assert session.lease.end_reason == "closed"
    assert store.done[2:] == ["end 1"]
    with pytest.raises(ClosedError):
        store.get()


def test_close_ends_a_lost_session_that_may_still_stand(store: Store) -> None:
    store.sessions.mark_lost(store.get())
    store.fails["end 1"] = UnavailableError("no answer")
    store.sessions.close()
    assert store.done[2:] == ["end 1"]


def test_a_session_that_opens_while_closed_is_ended(store: Store) -> None:
    granted, closed = threading.Event(), threading.Event()
    opened = store.sessions._open_one

    def slowly(until: float) -> Session:
        session = opened(until)
        granted.set()
        assert closed.wait(10 * time_scale())
        return session

    store.sessions._open_one = slowly
    with ThreadPoolExecutor(1) as pool:
        claiming = pool.submit(store.get)
        assert granted.wait(10 * time_scale())
        store.sessions.close()
        closed.set()
        with pytest.raises(ClosedError):
            claiming.result()
    assert store.done == ["open 1", "end 1"]


def test_a_caller_waits_no_longer_than_it_may_for_one_that_opens(store: Store) -> None:
    go = threading.Event()
    opened = store.sessions._open_one

    def slowly(until: float) -> Session:
        assert go.wait(10 * time_scale())
        return opened(until)

    store.sessions._open_one = slowly
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(store.get)
        eventually(store.sessions._opening.locked)
        with pytest.raises(UnavailableError, match="nothing was claimed"):
            store.get(0.01)
        go.set()
        assert first.result().number == 1


class Renewing:
    """A store whose sessions are renewed by a timer on real time, with leases on a manual clock."""

    def __init__(self, store: Store, timer: Timer) -> None:
        self.timer = timer
        self.sent = threading.Semaphore(0)
        self.answers: list[Future[bool]] = []
        self.errors: list[Exception] = []
        self.store = store
        self.renewal: Renewal[Session] = Renewal(store.clock, timer, self._renew, per_timeout=180)
        store.begin_renewal = lambda session: self.renewal.begin(session, store.sessions)

    def expect(self, count: int) -> None:
        for _ in range(count):
            assert self.sent.acquire(timeout=10 * time_scale())

    def _renew(self, _session: Session, _seconds: float) -> Future[bool]:
        self.sent.release()
        if self.errors:
            raise self.errors.pop()
        return self.answers.pop(0) if self.answers else Completed(result=True)


@pytest.fixture
def renewing(store: Store) -> Iterator[Renewing]:
    timer = Timer("kip30-test")
    timer.start()
    yield Renewing(store, timer)
    timer.stop()


def test_a_renewal_moves_the_deadline(renewing: Renewing) -> None:
    session = renewing.store.get()
    deadline = session.lease.deadline
    renewing.store.clock.advance(TIMEOUT / 2)
    eventually(lambda: session.lease.deadline == deadline + TIMEOUT / 2)


def test_a_renewal_that_fails_is_retried(renewing: Renewing) -> None:
    renewing.answers += [failed(UnavailableError("no answer")) for _ in range(3)]
    session = renewing.store.get()
    renewing.expect(5)
    assert session.lease.is_valid()


def test_a_renewal_that_cannot_be_sent_is_retried(renewing: Renewing) -> None:
    renewing.errors += [MemoryError(), OSError("Too many open files")]
    session = renewing.store.get()
    renewing.expect(4)
    assert session.lease.is_valid()


def test_a_session_that_the_store_has_ended_is_lost(renewing: Renewing) -> None:
    renewing.answers.append(Completed(result=False))
    session = renewing.store.get()
    eventually(lambda: session.lease.end_reason == "the store ended the session")
    assert renewing.store.get().number == 2
    renewing.expect(2)


def test_a_late_renewal_ends_the_lease(renewing: Renewing) -> None:
    answer: Future[bool] = Future()
    renewing.answers.append(answer)
    session = renewing.store.get()
    renewing.expect(1)
    renewing.store.clock.advance(TIMEOUT)
    answer.set_result(True)
    eventually(lambda: session.lease.end_reason == "not renewed in time")


def test_a_replaced_session_is_renewed_no_more(renewing: Renewing) -> None:
    answer: Future[bool] = Future()
    renewing.answers.append(answer)
    first = renewing.store.get()
    renewing.expect(1)
    renewing.store.sessions.mark_lost(first)
    answer.set_exception(UnavailableError("no answer"))
    past_the_retry = threading.Event()
    renewing.timer.after(0.2, past_the_retry.set)  # which would be due after 0.1 s
    assert past_the_retry.wait(10 * time_scale())
    assert not renewing.sent.acquire(blocking=False)


def test_a_session_not_renewed_in_time_reports_the_renewal_error(renewing: Renewing) -> None:
    renewing.answers += [failed(UnavailableError("the servers are full"))] * 1000
    session = renewing.store.get()
    renewing.expect(1)
    eventually(lambda: "the servers are full" in session.lease.lateness)
    renewing.store.clock.advance(TIMEOUT)
    eventually(lambda: session.lease.end_reason == "not renewed in time: the servers are full")
