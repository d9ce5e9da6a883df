"""The engine on the embedded store: when a round begins, whom it waits for, and what is late."""

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kip30 import BYTES, IllegalGenerationError, PluginLocator
from kip30.coordinator import describe_group
from kip30_conformance.clients.item_coordinator import (
    await_call,
    await_generation,
    await_shared,
)
from kip30_conformance.clients.members import MemberFactory, poll_until_shared
from kip30_conformance.driver_faults import DriverFault, Effect, Interposition
from kip30_conformance.neighbour.base import leader as leader_of
from kip30_conformance.neighbour.embedded import EmbeddedNeighbour
from kip30_conformance.polling import eventually, throughout, time_scale
from kip30_conformance.suites.coordinator_rounds import held_call

from .conftest import OpenClient
from .test_abstract_coordinator import FOLLOWS, BrokenError, raising

STATE = "kip30.group/g/state"


def epoch_of(client: PluginLocator) -> int:
    found = client.leader_election("kip30.group/g").get_leader()
    return -1 if found is None else found.epoch


def committed(client: PluginLocator) -> int:
    found = describe_group(client, "g")
    return -1 if found is None else found.generation


# -- what the application hears of a round


@pytest.mark.case("K02")
def test_it_prepares_once_however_often_the_join_is_retried(
    open_client: OpenClient, members: MemberFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = open_client()
    faults = Interposition(client.backend)
    leader, one = members.polled(open_client()), members.polled(client, **FOLLOWS)
    prepared: list[tuple[int, str]] = []
    on_join_prepare = one.on_join_prepare

    def noted(generation: int, member_id: str) -> None:
        prepared.append((generation, member_id))
        on_join_prepare(generation, member_id)

    monkeypatch.setattr(one, "on_join_prepare", noted)
    faults.fail("membership.claim", times=2)
    one.before = raising("on_join_prepare")  # type: ignore[assignment]
    with pytest.raises(BrokenError):
        one.ensure_active_group(20)
    leader.start()
    poll_until_shared(one, leader)
    faults.fail("membership.replace", times=2)
    faults.lose_answers("membership.replace")
    number = leader.generation.generation
    leader.request_rejoin("another round")
    eventually(lambda: one.poll(0.05) and one.generation.generation > number, what="a round")
    poll_until_shared(one, leader)
    assert faults.counted() == 5
    previous = [(-1, ""), *((number, one.member_id) for number in one.generations())]
    assert prepared == previous[: len(prepared)]
    assert len(prepared) == len(one.generations())


@pytest.mark.case("K03")
def test_a_generation_is_taken_up_once_and_what_raised_gets_the_same_share(
    client: PluginLocator, members: MemberFactory
) -> None:
    one = members.polled(client)
    one.before = raising("on_join_complete", 2)  # type: ignore[assignment]
    for _ in range(2):
        with pytest.raises(BrokenError):
            one.ensure_active_group(20)
    poll_until_shared(one)
    shares = [call.items for call in one.calls if call.name == "on_join_complete"]
    assert shares == [frozenset(range(6))] * 3
    states = client.storage(BYTES)
    for _ in range(3):  # as a successor does that takes the group over without a round
        found = states.get(STATE)
        assert found is not None
        states.compare_and_set(STATE, found.version, found.value)
        throughout(lambda: one.poll(0.02) and one.generations() == [1, 1, 1], seconds=0.3)
    assert one.is_valid()


@pytest.mark.case("K03")
def test_a_member_is_active_only_once_it_has_taken_its_share_up(
    client: PluginLocator, members: MemberFactory
) -> None:
    one = members.polled(client)
    with held_call(one, "on_join_complete") as begun:
        one.start()
        assert begun.wait(20)
        assert not one.ensure_active_group(0.1)
    assert one.ensure_active_group(20)
    assert one.held == frozenset(range(6))


# -- when a round ends


@pytest.mark.case("K17")
def test_a_round_that_no_member_has_joined_commits_no_generation(
    client: PluginLocator, open_client: OpenClient, members: MemberFactory
) -> None:
    first, second = members.started(open_client()), members.started(open_client(), **FOLLOWS)
    await_shared(first, second)
    number = committed(client)
    group = client.group_membership("kip30.group/g")
    with held_call(first, "on_join_prepare"), held_call(second, "on_join_prepare"):
        first.request_rejoin("another round")
        eventually(lambda: not group.membership_list(), within=20, what="both have left")
        assert committed(client) == number
        assert client.storage().fetch(STATE) is not None
    await_shared(first, second)
    assert committed(client) > number
    taken_up = {*first.generations(), *second.generations()}
    assert taken_up == {*range(1, committed(client) + 1)}  # none of them was empty


@pytest.mark.case("K23")
def test_a_round_waits_for_the_greatest_rebalance_timeout(
    open_client: OpenClient, members: MemberFactory
) -> None:
    hasty: dict[str, Any] = {"rebalance_timeout_seconds": 1.5}
    slow = {"rebalance_timeout_seconds": 30.0 * time_scale(), "eligible": False}
    first = members.started(open_client(), config=hasty)
    second = members.started(open_client(), config=slow)
    await_shared(first, second)
    with held_call(second, "on_join_prepare") as begun:
        first.request_rejoin("another round")
        assert begun.wait(20)
        # Not earlier: the round that lets both share may be followed by one of its own.
        number = first.generation.generation
        throughout(lambda: first.generation.generation == number, seconds=3.0)
    await_generation(first, number + 1)
    await_shared(first, second)
    assert second.generations()[-2:] == [number, number + 1]
    assert "on_lost" not in second.names()


# -- when a round begins


@pytest.mark.case("K29")
def test_newcomers_cannot_put_the_first_round_off_for_ever(
    open_client: OpenClient, members: MemberFactory
) -> None:
    # A leader that loses its session starts the delay again, so a slow machine needs longer ones.
    scale = time_scale()
    timeout = round(1000 * scale)
    client = open_client(
        **{"plugin.session.timeout.ms": timeout, "plugin.operation.timeout.ms": timeout}
    )
    patient: dict[str, Any] = {
        "config": {"initial_delay_seconds": scale, "rebalance_timeout_seconds": 2 * scale}
    }
    first = members.started(client, **patient)
    for _ in range(50):
        another_at = time.monotonic() + 0.2 * scale  # each prolongs the delay
        eventually(lambda: first.generations() or time.monotonic() > another_at)  # noqa: B023
        if first.generations():
            break
        members.started(client, **patient)
    assert first.generations() == [1]


@pytest.mark.case("K30")
def test_a_group_with_members_begins_a_round_without_the_initial_delay(
    client: PluginLocator, members: MemberFactory
) -> None:
    delay = 1.5 * time_scale()
    patient = {"initial_delay_seconds": delay, "rebalance_timeout_seconds": 3 * delay}
    first = members.started(client, config=patient)
    await_shared(first)
    second = members.started(client, config=patient)
    await_shared(first, second)
    for one, waits in ((first, True), (second, False)):
        began, ended = (
            next(call.at for call in one.calls if call.name == name)
            for name in ("on_join_prepare", "on_join_complete")
        )
        assert (ended - began >= delay) == waits


@pytest.mark.case("K59")
def test_a_member_that_comes_and_goes_all_the_time_causes_few_rounds(
    client: PluginLocator, open_client: OpenClient, members: MemberFactory
) -> None:
    first = members.started(open_client())
    await_shared(first)
    begun, number = time.monotonic(), committed(client)
    while time.monotonic() < begun + 5:
        with closing(members.polled(client, **FOLLOWS)) as visitor:
            visitor.start()
            await_call(visitor, "on_join_complete")
    elapsed = time.monotonic() - begun
    # Pauses of 0.01 s, doubled five times: five rounds before they are as long as they become.
    assert committed(client) - number <= 6 + elapsed / 0.32
    await_shared(first)


# -- what is late


@pytest.mark.case("K33")
def test_an_assignor_that_fails_late_does_not_disturb_the_next_term(
    client: PluginLocator, members: MemberFactory, tmp_path: Path
) -> None:
    first, second = members.started(client), members.polled(client, **FOLLOWS)
    await_shared(first)
    second.start()
    await_shared(first, second)
    neighbour = EmbeddedNeighbour(tmp_path / "state" / "kip30.db", client.context.namespace)
    with neighbour, held_call(first, "perform_assignment") as begun:
        hold = first.before

        def hold_and_fail(name: str) -> None:
            hold(name)
            if name == "perform_assignment":
                raise BrokenError(name)

        first.before = hold_and_fail
        first.request_rejoin("another round")
        assert begun.wait(20)
        before = epoch_of(client)
        neighbour.remove(leader_of("kip30.group/g"))
        eventually(lambda: epoch_of(client) > before, within=20, what="the next term")
        after = epoch_of(client)
        parts = first._resources
        assert parts is not None
        # The next term asks for an assignment, too, which the held call cannot perform.
        eventually(lambda: parts.leader._vote is not None, within=20, what="its assignment")
    await_shared(first, second)
    assert epoch_of(client) == after  # or the leader would have resigned
    assert "on_lost" not in [*first.names(), *second.names()]


@pytest.mark.case("K33")
def test_a_late_refusal_of_a_write_does_not_touch_the_present_share(
    client: PluginLocator, open_client: OpenClient, members: MemberFactory
) -> None:
    first, second = members.started(open_client()), members.started(client, **FOLLOWS)
    await_shared(first, second)
    number, storage = second.generation.generation, second.storage()
    faults = Interposition(client.backend)
    faults.add(DriverFault(operation="storage.write", effect=Effect.DELAY, seconds=0.7))
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(storage.put, "k", "of the old share")
        eventually(lambda: faults.counted() == 1, what="the write is under way")
        first.request_rejoin("another round")
        await_generation(second, number + 1)
        await_shared(first, second)
        assert not late.done()
        calls, lost = second.names(), second.lost
        with pytest.raises(IllegalGenerationError):
            late.result()
    assert second.generation.generation == number + 1
    assert second.is_valid()
    assert storage.put("k", "of the new share")
    assert not lost.is_set()
    assert second.names() == calls
