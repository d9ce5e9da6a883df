"""A handle that is closed releases its members together, at any step of theirs."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import pytest

from kip30 import (
    GroupMembership,
    LifecycleError,
    NotMemberError,
    PluginLocator,
    StoreError,
)
from kip30.driver import MembershipDriver
from kip30.driver.clock import ManualClock
from kip30.driver.kit.futures import failed
from kip30.driver.records import Claim
from kip30.runtime.member_phases import Phase
from kip30.runtime.own_record_watch import OwnRecordWatch
from kip30_conformance.polling import eventually, time_scale

from .conftest import OpenClient
from .trouble import faults

pytestmark = pytest.mark.virtual_time

ReleaseMany = Callable[[str, Sequence[Claim]], list[Future[None]]]


@pytest.fixture
def group(client: PluginLocator, monkeypatch: pytest.MonkeyPatch) -> GroupMembership[str]:
    # Its timer would wake members, too.
    monkeypatch.setattr(OwnRecordWatch, "member_began", lambda _: None)
    group = client.group_membership("g")
    for number in range(20):
        group.join(f"m{number}", "x")
    return group


@pytest.fixture
def driver(client: PluginLocator) -> MembershipDriver:
    return client.backend.membership


def ids(client: PluginLocator) -> frozenset[str]:
    return client.group_membership("g").membership_list()


def replaced(
    driver: MembershipDriver, monkeypatch: pytest.MonkeyPatch, by: Callable[..., Any]
) -> list[int]:
    """Call *by* in place of `release_many`; return the number of claims of each call."""
    calls: list[int] = []

    def release_many(group: str, claims: Sequence[Claim]) -> list[Future[None]]:
        calls.append(len(claims))
        answers: list[Future[None]] = by(group, claims)
        return answers

    monkeypatch.setattr(driver, "release_many", release_many)
    return calls


def test_members_are_released_in_one_call(
    client: PluginLocator,
    group: GroupMembership[str],
    driver: MembershipDriver,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = replaced(driver, monkeypatch, driver.release_many)
    group.close()
    assert calls == [20]
    assert ids(client) == frozenset()
    group.close()
    client.group_membership("g").close()
    assert calls == [20]


@pytest.mark.parametrize("outcome", ["raises", "fails", "fails in part"])
def test_all_members_are_released_even_if_the_joint_release_fails(
    client: PluginLocator,
    group: GroupMembership[str],
    driver: MembershipDriver,
    monkeypatch: pytest.MonkeyPatch,
    outcome: str,
) -> None:
    release_many: ReleaseMany = driver.release_many

    def fail(name: str, claims: Sequence[Claim]) -> list[Future[None]]:
        if outcome == "raises":
            raise StoreError("no")
        done = release_many(name, claims[:7]) if outcome == "fails in part" else []
        return done + [failed(StoreError("no")) for _ in claims[len(done) :]]

    replaced(driver, monkeypatch, fail)
    group.close()
    assert ids(client) == frozenset()


@pytest.mark.parametrize("outcome", ["never answers", "raises what no driver may"])
def test_an_answer_that_never_comes_keeps_no_member(
    client: PluginLocator,
    group: GroupMembership[str],
    driver: MembershipDriver,
    monkeypatch: pytest.MonkeyPatch,
    outcome: str,
) -> None:
    def stay_silent(_: str, claims: Sequence[Claim]) -> list[Future[None]]:
        if outcome != "never answers":
            raise KeyboardInterrupt
        return [Future() for _ in claims]

    replaced(driver, monkeypatch, stay_silent)
    try:
        group.close()
    except KeyboardInterrupt:
        assert outcome != "never answers"
    eventually(lambda: not ids(client))


def test_a_rejoin_that_ends_while_the_handle_is_closed_is_released(
    client: PluginLocator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The claim that counts is the one held once no request is under way."""
    group = client.group_membership("g")
    group.join("m", "x")
    lifecycle = group._lifecycles["m"]
    lost = lifecycle.member
    assert lost is not None
    faults(client).delay("membership.claim", 0.5 * time_scale())
    faults(client).expire_session()
    eventually(lambda: not faults(client).armed, what="the re-join is under way")
    busy: Any = lifecycle._busy

    class TakenOnceTheRejoinHasEnded:
        def acquire(self, *, blocking: bool) -> bool:
            eventually(lambda: lifecycle.member is not lost)
            lifecycle._busy = busy
            return bool(busy.acquire(timeout=10 * time_scale())) or blocking

        def release(self) -> None:
            busy.release()

        def __enter__(self) -> None:
            busy.acquire()

        def __exit__(self, *_: object) -> None:
            busy.release()

    monkeypatch.setattr(lifecycle, "_busy", TakenOnceTheRejoinHasEnded())
    group.close()
    assert ids(client) == frozenset()
    assert not lifecycle.left.exception(0)


def test_an_update_under_way_does_not_keep_its_member(client: PluginLocator) -> None:
    group = client.group_membership("g")
    group.join("m", "0")
    group.join("n", "0")
    # A third of the operation timeout, for which `close` waits: it does not grow with the machine.
    faults(client).delay("membership.replace", 0.5)
    update = threading.Thread(target=group.update, args=("m", "1"))
    update.start()
    eventually(lambda: not faults(client).armed, what="the update is under way")
    group.close()
    update.join()
    assert ids(client) == frozenset()
    with pytest.raises(LifecycleError):
        group.join("o", "0")


def test_handles_closed_at_once_and_the_locator_meanwhile(open_client: OpenClient) -> None:
    client, other = open_client(), open_client()
    groups = [client.group_membership("g") for _ in range(4)]
    for number, group in enumerate(groups):
        for each in range(50):
            group.join(f"{number}-{each}", "x")
    threads = [threading.Thread(target=group.close) for group in groups]
    for thread in threads:
        thread.start()
    client.close()
    for thread in threads:
        thread.join()
    eventually(lambda: not ids(other))


def test_members_that_were_evicted_are_forgotten_in_the_end(client: PluginLocator) -> None:
    group = client.group_membership("g")
    for number in range(500):
        group.join(f"m{number}", "x")
        if number % 100:
            lifecycle = group._lifecycles[f"m{number}"]._phases
            assert lifecycle.enter(Phase.LOST)
            assert lifecycle.enter(Phase.EVICTED)
    assert len(group._lifecycles) < 150
    assert all(group.member(f"m{number}") for number in range(0, 500, 100))
    with pytest.raises(NotMemberError):
        group.update("m499", "y")


def test_a_manual_clock_does_not_keep_conditions_alive() -> None:
    clock = ManualClock()

    def wait() -> None:
        condition = threading.Condition()
        with condition:
            clock.wait(condition, 0)

    for _ in range(10):
        wait()
    assert len(clock._waiting) == 0
