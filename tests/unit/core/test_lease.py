import threading
import time

import pytest

from kip30.driver.clock import ManualClock
from kip30.driver.lease import Lease
from kip30.errors import UnavailableError

pytestmark = pytest.mark.virtual_time


def make(clock: ManualClock) -> Lease:
    return Lease(clock, sent_at=clock.now(), timeout_seconds=10, margin_seconds=1)


def test_it_is_valid_until_the_timeout_less_the_margin_after_sending() -> None:
    clock = ManualClock()
    lease = make(clock)
    clock.advance(8.9)
    assert lease.is_valid()
    clock.advance(0.1)
    assert not lease.is_valid()
    assert lease.remaining_seconds() == 0


def test_a_renewal_counts_from_the_moment_it_was_sent() -> None:
    clock = ManualClock()
    lease = make(clock)
    clock.advance(3)
    sent = clock.now()
    clock.advance(2)
    assert lease.record_renewal(sent)
    assert lease.deadline == sent + 9


def test_it_counts_from_its_last_renewal() -> None:
    clock = ManualClock()
    lease = make(clock)
    assert lease.renewed_at == clock.now()
    sent = clock.now() + 3
    clock.advance(5)
    lease.record_renewal(sent)
    assert lease.renewed_at == sent
    clock.advance(1)
    lease.renewal_failed(UnavailableError("the disk is full"))
    lease.regranted(sent_at=clock.now(), timeout_seconds=5)
    assert lease.renewed_at <= clock.now()
    assert lease.deadline - lease.renewed_at == pytest.approx(4.5)


def test_an_older_renewal_does_not_shorten_it() -> None:
    clock = ManualClock()
    lease = make(clock)
    deadline = lease.deadline
    lease.record_renewal(clock.now() - 5)
    assert lease.deadline == deadline


def test_a_renewal_acknowledged_too_late_ends_it_for_good() -> None:
    clock = ManualClock()
    lease = make(clock)
    sent = clock.now() + 8
    clock.advance(9)
    assert not lease.record_renewal(sent)
    assert not lease.is_valid()
    assert lease.end_reason == "not renewed in time"


def test_once_ended_it_stays_ended_with_the_first_reason() -> None:
    clock = ManualClock()
    lease = make(clock)
    lease.end("gone")
    lease.end("closed")
    assert not lease.record_renewal(clock.now())
    assert lease.end_reason == "gone"


def test_expire_does_nothing_before_the_deadline() -> None:
    lease = make(ManualClock())
    assert not lease.expire()
    assert lease.is_valid()


def test_each_callback_is_called_once_at_the_end_or_at_once_after_it() -> None:
    lease = make(ManualClock())
    calls: list[str] = []
    lease.on_end(lambda: calls.append("first"))
    forgotten = lambda: calls.append("forgotten")  # noqa: E731  compared by identity
    lease.on_end(forgotten)
    lease.forget(forgotten)
    lease.end("gone")
    lease.end("gone")
    lease.on_end(lambda: calls.append("late"))
    assert calls == ["first", "late"]


def test_a_shorter_time_that_the_store_grants_moves_the_deadline_back() -> None:
    clock = ManualClock()
    lease = make(clock)
    clock.advance(1)
    sent = clock.now()
    lease.regranted(sent_at=sent, timeout_seconds=5)
    assert lease.deadline == sent + 4.5
    clock.advance(4)
    assert lease.record_renewal(clock.now())
    assert lease.deadline == sent + 4 + 4.5


def test_a_longer_time_that_the_store_grants_counts_with_the_next_renewal() -> None:
    clock = ManualClock()
    lease = make(clock)
    deadline = lease.deadline
    clock.advance(1)
    lease.regranted(sent_at=clock.now(), timeout_seconds=20)
    assert lease.deadline == deadline
    assert lease.record_renewal(clock.now())
    assert lease.deadline == clock.now() + 18


def test_it_ends_with_the_error_of_the_last_renewal() -> None:
    clock = ManualClock()
    lease = make(clock)
    lease.renewal_failed(OSError("the first"))
    lease.renewal_failed(UnavailableError("the disk is full"))
    clock.advance(9)
    assert lease.expire()
    assert lease.end_reason == "not renewed in time: the disk is full"


def test_a_renewal_that_succeeds_clears_the_error_of_one_that_failed() -> None:
    clock = ManualClock()
    lease = make(clock)
    lease.renewal_failed(UnavailableError("the disk is full"))
    lease.record_renewal(clock.now())
    assert lease.lateness == "not renewed in time"


def test_it_is_in_use_while_work_runs_and_no_longer_than_the_store_keeps_it() -> None:
    clock = ManualClock()
    lease = make(clock)
    assert not lease.is_in_use()
    lease.begin_use()
    lease.begin_use()
    clock.advance(9.9)
    assert lease.expire()
    lease.end_use()
    assert lease.is_in_use()
    clock.advance(0.2)
    assert not lease.is_in_use()
    lease.end_use()
    assert not lease.is_in_use()


def test_one_that_ends_early_is_in_use_for_a_margin() -> None:
    clock = ManualClock()
    lease = make(clock)
    lease.begin_use()
    lease.end("its lock file was removed")
    until = clock.now() + 1
    clock.advance(0.9)
    assert lease.is_in_use()
    assert lease.store_deadline() == until
    clock.advance(0.2)
    assert not lease.is_in_use()


def test_the_end_of_its_work_wakes_those_that_wait_for_it() -> None:
    lease = make(ManualClock())
    lease.begin_use()
    lease.end("lost")
    assert not lease.wait_unused(time.monotonic())
    waiting = threading.Thread(target=lease.wait_unused, args=(time.monotonic() + 60,))
    waiting.start()
    lease.end_use()
    waiting.join()
    assert lease.wait_unused(time.monotonic())
