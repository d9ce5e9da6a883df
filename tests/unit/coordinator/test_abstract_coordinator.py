"""The engine on the embedded store: rounds that do not go as they should."""

import threading
import time
from collections.abc import Sequence
from concurrent.futures import CancelledError
from typing import Any

import pytest

from kip30 import ClosedError, GroupError, PluginLocator, UsageError, ValueTooLargeError
from kip30.coordinator import JoinGroupMetadata, MemberState
from kip30.errors import (
    KeyExistsError,
    KeyMissingError,
    MemberExistsError,
    OutcomeUnknownError,
    UnavailableError,
    VersionConflictError,
)
from kip30_conformance.clients.item_coordinator import (
    ItemCoordinator,
    are_shared,
    await_call,
    await_shared,
)
from kip30_conformance.clients.members import (
    MemberFactory,
    poll_until_called,
    poll_until_generation,
    poll_until_shared,
)
from kip30_conformance.polling import eventually, throughout, time_scale
from kip30_conformance.suites.coordinator_rounds import held_call
from tests.embedded_faults import faults_of

from .conftest import OpenClient

FOLLOWS: dict[str, Any] = {"config": {"eligible": False}}


class BrokenError(Exception):
    """Error that an application raises."""


def raising(name: str, times: int = 1) -> object:
    """Return a hook that raises in the first calls of *name*."""
    left = [times]

    def before(called: str) -> None:
        if called == name and left[0]:
            left[0] -= 1
            raise BrokenError(name)

    return before


@pytest.mark.case("K05")
@pytest.mark.case("K06")
def test_an_omitted_member_has_an_empty_share_and_foreign_ids_are_ignored(
    client: PluginLocator, members: MemberFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader, other = members.polled(client), members.polled(client, **FOLLOWS)
    monkeypatch.setattr(
        ItemCoordinator,
        "perform_assignment",
        lambda self, *_: {self.member_id: b"[0]", "another": b"[1]"},
    )
    leader.start()
    other.start()
    eventually(lambda: leader.works_on() == {0} and other.generations(), what="both have shares")
    assert other.works_on() == frozenset()
    assert other.is_valid()


@pytest.mark.case("K07")
@pytest.mark.parametrize("answer", [None, {"a": 5}, [b"x"]])
def test_an_assignor_that_fails_has_its_leader_resign(
    open_client: OpenClient,
    members: MemberFactory,
    monkeypatch: pytest.MonkeyPatch,
    answer: object,
) -> None:
    first = members.started(open_client())
    await_shared(first)
    monkeypatch.setattr(first, "perform_assignment", lambda *_: answer)
    second = members.started(open_client())
    eventually(lambda: second.is_leader, within=20, what="another leads")
    await_shared(first, second)
    assert not first.is_leader


@pytest.mark.case("K07")
def test_an_assignor_that_hangs_has_its_leader_resign(
    open_client: OpenClient, members: MemberFactory
) -> None:
    first = members.started(open_client())
    await_shared(first)
    with held_call(first, "perform_assignment") as begun:
        second = members.started(open_client())
        assert begun.wait(20)
        eventually(lambda: second.is_leader, within=20, what="another leads")
        eventually(
            lambda: second.works_on() == frozenset(range(6)), within=20, what="it has it all"
        )
        assert not first.is_valid()
    await_shared(first, second)
    assert "on_lost" in first.names()


@pytest.mark.case("K11")
def test_a_member_without_a_common_protocol_is_refused(
    client: PluginLocator, members: MemberFactory
) -> None:
    first = members.started(client, protocols=("p", "q"))
    await_shared(first)
    other = members.polled(client, protocols=("r",), **FOLLOWS)
    with pytest.raises(GroupError, match="protocol"):
        other.ensure_active_group(20)
    await_shared(first)
    assert other.state is MemberState.UNJOINED or other.failure is not None


def test_members_above_the_limit_are_refused(client: PluginLocator, members: MemberFactory) -> None:
    first = members.started(client, config={"max_size": 1})
    await_shared(first)
    other = members.started(client, **FOLLOWS)
    eventually(lambda: other.failure is not None, within=20, what="it is refused")
    assert isinstance(other.failure, GroupError)
    with pytest.raises(GroupError):
        other.ensure_active_group(1)
    await_shared(first)


@pytest.mark.case("K15")
@pytest.mark.case("K19")
@pytest.mark.case("K20")
def test_only_changed_metadata_of_a_follower_causes_a_round(
    client: PluginLocator, members: MemberFactory
) -> None:
    leader, other = members.started(client), members.started(client, **FOLLOWS)
    await_shared(leader, other)
    number = leader.generation.generation
    other.request_rejoin("nothing has changed")
    throughout(lambda: leader.generation.generation == number, seconds=0.5)
    other.offer = type(other.offer)(subscription="other")
    other.request_rejoin("it has changed")
    eventually(lambda: leader.generation.generation == number + 1, within=20, what="a round")
    await_shared(leader, other)
    assert leader.is_leader


@pytest.mark.case("K16")
def test_a_leader_that_does_not_join_is_replaced_and_left_out(
    open_client: OpenClient, members: MemberFactory
) -> None:
    first = members.started(open_client())
    await_shared(first)
    with held_call(first, "on_join_prepare") as begun:
        second = members.started(open_client())
        assert begun.wait(20)
        eventually(second.generations, within=20, what="it goes on without the first")
        assert second.works_on() == frozenset(range(6))
        assert not first.is_valid()
    await_shared(first, second)


@pytest.mark.case("K24")
@pytest.mark.case("K26")
def test_a_member_that_does_not_poll_loses_its_share_and_leaves(
    open_client: OpenClient, members: MemberFactory
) -> None:
    first, second = members.started(open_client()), members.polled(open_client(), **FOLLOWS)
    poll_until_shared(second, first)
    lost = second.lost
    eventually(lambda: first.works_on() == frozenset(range(6)), within=20, what="it has it all")
    assert lost.is_set()
    assert not second.is_valid()
    assert second.names()[-1] == "on_join_complete"  # the heartbeat task calls nothing
    poll_until_called(second, "on_lost", 1)
    poll_until_shared(second, first)


@pytest.mark.case("K26")
@pytest.mark.medium
@pytest.mark.parametrize("is_in_callback", [False, True])
def test_a_member_polls_in_peace_after_a_silence_of_two_rebalance_timeouts(
    open_client: OpenClient, members: MemberFactory, *, is_in_callback: bool
) -> None:
    """Its heartbeats go on, in the same poll, so that the share which it has then stays."""
    seconds = 0.5 * time_scale()
    names = ("plugin.session.timeout.ms", "plugin.operation.timeout.ms")
    client = open_client(**dict.fromkeys(names, round(800 * seconds)))
    config = {"rebalance_timeout_seconds": seconds, "heartbeat_seconds": seconds / 4}
    one = members.polled(client, config=config)

    def be_silent(name: str = "on_join_complete") -> None:
        if name == "on_join_complete" and one.names().count(name) == 1:
            until = one.clock.now() + 2.5 * seconds
            eventually(lambda: one.clock.now() >= until, within=10, what="the silence has passed")

    if is_in_callback:
        one.before = be_silent
    else:
        poll_until_shared(one)
        be_silent()
    one.poll((6 if is_in_callback else 3.5) * seconds)
    assert one.is_valid()
    assert one.names().count("on_join_complete") == 2
    assert one.names().count("on_lost") == 1


@pytest.mark.case("K26")
@pytest.mark.case("K65")
def test_no_other_member_has_the_share_before_a_deadline_that_a_silent_member_has_read(
    open_client: OpenClient, members: MemberFactory
) -> None:
    """Work may go on beside the thread that should poll, and goes by the deadline."""
    client = open_client()
    first, second = members.started(open_client()), members.polled(client, **FOLLOWS)
    poll_until_shared(second, first)
    deadlines = list[float]()

    def is_taken() -> bool:
        deadlines.append(second.deadline)
        return first.works_on() == frozenset(range(6))

    eventually(is_taken, within=20, what="it has it all")
    assert max(deadlines) <= client.context.clock.now()


@pytest.mark.case("K27")
@pytest.mark.case("K28")
def test_the_first_round_waits_for_more_members(
    client: PluginLocator, members: MemberFactory
) -> None:
    delay = 0.5 * time_scale()
    config = {"initial_delay_seconds": delay, "rebalance_timeout_seconds": 2 + 5 * delay}
    three = list[ItemCoordinator]()
    for _ in range(3):
        three.append(members.started(client, config=config))
        # Each newcomer prolongs the delay, or it would end before the third comes.
        throughout(lambda: not any(one.generations() for one in three), seconds=0.6 * delay)
    await_shared(*three)
    assert [one.generations() for one in three] == [[1], [1], [1]]


@pytest.mark.case("K60")
def test_a_callback_error_reaches_the_caller_and_the_member_goes_on(
    client: PluginLocator, members: MemberFactory
) -> None:
    one = members.polled(client)
    one.before = raising("on_join_prepare")  # type: ignore[assignment]
    with pytest.raises(BrokenError):
        one.ensure_active_group(20)
    one.before = raising("on_join_complete", 2)  # type: ignore[assignment]
    for _ in range(2):
        with pytest.raises(BrokenError):
            one.ensure_active_group(20)
        assert not one.is_valid()
        assert one.lost.is_set()
    assert one.ensure_active_group(20)
    assert one.names().count("on_join_prepare") == 1
    assert one.generations() == [1, 1, 1]
    assert are_shared([one])


@pytest.mark.case("K60")
def test_a_thread_of_its_own_outlives_what_callbacks_raise(
    client: PluginLocator, members: MemberFactory
) -> None:
    one = members.polled(client)
    one.before = raising("on_join_complete", 2)  # type: ignore[assignment]
    one.start()
    await_shared(one)
    assert one.generations() == [1, 1, 1]


EVERY_CALL = ("metadata", "on_join_prepare", "on_join_complete", "on_lost", "refresh")
ERRORS_OF_KIP30 = (
    ClosedError,
    CancelledError,
    UnavailableError,
    OutcomeUnknownError,
    MemberExistsError,
    KeyExistsError,
    KeyMissingError,
    VersionConflictError,
)


def raise_once(
    patch: pytest.MonkeyPatch, one: ItemCoordinator, name: str, error: BaseException
) -> list[BaseException]:
    """Let the next call of *name* raise *error*; it is in the returned list until then."""
    method, left = getattr(one, name), [error]

    def failing(*arguments: Any) -> Any:
        if left:
            raise left.pop()
        return method(*arguments)

    patch.setattr(one, name, failing)
    return left


@pytest.mark.case("K60")
@pytest.mark.parametrize("name", EVERY_CALL)
@pytest.mark.parametrize("kind", ERRORS_OF_KIP30)
def test_an_error_of_a_callback_is_not_taken_for_one_of_the_store(
    client: PluginLocator,
    members: MemberFactory,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    kind: type[Exception],
) -> None:
    one = members.polled(client)
    error = kind("of another store")
    raise_once(monkeypatch, one, name, error)
    if name == "on_lost":
        assert one.ensure_active_group(20)
        faults_of(client.backend).expire_session()
    with pytest.raises(kind) as raised:
        one.poll(20)
    assert raised.value is error
    assert one.ensure_active_group(20)
    assert are_shared([one])


@pytest.mark.case("K60")
@pytest.mark.parametrize("name", EVERY_CALL)
@pytest.mark.parametrize("kind", [ClosedError, CancelledError, UnavailableError, SystemExit])
def test_a_thread_of_its_own_outlives_every_error_of_a_callback(
    client: PluginLocator,
    members: MemberFactory,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    kind: type[BaseException],
) -> None:
    one = members.polled(client)
    left = raise_once(monkeypatch, one, name, kind("of another store"))
    one.start()
    if name == "on_lost":
        await_shared(one)
        faults_of(client.backend).expire_session()
    eventually(lambda: not left, within=30, what=f"{name} has raised")
    await_shared(one)
    faults_of(client.backend).expire_session()
    await_call(one, "on_lost")


def test_an_offer_without_protocols_raises_a_usage_error(
    client: PluginLocator, members: MemberFactory
) -> None:
    one = members.polled(client, protocols=())
    with pytest.raises(UsageError, match="offers no protocol"):
        one.poll(5)
    assert client.group_membership("kip30.group/g").membership_list() == frozenset()
    one.offer = type(one.offer)()
    assert one.ensure_active_group(20)


def test_a_too_large_subscription_raises_and_can_be_corrected(
    client: PluginLocator, members: MemberFactory
) -> None:
    one = members.polled(client, subscription="x" * 2**18)
    with pytest.raises(ValueTooLargeError):
        one.poll(5)
    one.offer = type(one.offer)()
    assert one.ensure_active_group(20)
    one.offer = type(one.offer)(subscription="x" * 2**18)
    one.request_rejoin("it is larger now")
    with pytest.raises(ValueTooLargeError):
        one.poll(5)
    assert one.is_valid()
    one.offer = type(one.offer)(subscription="other")
    assert one.ensure_active_group(20)


def test_a_request_for_a_round_is_not_lost_because_metadata_raises(
    client: PluginLocator, members: MemberFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader, other = members.started(client), members.polled(client, **FOLLOWS)
    poll_until_shared(other, leader)
    number = leader.generation.generation
    metadata, left = other.metadata, [2]

    def failing() -> Sequence[JoinGroupMetadata]:
        if left[0]:
            left[0] -= 1
            raise BrokenError
        return metadata()

    monkeypatch.setattr(other, "metadata", failing)
    other.offer = type(other.offer)(subscription="other")
    other.request_rejoin("it has changed")
    for _ in range(2):
        with pytest.raises(BrokenError):
            other.poll(20)
        assert other.is_valid()
    poll_until_generation(other, leader, number + 1)


@pytest.mark.case("K65")
def test_the_share_is_valid_when_it_is_given(client: PluginLocator, members: MemberFactory) -> None:
    one = members.polled(client)
    seen: list[bool] = []
    one.before = lambda _: seen.append(one.is_valid() and not one.lost.is_set())
    assert one.ensure_active_group(20)
    assert dict(zip(one.names(), seen, strict=True)) == {
        "on_join_prepare": False,
        "perform_assignment": False,
        "on_join_complete": True,
    }
    now = one.clock.now()
    assert now < one.deadline <= now + client.context.session_timeout_seconds
    one.close()
    assert not one.is_valid()
    assert one.lost.is_set()


def test_a_group_that_was_left_by_all_is_led_at_once_again(
    client: PluginLocator, members: MemberFactory
) -> None:
    for number in range(1, 4):
        begun = time.monotonic()
        with members.started(client) as one:
            await_shared(one)
        assert one.generations() == [number]
        assert time.monotonic() - begun < 5


def test_a_member_waits_without_threads_that_do_nothing(
    client: PluginLocator, members: MemberFactory
) -> None:
    before = {*threading.enumerate()}
    one = members.started(client)
    await_shared(one)
    await_call(one, "on_join_complete")
    one.close()
    eventually(
        lambda: not {t for t in {*threading.enumerate()} - before if "group" in t.name},
        what="no thread is left",
    )
