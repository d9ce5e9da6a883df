"""Handles, processes and callbacks that end at awkward moments."""

import gc
import os
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kip30 import ClosedError, KeySetChange, LifecycleError, PluginLocator, ValueChange
from kip30.runtime.dispatcher import Dispatcher
from kip30_conformance.polling import eventually
from tests.unit.threads import no_threads

from .conftest import OpenClient
from .trouble import faults

pytestmark = pytest.mark.virtual_time


def test_a_blocked_callback_starves_no_other(client: PluginLocator) -> None:
    storage = client.storage()
    storage.put("n/k", "0")
    for attempt in range(20):
        release = threading.Event()
        told: list[ValueChange[str]] = []
        registry = client.listener_registry()

        registry.add_value_change_listener("n/k", partial(_block, release))
        registries = [client.listener_registry() for _ in range(5)]
        for each in registries:
            each.add_value_change_listener("n/k", told.append)
        storage.update("n/k", str(attempt))
        _await_length(told, 5)
        release.set()
        for each in (registry, *registries):
            each.close()


def test_a_callback_that_raises_system_exit_keeps_being_called(client: PluginLocator) -> None:
    storage, registry = client.storage(), client.listener_registry()
    calls: list[str | None] = []

    def leave(change: ValueChange[str]) -> None:
        calls.append(change.value)
        raise SystemExit(1)

    registry.add_value_change_listener("k", leave)
    storage.put("k", "0")
    for number in range(1, 6):
        _await_length(calls, number)
        storage.update("k", str(number))
    _await_length(calls, 6)


def test_a_handle_closed_without_the_store_lets_go_when_it_is_back(open_client: OpenClient) -> None:
    client, other = open_client(), open_client()
    election, group = client.leader_election("s"), client.group_membership("g")
    assert election.nominate("a", "")
    group.join("m", "")
    with faults(client).cut_off():
        election.close()
        group.close()
    eventually(lambda: other.leader_election("s").get_leader() is None)
    eventually(lambda: not other.group_membership("g").membership_list())


def test_a_closing_handle_refuses_nominations(open_client: OpenClient) -> None:
    client, other = open_client(), open_client()
    election = client.leader_election("s")
    election.nominate("a", "")
    faults(client).delay("election.release", 0.5)
    with ThreadPoolExecutor(1) as pool:
        closing = pool.submit(election.close)
        eventually(lambda: election.__dict__["_closed"])
        with pytest.raises(LifecycleError):
            election.nominate("b", "")
        closing.result()
    eventually(lambda: other.leader_election("s").get_leader() is None)


def test_terms_and_joins_leave_nothing_on_the_lease(client: PluginLocator) -> None:
    election, group = client.leader_election("s"), client.group_membership("g")
    member = group.join("stays", "")
    callbacks = member.lease.__dict__["_callbacks"]
    before = len(callbacks)
    for _ in range(20):
        election.nominate("a", "")
        election.resign("a")
        group.join("m", "")
        group.leave("m")
    assert len(callbacks) <= before + 1


def test_closing_takes_one_operation_timeout_for_however_many(open_client: OpenClient) -> None:
    client = open_client()
    election = client.leader_election("s")
    for number in range(6):
        election.nominate(str(number), "")
    with faults(client).cut_off():
        began = time.monotonic()
        election.close()
        assert time.monotonic() - began < 4 * 1.5


def test_closing_tells_no_leadership_listener(client: PluginLocator) -> None:
    told: list[object] = []
    election = client.leader_election("s")
    election.nominate("a", "", on_lost=told.append)
    election.close()
    kept = client.leader_election("t")
    kept.nominate("a", "", on_lost=told.append)
    client.close()
    assert not told


def test_one_callback_added_by_many_at_once_counts_once(client: PluginLocator) -> None:
    for attempt in range(30):
        calls: list[KeySetChange] = []
        with client.listener_registry() as registry, ThreadPoolExecutor(4) as pool:
            add = partial(registry.add_key_set_change_listener, f"n{attempt}", calls.append)
            for added in [pool.submit(add, initial=True) for _ in range(4)]:
                added.result()
            client.storage().put(f"n{attempt}/k", "")
            _await_last(calls, {f"n{attempt}/k"})
        assert sum(not change.keys for change in calls) <= 1


def test_a_refused_inner_lead_leaves_the_outer_alone(client: PluginLocator) -> None:
    election = client.leader_election("s")
    with election.lead("a", "") as leadership:
        wrong: Any = 3
        with pytest.raises(ValueError, match="must be"), election.lead("a", wrong):
            pass
        leadership.check()


def test_collecting_what_was_closed_takes_no_thread(open_client: OpenClient) -> None:
    client = PluginLocator().startup(_settings(open_client()))
    client.close()
    with no_threads():
        del client
        gc.collect()


def test_a_dropped_client_ends_with_a_warning_although_a_listener_is_registered(
    open_client: OpenClient, caplog: pytest.LogCaptureFixture
) -> None:
    other = open_client()
    client = PluginLocator().startup(_settings(other))
    client.group_membership("g").join("m", "")
    client.listener_registry().add_value_change_listener("k", print)
    eventually(lambda: other.group_membership("g").membership_list() == {"m"})
    with pytest.warns(ResourceWarning, match="dropped without"):  # noqa: PT031  it takes a moment
        del client
        gc.collect()
        eventually(lambda: not other.group_membership("g").membership_list())
    assert "keep a reference, and close it" in caplog.text


def _settings(client: PluginLocator) -> dict[str, str]:
    file = client.backend.describe()["file"]
    return {"plugin.backend": "embedded", "plugin.embedded.directory": str(Path(file).parent)}


def _block(release: threading.Event, _change: object) -> None:
    release.wait(60)


def _await_length(seen: Sequence[object], length: int) -> None:
    eventually(lambda: len(seen) == length)


def _await_last(seen: Sequence[KeySetChange], keys: set[str]) -> None:
    eventually(lambda: seen and seen[-1].keys == keys)


@pytest.mark.real_time("a process is forked")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_can_close_what_it_inherited_at_once(client: PluginLocator) -> None:
    election = client.leader_election("s")
    election.nominate("a", "")
    leadership = election.leadership("a")
    assert leadership is not None
    child = os.fork()
    if child == 0:
        began = time.monotonic()
        election.close()
        client.close()
        os._exit(0 if not leadership.is_valid() and time.monotonic() - began < 1 else 1)
    assert os.waitpid(child, 0)[1] == 0
    leadership.check()


def test_a_system_without_threads_to_spare_delays_and_breaks_nothing(
    client: PluginLocator,
) -> None:
    dispatcher: Dispatcher = client.__dict__["_store"].dispatcher
    ran = threading.Event()
    task = dispatcher.task(ran.set, "t")
    with no_threads():
        task.wake()
    dispatcher.task(lambda: None, "another").wake()
    assert ran.wait(10)


class _Broken:
    """A resource that is held and cannot be closed."""

    def close(self) -> None:
        raise ValueError("broken")


def test_a_resource_that_fails_to_close_leaves_no_other_open(client: PluginLocator) -> None:
    member = client.group_membership("g").join("m", "x")
    connection = client.__dict__["_store"]
    connection.register(_Broken())
    with pytest.raises(ValueError, match="broken"):
        client.close()
    assert not member.is_valid()
    with pytest.raises(ClosedError):
        client.backend.storage.read(()).result()
    assert not [one for one in threading.enumerate() if one.name.startswith("kip30-worker")]


@pytest.mark.parametrize(
    "wait", ["kip30.runtime.term_work.WorkInProgress.wait", "kip30.runtime.open_store.wait"]
)
def test_a_close_that_is_interrupted_gives_everything_back(
    open_client: OpenClient, monkeypatch: pytest.MonkeyPatch, wait: str
) -> None:
    """Otherwise the session would be renewed, and its service be held, as long as the process."""
    client, election = open_client(), open_client().leader_election("s")
    client.leader_election("s").nominate("a", "")

    def interrupt(*_: object) -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(wait, interrupt)
    with pytest.raises(KeyboardInterrupt):
        client.close()
    with election.lead("b", "", timeout_seconds=20):
        client.close()
