"""Re-joins under trouble that only the core has to deal with."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from kip30 import (
    ClosedError,
    GroupMembership,
    Member,
    MembershipChange,
    NotMemberError,
    OutcomeUnknownError,
    PluginLocator,
)
from kip30.driver.kit.futures import failed
from kip30.driver.records import Claim
from kip30_conformance.clients.callback_recorder import Recorder
from kip30_conformance.driver_faults import DriverFault, Effect, wrap
from kip30_conformance.polling import eventually, time_scale

from .conftest import OpenClient
from .trouble import faults, has_arrived

pytestmark = pytest.mark.virtual_time

MEMBERS = 200
AT_ONCE = 0.5


def lose_session(client: PluginLocator, group: GroupMembership[str]) -> Member:
    """End the session of the member ``m``; return its last incarnation once it has noticed."""
    member = group.member("m")
    assert member is not None
    faults(client).expire_session()
    assert member.lost.wait(10 * time_scale())
    return member


def hold_claims(client: PluginLocator, seconds: float) -> None:
    """Delay the next claim by *seconds*."""
    faults(client).delay("membership.claim", seconds)


def hold_back_rejoins(client: PluginLocator) -> None:
    """Refuse all claims, with nothing done, until the faults are cleared."""
    faults(client).fail("membership.claim", times=None)


def test_of_two_updates_of_a_lost_session_the_newer_wins(open_client: OpenClient) -> None:
    client, other = open_client(), open_client()
    group = client.group_membership("g")
    group.join("m", "0")
    hold_back_rejoins(client)
    lose_session(client, group)
    with ThreadPoolExecutor(2) as pool:
        updates = list[Future[None]]()
        for number in "12":
            updates.append(pool.submit(group.update, "m", number))
            eventually(partial(newest_is, group, number))
        faults(client).clear()
        for update in updates:
            update.result()
    assert other.group_membership("g").membership() == {"m": "2"}


def newest_is(group: GroupMembership[str], data: str) -> bool:
    lifecycle = group._lifecycles["m"]
    return lifecycle._phases.newest().data == data.encode()


def test_a_claim_that_was_granted_without_an_answer_ends_with_the_newest_data(
    open_client: OpenClient,
) -> None:
    client, other = open_client(), open_client()
    group = client.group_membership("g")
    group.join("m", "old")
    faults(client).lose_answers("membership.claim", times=3)
    hold = DriverFault(operation="membership.release", effect=Effect.FAIL, times=3)
    lose_session(client, group)
    eventually(lambda: faults(client).counted() >= 4, what="all answers are lost")
    faults(client).add(hold)
    group.update("m", "new")
    assert other.group_membership("g").membership() == {"m": "new"}


def test_an_update_that_stays_unknown_is_what_a_rejoin_shows(open_client: OpenClient) -> None:
    client, other = open_client(), open_client()
    group, rejoined = client.group_membership("g"), Recorder[Member]()
    group.join("m", "old", on_rejoined=rejoined)
    silence = DriverFault(
        operation="membership.replace", effect=Effect.CUT_OFF, times=None, seconds=60
    )
    faults(client).add(silence)
    with pytest.raises(OutcomeUnknownError):
        group.update("m", "new")
    faults(client).expire_session()
    rejoined.expect_count(1)
    assert other.group_membership("g").membership() == {"m": "new"}


def test_an_update_whose_answer_is_lost_for_good_is_done_again(open_client: OpenClient) -> None:
    client, other = open_client(), open_client()
    group = client.group_membership("g")
    group.join("m", "old")
    faults(client).lose_answers("membership.replace")
    faults(client).fail("observe.snapshot")
    group.update("m", "new")
    assert other.group_membership("g").membership() == {"m": "new"}
    group.update("m", "newer")
    assert other.group_membership("g").membership() == {"m": "newer"}


@pytest.mark.parametrize("end", ["leave", "group", "locator"])
def test_an_update_waits_no_longer_than_its_member(open_client: OpenClient, end: str) -> None:
    client = open_client(
        **{"plugin.operation.timeout.ms": 30_000, "plugin.session.timeout.ms": 30_000}
    )
    group = client.group_membership("g")
    group.join("m", "old")
    hold_back_rejoins(client)
    lose_session(client, group)
    with ThreadPoolExecutor(1) as pool:
        update = pool.submit(group.update, "m", "new")
        eventually(lambda: newest_is(group, "new"))
        end_member(client, group, end)
        with pytest.raises(ClosedError if end == "locator" else NotMemberError):
            update.result(10 * time_scale())


def end_member(client: PluginLocator, group: GroupMembership[str], end: str) -> None:
    if end == "leave":
        group.leave("m")
    else:
        (group if end == "group" else client).close()


def test_an_update_ends_with_the_eviction_of_its_member(open_client: OpenClient) -> None:
    client, other = open_client(), open_client()
    group = client.group_membership("g")
    group.join("m", "mine")
    hold_back_rejoins(client)
    lose_session(client, group)
    eventually(lambda: other.group_membership("g").join("m", "theirs"))
    with ThreadPoolExecutor(1) as pool:
        update = pool.submit(group.update, "m", "new")
        eventually(lambda: newest_is(group, "new"))
        faults(client).clear()
        with pytest.raises(NotMemberError, match="another client"):
            update.result(10 * time_scale())


def test_leaving_during_a_rejoin_that_is_refused_ends(open_client: OpenClient) -> None:
    client, other = open_client(), open_client()
    group, rival = client.group_membership("g"), other.group_membership("g")
    group.join("m", "mine")
    hold_claims(client, 0.5)
    lose_session(client, group)
    eventually(lambda: faults(client).counted() == 2, what="the re-join is under way")
    rival.join("m", "theirs")
    group.leave("m")
    assert rival.membership() == {"m": "theirs"}


def test_leaving_during_a_rejoin_that_is_granted_undoes_it(open_client: OpenClient) -> None:
    client, other = open_client(), open_client()
    group, rejoined = client.group_membership("g"), Recorder[Member]()
    group.join("m", "mine", on_rejoined=rejoined)
    hold_claims(client, 0.5)
    lose_session(client, group)
    eventually(lambda: faults(client).counted() == 2, what="the re-join is under way")
    group.leave("m")
    assert other.group_membership("g").membership_list() == frozenset()
    assert rejoined.events == []


def test_an_evicted_member_leaves_at_once_and_takes_back_what_arrives_late(
    open_client: OpenClient,
) -> None:
    client, other = open_client(), open_client()
    group, rival = client.group_membership("g"), other.group_membership("g")
    evicted = Recorder[Member]()
    faults(client).arrive_late("membership.claim", 2)
    group.join("m", "mine", on_evicted=evicted)
    hold_back_rejoins(client)
    faults(client).expire_session()
    eventually(lambda: rival.join("m", "theirs"))
    faults(client).clear()
    evicted.expect_count(1)
    began = time.monotonic()
    with pytest.raises(NotMemberError):
        group.leave("m")
    assert time.monotonic() - began < AT_ONCE * time_scale()
    rival.leave("m")
    eventually(has_arrived)
    eventually(lambda: not rival.membership_list())


def test_a_late_claim_of_the_same_client_evicts_no_member(
    open_client: OpenClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An earlier join was not answered. It is granted just before the re-join, and released."""
    client = open_client()
    driver, lost = client.backend.membership, list[str]()
    right = driver.claim

    def lose(_group: str, _id: str, nonce: str, _data: bytes) -> Future[Claim]:
        lost.append(nonce)
        return failed(OutcomeUnknownError("no answer"))

    def claim(group: str, member_id: str, nonce: str, data: bytes) -> Future[Claim]:
        if lost and nonce not in lost:
            right(group, member_id, lost.pop(), b"").result()
        return right(group, member_id, nonce, data)

    monkeypatch.setattr(driver, "claim", lose)
    with pytest.raises(OutcomeUnknownError):
        client.group_membership("g").join("m", "early")
    monkeypatch.setattr(driver, "claim", right)
    group, evicted, rejoined = client.group_membership("g"), Recorder[Member](), Recorder[Member]()
    group.join("m", "mine", on_evicted=evicted, on_rejoined=rejoined)
    monkeypatch.setattr(driver, "claim", claim)
    faults(client).expire_session()
    rejoined.expect_count(1)
    assert not lost
    assert evicted.events == []
    eventually(lambda: group.membership() == {"m": "mine"})


def test_a_callback_that_blocks_delays_the_next_one_and_no_rejoin(open_client: OpenClient) -> None:
    client = open_client()
    group, may_end = client.group_membership("g"), threading.Event()
    told = Recorder[str]()

    def on_lost(_: Member) -> None:
        may_end.wait(10 * time_scale())
        told("lost")

    first = group.join("m", "x", on_lost=on_lost, on_rejoined=lambda _: told("rejoined"))
    faults(client).expire_session()
    eventually(lambda: group.member("m") not in {None, first})
    assert told.events == []
    may_end.set()
    assert told.expect_count(2) == ["lost", "rejoined"]


def test_a_callback_that_raises_is_followed_by_the_next_one(open_client: OpenClient) -> None:
    client = open_client()
    rejoined = Recorder[Member]()

    def on_lost(_: Member) -> None:
        raise SystemExit

    client.group_membership("g").join("m", "x", on_lost=on_lost, on_rejoined=rejoined)
    faults(client).expire_session()
    rejoined.expect_count(1)


def test_many_members_rejoin_with_what_each_was_given(open_client: OpenClient) -> None:
    client = open_client(
        **{"plugin.operation.timeout.ms": 10_000, "plugin.session.timeout.ms": 30_000}
    )
    other = open_client()
    group, told = client.group_membership("g"), Recorder[tuple[str, str]]()
    names = [f"m{number}" for number in range(MEMBERS)]
    for name in names:
        group.join(
            name,
            name,
            on_lost=lambda member: told((member.id, "lost")),
            on_rejoined=lambda member: told((member.id, "rejoined")),
        )
    faults(client).expire_session()
    told.expect_count(2 * MEMBERS, within=30)
    assert other.group_membership("g").membership() == {name: name for name in names}
    for name in names:
        assert [what for one, what in told.events if one == name] == ["lost", "rejoined"]


def test_a_listener_hears_of_a_rejoin_as_news(open_client: OpenClient) -> None:
    client = open_client()
    group, changes = client.group_membership("g"), Recorder[MembershipChange[str]]()
    rejoined = Recorder[Member]()
    group.join("m", "x", on_rejoined=rejoined)
    group.add_listener(changes)
    faults(client).expire_session()
    (member,) = rejoined.expect_count(1)
    changes.expect(lambda change: "m" in change.members and change.members.order >= member.order)


def test_retries_of_a_rejoin_release_the_lost_claim_once(open_client: OpenClient) -> None:
    client = open_client()
    group, rejoined = client.group_membership("g"), Recorder[Member]()
    group.join("m", "x", on_rejoined=rejoined)
    faults(client).fail("membership.claim", times=3)
    released: list[Claim] = []
    wrap(client.backend.membership, "release", partial(_noted, released))
    faults(client).expire_session()
    rejoined.expect_count(1)
    assert len(released) == 1


def _noted(released: list[Claim], real: Callable[..., Any], group: str, claim: Claim) -> Any:
    released.append(claim)
    return real(group, claim)


def test_an_interrupted_wait_for_an_id_leaves_nothing_behind(
    open_client: OpenClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, rival = open_client(), open_client().group_membership("g")
    rival.join("m", "theirs")

    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("kip30.membership.time.sleep", interrupt)
    with pytest.raises(KeyboardInterrupt):
        client.group_membership("g").join("m", "mine", wait_seconds=60)
    monkeypatch.undo()
    eventually(lambda: client._store and not client._store.active_claims())
    rival.leave("m")
    client.group_membership("g").join("m", "mine")
