"""Members that are over with their session, under trouble that only the core has to deal with."""

import asyncio
import logging
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from kip30 import (
    GroupMembership,
    Member,
    MemberExistsError,
    NotMemberError,
    OutcomeUnknownError,
    PluginLocator,
    aio,
)
from kip30.driver.clock import ManualClock
from kip30.driver.records import Claim
from kip30.runtime import member_lifecycle
from kip30_conformance.clients.callback_recorder import Recorder
from kip30_conformance.driver_faults import DriverFault, Effect
from kip30_conformance.polling import eventually, throughout, time_scale

from .conftest import OpenClient
from .loops import faults_of, properties
from .trouble import faults, has_arrived

pytestmark = pytest.mark.virtual_time

ROUNDS = 20
PATIENCE = 10


def lose_session(client: PluginLocator, member: Member) -> None:
    """End the session of *member*, and wait until it has noticed."""
    faults(client).expire_session()
    assert member.lost.wait(PATIENCE * time_scale())


def are_closed(client: PluginLocator) -> bool:
    """Return whether the core has nothing to do any more for any member of *client*."""
    return not client._store._active_claims  # type: ignore[union-attr]


def test_members_lost_with_their_session_are_forgotten(client: PluginLocator) -> None:
    group = client.group_membership("g")
    for number in range(200):
        lose_session(client, group.join(f"m{number}", "", rejoin=False))
    eventually(lambda: are_closed(client), what="the core has forgotten them")
    assert len(group._lifecycles) < 200
    assert group.membership_list() == frozenset()


def test_each_loss_is_reported_once_and_the_id_is_free_by_then(client: PluginLocator) -> None:
    group = client.group_membership("g")
    lost, members = Recorder[Member](), list[Member]()
    for _ in range(ROUNDS):
        members.append(group.join("m", "", rejoin=False, on_lost=lost))
        lose_session(client, members[-1])
    assert lost.expect_count(ROUNDS) == members
    assert [one.incarnation for one in members] == sorted({one.incarnation for one in members})


def test_a_leave_after_the_loss_is_an_error_while_the_log_is_slow(
    client: PluginLocator, caplog: pytest.LogCaptureFixture
) -> None:
    """The step that forgets the member comes before the thread that ends it has done so."""
    logger = logging.getLogger(member_lifecycle.__name__)
    caplog.set_level(logging.INFO, logger.name)
    group = client.group_membership("g")
    member = group.join("m", "", rejoin=False)
    lifecycle = group._lifecycles["m"]

    def wait_for_step(record: logging.LogRecord) -> bool:
        if record.getMessage().startswith("lost member"):
            lifecycle._task.wake()
            eventually(lifecycle.left.done)
        return True

    logger.addFilter(wait_for_step)
    try:
        lose_session(client, member)
        eventually(lifecycle.left.done)
    finally:
        logger.removeFilter(wait_for_step)
    with pytest.raises(NotMemberError, match="rejoin=False"):
        group.leave("m")


def test_on_lost_joins_again_many_times(client: PluginLocator) -> None:
    group, members = client.group_membership("g"), Recorder[Member]()

    def join(_: object = None) -> None:
        members(group.join("m", str(len(members.events)), rejoin=False, on_lost=join))

    join()
    for number in range(1, ROUNDS):
        lose_session(client, members.events[-1])
        members.expect_count(number + 1)
    assert group.membership() == {"m": str(ROUNDS - 1)}


def test_an_update_of_a_lost_session_is_not_published(open_client: OpenClient) -> None:
    client, other = open_client(), open_client()
    group = client.group_membership("g")
    for _ in range(ROUNDS):
        group.join("m", "old", rejoin=False)
        faults(client).expire_session()
        with pytest.raises(NotMemberError, match="rejoin=False"):
            group.update("m", "new")
        assert other.group_membership("g").membership() == {}


def test_updates_and_the_loss_at_once(open_client: OpenClient) -> None:
    client, other = open_client(), open_client()
    group, view = client.group_membership("g"), other.group_membership("g")
    for number in range(ROUNDS):
        member = group.join("m", "", rejoin=False)
        with ThreadPoolExecutor(2) as threads:
            updating = threads.submit(update_until_over, group, number)
            lose_session(client, member)
            with pytest.raises(NotMemberError):
                updating.result(PATIENCE * time_scale())
        assert view.membership_list() == frozenset()
    assert group.member("m") is None


def update_until_over(group: GroupMembership[str], number: int) -> None:
    until = time.monotonic() + PATIENCE * time_scale()
    while time.monotonic() < until:
        group.update("m", str(number))


def test_the_step_claims_nothing_if_it_notices_the_loss_first(
    client: PluginLocator, monkeypatch: pytest.MonkeyPatch
) -> None:
    group, claims = client.group_membership("g"), list[object]()
    member = group.join("m", "", rejoin=False)
    driver, lifecycle = client.backend.membership, group._lifecycles["m"]
    claim = driver.claim

    def noted(*given: str | bytes) -> Future[Claim]:
        claims.append(given)
        return claim(*given)  # type: ignore[arg-type]  # as it was called

    monkeypatch.setattr(driver, "claim", noted)
    lifecycle._incarnations.close()  # the task that notices otherwise
    lose_session(client, member)
    lifecycle._task.wake()
    eventually(lambda: are_closed(client), what="the core has forgotten it")
    assert claims == []


def test_leaving_and_the_loss_at_once(open_client: OpenClient) -> None:
    client, other = open_client(), open_client()
    group, lost = client.group_membership("g"), Recorder[Member]()
    for _ in range(ROUNDS):
        member = group.join("m", "", rejoin=False, on_lost=lost)
        with ThreadPoolExecutor(2) as threads:
            expiring = threads.submit(faults(client).expire_session)
            with suppress(NotMemberError):
                group.leave("m")
            expiring.result(PATIENCE * time_scale())
        assert not member.is_valid()
        eventually(lambda: not other.group_membership("g").membership_list())
        with pytest.raises(NotMemberError):
            group.leave("m")
    eventually(lambda: are_closed(client), what="the core has forgotten them")
    assert len(lost.events) <= ROUNDS


def test_an_update_without_an_answer_stays_unknown(open_client: OpenClient) -> None:
    client = open_client()
    group = client.group_membership("g")
    member = group.join("m", "old", rejoin=False)
    silence = DriverFault(
        operation="membership.replace", effect=Effect.CUT_OFF, times=None, seconds=60
    )
    faults(client).add(silence)
    with ThreadPoolExecutor(1) as threads:
        updating = threads.submit(group.update, "m", "new")
        eventually(lambda: faults(client).counted() == 1, what="the update is under way")
        lose_session(client, member)
        with pytest.raises(OutcomeUnknownError):
            updating.result(PATIENCE * time_scale())
    faults(client).clear()
    eventually(lambda: not group.membership_list())


def test_a_claim_that_arrives_late_is_taken_back(open_client: OpenClient) -> None:
    client, other = open_client(), open_client()
    group = client.group_membership("g")
    faults(client).arrive_late("membership.claim", 1.5)
    member = group.join("m", "mine", rejoin=False)
    lose_session(client, member)
    eventually(has_arrived)
    eventually(lambda: not other.group_membership("g").membership_list())


def test_the_store_is_asked_to_release_it_even_if_it_is_silent(open_client: OpenClient) -> None:
    clock = ManualClock()
    client, other = open_client(clock), open_client(clock)
    group, lost = client.group_membership("g"), Recorder[Member]()
    member = group.join("m", "x", rejoin=False, on_lost=lost)
    faults(client).renewals_paused = True
    faults(client).fail("membership.release", times=None)
    clock.advance(1.9)
    assert lost.expect_count(1) == [member]
    with pytest.raises(NotMemberError, match="rejoin=False"):
        group.leave("m")
    clock.advance(1.0)
    eventually(lambda: not other.group_membership("g").membership_list())


def test_the_id_is_taken_by_another_client_at_once(open_client: OpenClient) -> None:
    client, other = open_client(), open_client()
    group, rival = client.group_membership("g"), other.group_membership("g")
    for _ in range(ROUNDS):
        member = group.join("m", "mine", rejoin=False)
        lose_session(client, member)
        assert eventually(lambda: rival.join("m", "theirs")).is_valid()
        with pytest.raises(MemberExistsError):
            group.join("m", "mine", rejoin=False)
        assert rival.membership() == {"m": "theirs"}
        rival.leave("m")


def test_leaving_and_closing_do_not_wait_for_the_release(open_client: OpenClient) -> None:
    client = open_client(
        **{"plugin.operation.timeout.ms": 30_000, "plugin.session.timeout.ms": 30_000}
    )
    group = client.group_membership("g")
    member = group.join("m", "", rejoin=False)
    faults(client).delay("membership.release", 2 * time_scale())
    lose_session(client, member)
    eventually(lambda: faults(client).counted() == 2, what="the release is under way")
    began = time.monotonic()
    with pytest.raises(NotMemberError):
        group.leave("m")
    group.close()
    assert time.monotonic() - began < time_scale()


def test_a_callback_may_call_anything(open_client: OpenClient) -> None:
    client = open_client()
    group, done = client.group_membership("g"), threading.Event()

    def act(_: Member) -> None:
        with suppress(NotMemberError):
            group.leave("m")
        client.close()
        done.set()

    group.join("m", "", rejoin=False, on_lost=act)
    faults(client).expire_session()
    assert done.wait(PATIENCE * time_scale())


@pytest.mark.real_time("an event loop waits in the selector of the system")
def test_asyncio(tmp_path: Path) -> None:
    async def main() -> None:
        async with aio.AsyncPluginLocator(properties(tmp_path)) as locator:
            group = locator.group_membership("g")
            lost: asyncio.Queue[aio.AsyncMember] = asyncio.Queue()
            member = await group.join("m", "1", rejoin=False, on_lost=lost.put)
            stays = await group.join("n", "1")
            assert await group.incarnations() == {
                "m": member.incarnation,
                "n": stays.incarnation,
            }
            faults_of(locator).expire_session()
            assert await asyncio.wait_for(lost.get(), PATIENCE * time_scale()) is member
            for call in (group.update("m", "2"), group.leave("m")):
                with pytest.raises(NotMemberError):
                    await call
            again = await group.join("m", "3", rejoin=False)
            assert again.incarnation > member.incarnation
            assert lost.empty()

    asyncio.run(main())


def test_it_does_not_come_back(open_client: OpenClient) -> None:
    client, other = open_client(), open_client()
    group = client.group_membership("g")
    members = [group.join(f"m{number}", "", rejoin=bool(number % 2)) for number in range(20)]
    for member in members:
        lose_session(client, member) if member is members[0] else member.lost.wait(
            PATIENCE * time_scale()
        )
    expected = frozenset(f"m{number}" for number in range(1, 20, 2))
    eventually(lambda: other.group_membership("g").membership_list() == expected)
    throughout(lambda: other.group_membership("g").membership_list() == expected, seconds=1)
