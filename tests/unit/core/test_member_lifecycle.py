"""Membership under trouble that only the core has to deal with."""

import signal
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

from kip30 import (
    Kip30Error,
    Member,
    MemberExistsError,
    MembershipChange,
    NotMemberError,
    OutcomeUnknownError,
    UnavailableError,
)
from kip30.driver.clock import ManualClock
from kip30.driver.kit.futures import failed
from kip30.driver.records import Kind, Target
from kip30_conformance.driver_faults import DriverFault, Effect
from kip30_conformance.polling import eventually, throughout

from .conftest import OpenClient
from .trouble import faults, has_arrived

pytestmark = pytest.mark.virtual_time


def test_a_join_succeeds_even_if_its_answer_is_lost(open_client: OpenClient) -> None:
    client, other = open_client(), open_client()
    faults(client).lose_answers("membership.claim")
    member = client.group_membership("g").join("m", "data")
    assert member.is_valid()
    assert other.group_membership("g").membership() == {"m": "data"}


def test_a_join_that_stays_unknown_is_undone(open_client: OpenClient) -> None:
    client, other = open_client(), open_client()
    group = client.group_membership("g")
    faults(client).lose_answers("membership.claim", times=3)
    with pytest.raises(OutcomeUnknownError):
        group.join("m", "data")
    eventually(lambda: not other.group_membership("g").membership_list())
    assert group.join("m", "again").is_valid()


def test_a_join_that_arrives_after_it_was_refused_is_undone(open_client: OpenClient) -> None:
    client, other = open_client(), open_client()
    holder = other.group_membership("g")
    holder.join("m", "theirs")
    faults(client).arrive_late("membership.claim", 1)
    with pytest.raises(MemberExistsError):
        client.group_membership("g").join("m", "mine")
    holder.leave("m")
    eventually(has_arrived)
    eventually(lambda: not holder.membership_list())


@pytest.mark.parametrize("seconds", [1, 4], ids=["soon", "after a whole session"])
def test_a_join_that_arrives_after_the_member_has_left_is_undone(
    open_client: OpenClient, seconds: float
) -> None:
    client, other = open_client(), open_client()
    group = client.group_membership("g")
    faults(client).arrive_late("membership.claim", seconds)
    group.join("m", "mine")
    group.leave("m")
    eventually(has_arrived)
    eventually(lambda: not other.group_membership("g").membership_list())


def test_a_member_that_was_replaced_takes_back_what_arrives_late(open_client: OpenClient) -> None:
    client, other = open_client(), open_client()
    group, rival = client.group_membership("g"), other.group_membership("g")
    evicted: list[Member] = []
    faults(client).arrive_late("membership.claim", 1.5)
    group.join("m", "mine", on_evicted=evicted.append)
    faults(client).fail("membership.claim", times=None)
    faults(client).expire_session()
    eventually(lambda: rival.join("m", "theirs"))
    faults(client).clear()
    eventually(lambda: evicted)
    rival.leave("m")
    eventually(has_arrived)
    eventually(lambda: not rival.membership_list())


def test_an_unconfirmed_leave_raises_outcome_unknown(open_client: OpenClient) -> None:
    clock = ManualClock()
    client = open_client(clock)
    group = client.group_membership("g")
    group.join("m", "x")
    faults(client).renewals_paused = True
    faults(client).add(
        DriverFault(operation="membership.release", effect=Effect.CUT_OFF, seconds=0.5)
    )
    with ThreadPoolExecutor(1) as pool:
        left = pool.submit(group.leave, "m")
        eventually(lambda: faults(client).counted() == 1)
        clock.advance(5)
        with pytest.raises(OutcomeUnknownError, match="when the session is over"):
            left.result()


def test_an_update_whose_answer_is_lost_is_looked_up(open_client: OpenClient) -> None:
    client, other = open_client(), open_client()
    group = client.group_membership("g")
    group.join("m", "1")
    faults(client).lose_answers("membership.replace")
    group.update("m", "2")
    group.update("m", "3")
    assert other.group_membership("g").membership() == {"m": "3"}


def test_leaving_is_done_locally_even_if_the_store_is_silent(open_client: OpenClient) -> None:
    client, other = open_client(), open_client()
    group = client.group_membership("g")
    member = group.join("m", "x")
    faults(client).fail("membership.release", times=None)
    with pytest.raises(OutcomeUnknownError):
        group.leave("m")
    assert not member.is_valid()
    with pytest.raises(NotMemberError):
        group.update("m", "y")
    faults(client).clear()
    eventually(lambda: not other.group_membership("g").membership_list())


def test_a_lost_session_is_joined_again_as_a_new_incarnation(open_client: OpenClient) -> None:
    client, other = open_client(), open_client()
    group = client.group_membership("g")
    lost: list[Member] = []
    first = group.join("m", "x", on_lost=lost.append)
    faults(client).expire_session()
    assert first.lost.wait(10)
    second = eventually(lambda: group.member("m"))
    assert second is not None
    eventually(lambda: lost == [first])
    assert other.group_membership("g").membership() == {"m": "x"}
    assert second.incarnation > first.incarnation
    group.update("m", "y")
    assert group.member("m") is second


def test_an_id_that_someone_else_took_is_not_taken_back(open_client: OpenClient) -> None:
    clock = ManualClock()
    client, other = open_client(clock), open_client(clock)
    group = client.group_membership("g")
    lost: list[Member] = []
    evicted: list[Member] = []
    group.join("m", "mine", on_lost=lost.append, on_evicted=evicted.append)
    faults(client).fail("membership.release", times=None)
    faults(client).fail("membership.claim", times=None)
    faults(client).expire_session()
    eventually(lambda: len(lost) == 1)
    other.group_membership("g").join("m", "theirs")
    faults(client).clear()
    clock.advance(1)
    eventually(lambda: evicted == lost)
    assert group.member("m") is None
    assert other.group_membership("g").membership() == {"m": "theirs"}
    with pytest.raises(MemberExistsError):
        group.join("m", "mine")


def test_the_clock_alone_ends_a_membership_that_is_not_renewed(open_client: OpenClient) -> None:
    clock = ManualClock()
    client = open_client(clock)
    member = client.group_membership("g").join("m", "x")
    faults(client).renewals_paused = True
    clock.advance(1.9)
    assert not member.is_valid()
    with pytest.raises(NotMemberError, match="not renewed in time"):
        member.check()
    assert member.lost.wait(10)


def test_everyone_sees_the_same_incarnation(open_client: OpenClient) -> None:
    client, other = open_client(), open_client()
    member = client.group_membership("g").join("m", "x")
    target = Target(Kind.GROUP, "g")
    seen = other.backend.observe.snapshot(target).result().entries["m"]
    assert seen.version == member.incarnation


def test_updates_that_wait_for_each_other_wait_one_operation_timeout(
    open_client: OpenClient,
) -> None:
    client = open_client(
        **{"plugin.operation.timeout.ms": 3000, "plugin.session.timeout.ms": 60000}
    )
    group = client.group_membership("g")
    group.join("m", "x")
    silence = DriverFault(
        operation="membership.replace", effect=Effect.CUT_OFF, times=None, seconds=60
    )
    faults(client).add(silence)

    def update(number: int) -> float:
        began = time.monotonic()
        with pytest.raises(Kip30Error):
            group.update("m", str(number))
        return time.monotonic() - began

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(update, 1)
        throughout(lambda: not first.done(), seconds=0.5)
        second = pool.submit(update, 2)
        assert max(first.result(), second.result()) < 1.7 * 3


@pytest.mark.real_time("a signal interrupts the wait, between any two steps of it")
def test_a_join_that_is_interrupted_is_undone(open_client: OpenClient) -> None:
    client, other = open_client(), open_client()
    faults(client).delay("membership.claim", 1)
    interrupting = threading.Timer(0.3, signal.raise_signal, [signal.SIGINT])
    interrupting.start()
    with pytest.raises(KeyboardInterrupt):
        client.group_membership("g").join("m", "mine")
    eventually(has_arrived)
    eventually(lambda: not other.group_membership("g").membership_list())
    assert client.group_membership("g").join("m", "again").is_valid()


def test_a_listener_is_notified_of_a_new_incarnation_under_an_old_nonce(
    open_client: OpenClient,
) -> None:
    client, other = open_client(), open_client()
    group = client.group_membership("g")
    told: list[MembershipChange[str]] = []
    faults(client).lose_answers("membership.claim", times=1)
    first = group.join("m", "x")
    other.group_membership("g").add_listener(told.append)
    faults(other).watches_paused = True
    faults(client).expire_session()
    eventually(lambda: group.member("m") not in {None, first})
    faults(other).watches_paused = False
    eventually(lambda: told, what="the listener is told")
    assert not told[-1].joined | told[-1].left
    assert told[-1].updated == frozenset({"m"})


def test_updates_during_an_outage_add_no_retries(
    open_client: OpenClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = open_client()
    group, driver, asked = client.group_membership("g"), client.backend.membership, list[object]()
    group.join("m", "0")

    def refuse(*call: object) -> Future[Any]:
        asked.append(call)
        return failed(UnavailableError("refused"))

    def update(number: int) -> None:
        with suppress(OutcomeUnknownError):
            group.update("m", str(number))

    for method in ("claim", "release"):
        monkeypatch.setattr(driver, method, refuse)
    faults(client).expire_session()
    with ThreadPoolExecutor(20) as threads:
        list(threads.map(update, range(20)))
    before = len(asked)
    throughout(lambda: len(asked) - before < 20, seconds=2)
    monkeypatch.undo()
    eventually(lambda: group.membership_list() == {"m"})
