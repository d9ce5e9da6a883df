"""Ends of coordinators: closed, left, forked, without threads, or without a store."""

import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kip30 import (
    ClosedError,
    ConfigError,
    IllegalGenerationError,
    LifecycleError,
    PluginLocator,
    UnavailableError,
    UsageError,
)
from kip30.codecs import STR
from kip30.coordinator import Generation, GroupConfig, MemberState
from kip30.errors import FencedInstanceError
from kip30_conformance.clients.fork_calls import in_forked_child
from kip30_conformance.clients.item_coordinator import ItemCoordinator, await_call, await_shared
from kip30_conformance.clients.members import MemberFactory, poll_until_shared
from kip30_conformance.polling import eventually, time_scale
from kip30_conformance.suites.coordinator_rounds import held_call
from tests.embedded_faults import faults_of
from tests.unit.core.trouble import frozen
from tests.unit.threads import no_threads

from .conftest import OpenClient


def has_members(client: PluginLocator) -> bool:
    return bool(client.group_membership("kip30.group/g").membership_list())


def test_nothing_is_sent_before_the_first_poll(
    client: PluginLocator, members: MemberFactory
) -> None:
    one = members.polled(client)
    assert one.generation == Generation(-1, "", None)
    assert one.state is MemberState.UNJOINED
    assert (one.is_leader, one.is_valid(), one.lost.is_set()) == (False, False, True)
    with pytest.raises(IllegalGenerationError):
        one.check()
    one.close()
    assert one.names() == []
    for call in (one.poll, one.start, one.ensure_active_group, one.storage):
        with pytest.raises(ClosedError):
            call()


@pytest.mark.parametrize("timeout", [-1, float("nan")])
def test_timeouts_are_checked(
    client: PluginLocator, members: MemberFactory, timeout: float
) -> None:
    one = members.polled(client)
    for call in (one.poll, one.ensure_active_group):
        with pytest.raises(UsageError):
            call(timeout)


def test_settings_that_contradict_the_session_are_refused(client: PluginLocator) -> None:
    with pytest.raises(ConfigError, match="rebalance_timeout_seconds"):
        ItemCoordinator(
            client,
            config=GroupConfig(rebalance_timeout_seconds=0.9, heartbeat_seconds=0.1),
        )


@pytest.mark.case("K37")
@pytest.mark.parametrize("raises", [False, True])
def test_the_application_is_asked_before_the_member_leaves(
    client: PluginLocator, members: MemberFactory, *, raises: bool
) -> None:
    one = members.started(client)
    await_shared(one)
    seen: list[tuple[bool, bool]] = []

    def before(name: str) -> None:
        if name == "on_leave_prepare":
            seen.append((one.is_valid(), has_members(client)))
            one.storage()
            if raises:
                raise ValueError(name)

    one.before = before
    one.close()
    one.close()
    assert seen == [(True, True)]
    assert not has_members(client)
    assert one.names().count("on_leave_prepare") == 1


def test_close_in_a_callback_ends_the_member_after_it(
    client: PluginLocator, members: MemberFactory
) -> None:
    one = members.polled(client)
    one.before = lambda name: one.close() if name == "on_join_complete" else None
    with pytest.raises(ClosedError):
        one.ensure_active_group(20)
    assert one.names()[-1] == "on_leave_prepare"
    assert not has_members(client)


def test_close_does_not_wait_for_a_callback_for_ever(
    client: PluginLocator, members: MemberFactory
) -> None:
    one = members.polled(client)
    with held_call(one, "on_join_complete") as begun:
        one.start()
        assert begun.wait(20)
        one.close()
        assert not has_members(client)
        assert not one.is_valid()
        assert one.names()[-1] == "on_join_complete"
    eventually(
        lambda: all(thread.name != "kip30-group-g" for thread in threading.enumerate()),
        what="the thread has ended",
    )


def refuses_to_begin(one: ItemCoordinator) -> bool:
    try:
        one.request_rejoin("to find out")
    except ClosedError:
        return True
    return False


def no_group_threads() -> None:
    eventually(
        lambda: all("kip30-group-" not in thread.name for thread in threading.enumerate()),
        what="all threads of the coordinator have ended",
    )


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_a_member_leaves_also_if_its_application_is_interrupted_then(
    client: PluginLocator, members: MemberFactory, error: type[BaseException]
) -> None:
    one = members.polled(client)
    poll_until_shared(one)

    def before(name: str) -> None:
        if name == "on_leave_prepare":
            raise error

    one.before = before
    with pytest.raises(error):
        one.close()
    assert not has_members(client)
    assert not one.is_valid()
    no_group_threads()
    one.close()


def test_a_member_leaves_also_if_close_is_interrupted(
    client: PluginLocator, members: MemberFactory
) -> None:
    one = members.polled(client)

    def interrupt() -> None:
        eventually(lambda: refuses_to_begin(one), what="close has begun")
        signal.pthread_kill(main, signal.SIGINT)

    main = threading.main_thread().ident or 0
    assert main == threading.get_ident()
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with ThreadPoolExecutor(1) as pool, held_call(one, "on_join_complete") as begun:
            one.start()
            assert begun.wait(20)
            interrupting = pool.submit(interrupt)
            with pytest.raises(KeyboardInterrupt):
                one.close()
            interrupting.result()
            assert not has_members(client)
            assert not one.is_valid()
    finally:
        signal.signal(signal.SIGINT, handler)
    no_group_threads()


def test_a_close_takes_one_operation_timeout_while_the_store_is_silent(
    open_client: OpenClient, members: MemberFactory, tmp_path: Path
) -> None:
    seconds = 0.5 * time_scale()
    patient = {"plugin.session.timeout.ms": 30_000}
    client = open_client(**{**patient, "plugin.operation.timeout.ms": round(1000 * seconds)})
    one = members.polled(client)
    poll_until_shared(one)
    assert one.is_leader
    with frozen(tmp_path):
        began_at = time.monotonic()
        one.close()
        assert time.monotonic() - began_at < 1.5 * seconds
    eventually(lambda: not has_members(client))


def test_closing_from_many_threads(open_client: OpenClient, members: MemberFactory) -> None:
    client = open_client()
    one = members.started(client)
    with ThreadPoolExecutor(8) as pool:
        for future in [pool.submit(one.close) for _ in range(8)]:
            future.result()
    assert not has_members(client)


def test_one_thread_polls_at_a_time(client: PluginLocator, members: MemberFactory) -> None:
    one = members.polled(client)
    with ThreadPoolExecutor(1) as pool, held_call(one, "on_join_complete") as begun:
        polling = pool.submit(one.ensure_active_group, 20)
        assert begun.wait(20)
        with pytest.raises(LifecycleError):
            one.poll()
        with pytest.raises(LifecycleError):
            one.start()
    assert polling.result()


def test_a_callback_cannot_poll(client: PluginLocator, members: MemberFactory) -> None:
    one = members.polled(client)
    one.before = lambda _: one.poll()
    with pytest.raises(LifecycleError):
        one.poll(5)


@pytest.mark.parametrize("name", ["on_join_prepare", "on_join_complete", "on_leave_prepare"])
def test_a_callback_of_a_started_coordinator_cannot_wait_for_the_group(
    client: PluginLocator, members: MemberFactory, name: str
) -> None:
    one = members.polled(client)
    errors = list[str]()

    def before(called: str) -> None:
        if called == name:
            with pytest.raises(LifecycleError) as raised:
                one.ensure_active_group(120 * time_scale())
            errors.append(str(raised.value))

    one.before = before
    one.start()
    await_shared(one)
    one.close()
    assert len(errors) == 1
    assert "callback" in errors[0]


def test_a_started_coordinator_is_not_polled(client: PluginLocator, members: MemberFactory) -> None:
    one = members.started(client)
    for call in (one.poll, one.start):
        with pytest.raises(LifecycleError):
            call()
    assert one.ensure_active_group(20)


def test_without_a_thread_to_spare_nothing_is_done(
    client: PluginLocator, members: MemberFactory
) -> None:
    one = members.polled(client)
    with no_threads("kip30-group"):
        with pytest.raises(UnavailableError, match="no thread to spare"):
            one.start()
        with pytest.raises(UnavailableError, match="no thread to spare"):
            one.poll(1)
    assert not has_members(client)
    assert one.ensure_active_group(20)


def test_a_forked_child_is_no_member(client: PluginLocator, members: MemberFactory) -> None:
    one = members.started(client)
    await_shared(one)
    assert in_forked_child(lambda: (one.is_valid(), one.is_leader, one.state)) == str(
        (False, False, MemberState.UNJOINED)
    )
    assert in_forked_child(one.poll) == "LifecycleError"
    assert in_forked_child(one.storage) == "LifecycleError"
    assert in_forked_child(one.close) == "None"
    await_shared(one)


def test_a_locator_that_is_closed_first_ends_the_member(
    open_client: OpenClient, members: MemberFactory
) -> None:
    other = open_client()
    closing = open_client()
    one, second = members.started(closing), members.started(other)
    await_shared(one, second)
    closing.close()
    assert not one.is_valid()
    await_shared(second)
    one.close()


@pytest.mark.parametrize("is_started", [False, True])
def test_a_closed_locator_ends_the_threads_of_a_member_that_is_not_closed(
    open_client: OpenClient, members: MemberFactory, *, is_started: bool
) -> None:
    client = open_client()
    one = members.polled(client)
    if is_started:
        one.start()
        await_shared(one)
    else:
        poll_until_shared(one)
    client.close()
    if not is_started:
        with pytest.raises(ClosedError):
            one.poll(20)
    no_group_threads()
    assert one.names().count("on_leave_prepare") == 1
    with pytest.raises(ClosedError):
        one.request_rejoin("to find out")
    one.close()
    assert one.names().count("on_leave_prepare") == 1


@pytest.mark.case("K36")
@pytest.mark.case("K67")
def test_a_lost_session_is_a_lost_share_and_a_fresh_join(
    open_client: OpenClient, members: MemberFactory
) -> None:
    client = open_client()
    one = members.started(client)
    await_shared(one)
    lost = one.lost
    faults_of(client.backend).expire_session()
    assert lost.wait(20)
    await_call(one, "on_lost")
    await_shared(one)
    names = [name for name in one.names() if name != "perform_assignment"]
    assert names[2:] == ["on_lost", "on_join_prepare", "on_join_complete"]
    assert one.calls[-1].generation == 2


@pytest.mark.case("K61")
@pytest.mark.case("K65")
def test_a_store_that_is_away_ends_the_share_by_the_clock(
    open_client: OpenClient, members: MemberFactory
) -> None:
    client = open_client()
    one = members.polled(client)
    poll_until_shared(one)
    lost = one.lost
    with faults_of(client.backend).cut_off():
        deadline = one.deadline
        assert lost.wait(20)
        assert not one.is_valid()
        assert one.clock.now() >= deadline
        assert not one.poll(0.1)
    poll_until_shared(one)
    assert "on_lost" in one.names()


def test_waiting_for_a_member_of_a_closed_locator_ends(
    open_client: OpenClient, members: MemberFactory
) -> None:
    client = open_client()
    one = members.started(client)
    await_shared(one)
    client.close()
    with pytest.raises(ClosedError):
        one.ensure_active_group()
    assert one.state is MemberState.UNJOINED


@pytest.mark.case("K39")
def test_a_write_that_is_refused_while_a_replaced_member_ends_says_so(
    open_client: OpenClient, members: MemberFactory
) -> None:
    static = {"group_instance_id": "k"}
    old = members.started(open_client(), config=static)
    await_shared(old)
    attempts = old._guards(STR).attempts()
    next(attempts)
    await_shared(members.started(open_client(), config=static))
    eventually(lambda: isinstance(old.failure, FencedInstanceError), within=20)
    eventually(old._closed.is_set)
    with pytest.raises(FencedInstanceError):
        next(attempts)
