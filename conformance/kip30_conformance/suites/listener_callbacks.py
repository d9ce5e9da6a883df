"""Permitted actions of callbacks, which cannot harm others: R12 to R19, R25, R40 to R42."""

import logging
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import pytest

from kip30 import (
    KeyMissingError,
    KeySetChange,
    ListenerRegistry,
    PluginLocator,
    Storage,
    ValueChange,
    Version,
)
from kip30_conformance.clients.callback_recorder import Recorder, ValueRecorder
from kip30_conformance.harness import Harness
from kip30_conformance.polling import eventually, throughout
from kip30_conformance.process_resources import resources_held
from kip30_conformance.suite import OpenClient
from kip30_conformance.suites.listeners import ListenerSuite


class ListenerCallbackTests(ListenerSuite):
    """Callbacks may call anything, remove anything, raise and block; others do not notice."""

    @pytest.fixture
    def release(self) -> Iterator[threading.Event]:
        """Yield an event on which a blocking callback waits; it is set when the check ends."""
        event = threading.Event()
        yield event
        event.set()

    def test_R12_remove_silences(
        self, registry: ListenerRegistry[str], storage: Storage[str]
    ) -> None:
        """After a removal no call starts, in the middle of a storm of changes."""
        storage.put("k", "")
        with _storm(storage):
            for _ in range(50):
                recorder = ValueRecorder()
                registry.add_value_change_listener("k", recorder)
                recorder.expect_count(1)
                registry.remove_value_change_listener("k", recorder)
                so_far, after = len(recorder.events), storage.update("k", "after the removal")
                next_one = ValueRecorder()
                registry.add_value_change_listener("k", next_one)
                next_one.expect_count(1)
                assert len(recorder.events) <= so_far + 1
                assert not _heard_since(recorder, after)

    def test_R13_remove_unknown(self, registry: ListenerRegistry[str]) -> None:
        """Removing a listener that is not there, or was removed, does nothing."""
        recorder = ValueRecorder()
        registry.remove_value_change_listener("k", recorder)
        registry.remove_key_set_change_listener("n", Recorder[KeySetChange]())
        registry.add_value_change_listener("k", recorder)
        registry.remove_value_change_listener("k", recorder)
        registry.remove_value_change_listener("k", recorder)

    def test_R13_add_twice(self, registry: ListenerRegistry[str], storage: Storage[str]) -> None:
        """The same callback counts once for one key, and once more for another."""
        recorder = ValueRecorder()
        for key in ("k", "k", "l", "k"):
            registry.add_value_change_listener(key, recorder)
        versions = {storage.put("k", ""), storage.put("l", "")}
        assert {event.version for event in recorder.expect_count(2)} == versions
        registry.remove_value_change_listener("k", recorder)
        storage.update("k", "")
        storage.update("l", "")
        assert [event.key for event in recorder.expect_count(3)[2:]] == ["l"]

    @pytest.mark.parametrize("place", ["value", "key set", "group", "service"])
    def test_R40_remove_by_another_handle(self, client: PluginLocator, place: str) -> None:
        """A listener is removed through any handle of its locator; the first may be dropped."""
        removed, stays, changes = Recorder[object](), Recorder[object](), _Changes(client, place)
        for callback in (removed, stays):
            _listening(client, place).add(callback)
        _listening(client, place).remove(removed)
        changes.make()
        stays.expect_count(1)
        assert not removed.events
        listening = _listening(client, place)
        listening.add(removed)  # which no earlier removal prevents
        _listening(client, place).remove(stays)
        changes.make()
        removed.expect_count(1)
        assert len(stays.events) == 1

    def test_R41_one_callback_of_two_keys(
        self, registry: ListenerRegistry[str], storage: Storage[str], release: threading.Event
    ) -> None:
        """A callback that blocks for one key is called for another one meanwhile."""
        heard: list[str] = []

        def block(change: ValueChange[str]) -> None:
            heard.append(change.key)
            release.wait()

        for key in ("k", "l"):
            registry.add_value_change_listener(key, block)
            storage.put(key, "")
        eventually(lambda: sorted(heard) == ["k", "l"], what="it is called for both")

    def test_R14_remove_in_callback(
        self, registry: ListenerRegistry[str], storage: Storage[str]
    ) -> None:
        """A callback may remove itself and another one."""
        silenced, last = ValueRecorder(), ValueRecorder()
        registry.add_value_change_listener("k", silenced)

        def remove(_: ValueChange[str]) -> None:
            registry.remove_value_change_listener("k", silenced)
            registry.remove_value_change_listener("k", removing)

        removing = ValueRecorder(then=remove)
        registry.add_value_change_listener("k", removing)
        storage.put("k", "")
        removing.expect_count(1)
        silenced_so_far = silenced.events
        registry.add_value_change_listener("k", last)
        version = storage.update("k", "")
        last.expect_version(version)
        assert len(removing.events) == 1
        assert silenced.events == silenced_so_far

    def test_R15_add_in_callback(
        self, registry: ListenerRegistry[str], storage: Storage[str]
    ) -> None:
        """A listener that a callback adds gets the following change."""
        added, ready = ValueRecorder(), threading.Event()

        def add(_: ValueChange[str]) -> None:
            registry.add_value_change_listener("k", added)
            ready.set()

        registry.add_value_change_listener("k", add)
        storage.put("k", "")
        assert ready.wait(10)
        version = storage.update("k", "")
        added.expect_version(version)

    def test_R16_api_call_in_callback(
        self, client: PluginLocator, registry: ListenerRegistry[str], storage: Storage[str]
    ) -> None:
        """A callback may use every interface of the client that calls it."""

        def use(_: ValueChange[str]) -> None:
            client.storage().put("other", "v")
            client.storage().fetch("other").result()
            with client.group_membership("g") as group:
                group.join("m", "")
                group.leave("m")
            client.leader_election("s").nominate("c", "")

        using, recorder = ValueRecorder(then=use), ValueRecorder()
        registry.add_value_change_listener("k", using)
        registry.add_value_change_listener("other", recorder)
        storage.put("k", "")
        assert recorder.expect_count(1)[0].value == "v"
        elected = client.leader_election("s")
        assert eventually(elected.get_leader, what="the callback has made a leader").id == "c"

    def test_R17_exception_in_callback(
        self,
        registry: ListenerRegistry[str],
        storage: Storage[str],
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """A callback that raises is logged; others, and its own later events, still come."""
        raising, recorder = ValueRecorder(then=_raise), ValueRecorder()
        registry.add_value_change_listener("k", raising)
        registry.add_value_change_listener("k", recorder)
        for _ in range(3):
            version = _write(storage)
            recorder.expect_version(version)
            raising.expect_version(version)
        assert "on purpose" in caplog.text
        levels = {record.levelno for record in caplog.records}
        assert {level for level in levels if level >= logging.WARNING} == {logging.ERROR}

    def test_R18_slow_listener(
        self,
        harness: Harness,
        open_client: OpenClient,
        storage: Storage[str],
        release: threading.Event,
    ) -> None:
        """Callbacks that block for several session timeouts delay only themselves."""
        client = open_client(**harness.patient)
        member = client.group_membership("g").join("m", "")
        registry, recorder = client.listener_registry(), ValueRecorder()
        slow = [ValueRecorder(then=lambda _: release.wait()) for _ in range(10)]
        for one in (*slow, recorder):
            registry.add_value_change_listener("k", one)
        first = _write(storage)
        for one in slow:
            one.expect_version(first)
        session_seconds = harness.patient["plugin.session.timeout.ms"] / 1000
        until = time.monotonic() + 2.2 * session_seconds
        while time.monotonic() < until:
            recorder.expect_version(_write(storage))
            assert member.is_valid()
        release.set()
        last = _write(storage)
        for one in slow:
            one.expect_version(last)

    @pytest.mark.heavy
    def test_R19_thousand_listeners_of_one_key(
        self, registry: ListenerRegistry[str], storage: Storage[str]
    ) -> None:
        """A thousand listeners of one key all get its last state, by few threads."""
        listeners = [ValueRecorder() for _ in range(1000)]
        before = resources_held().threads.total()
        for recorder in listeners:
            registry.add_value_change_listener("k", recorder)
        last = [_write(storage) for _ in range(20)][-1]
        for recorder in listeners:
            recorder.expect_version(last)
        assert resources_held().threads.total() - before < 20

    @pytest.mark.heavy
    def test_R19_thousand_keys(
        self, registry: ListenerRegistry[str], storage: Storage[str]
    ) -> None:
        """A thousand keys with a listener each: all get the last state, by few threads."""
        listeners = {f"n/{number}": ValueRecorder() for number in range(1000)}
        before = resources_held().threads.total()
        for key, recorder in listeners.items():
            registry.add_value_change_listener(key, recorder)
        versions = storage.put_many(dict.fromkeys(listeners, ""))
        versions = {key: storage.update(key, "last") for key in versions}
        for key, recorder in listeners.items():
            recorder.expect_version(versions[key])
        assert resources_held().threads.total() - before < 20

    @pytest.mark.heavy
    def test_R42_blocked_listeners_delay_no_election(
        self,
        client: PluginLocator,
        registry: ListenerRegistry[str],
        storage: Storage[str],
        release: threading.Event,
    ) -> None:
        """A thousand callbacks that block do not keep a candidate from a free service."""
        for _ in range(1000):
            registry.add_value_change_listener("k", ValueRecorder(then=lambda _: release.wait()))
        storage.put("k", "")
        assert client.leader_election("s").nominate("c", "")

    def test_R25_close_ends_delivery(self, client: PluginLocator, storage: Storage[str]) -> None:
        """After the locator's close no callback starts, in the middle of a storm of changes."""
        recorder = ValueRecorder()
        client.listener_registry().add_value_change_listener("k", recorder)
        with _storm(storage):
            recorder.expect_count(5)
            client.close()
            so_far = recorder.events
            throughout(lambda: recorder.events == so_far, seconds=0.3)

    def test_R25_close_of_registry_ends_delivery(
        self, registry: ListenerRegistry[str], storage: Storage[str]
    ) -> None:
        """After a registry's close its listeners are notified of no further change."""
        recorder = ValueRecorder()
        registry.add_value_change_listener("k", recorder)
        with _storm(storage):
            recorder.expect_count(5)
            registry.close()
            after = _write(storage)
            throughout(lambda: not _heard_since(recorder, after), seconds=0.3)


class _Listening(NamedTuple):
    """Functions that add and remove a listener of one place."""

    add: Callable[[Any], None]
    remove: Callable[[Any], None]


def _listening(client: PluginLocator, place: str) -> _Listening:
    """Return the functions for *place*, through a handle of its own."""
    registry = client.listener_registry()
    match place:
        case "value":
            return _Listening(
                partial(registry.add_value_change_listener, "n/k"),
                partial(registry.remove_value_change_listener, "n/k"),
            )
        case "key set":
            return _Listening(
                partial(registry.add_key_set_change_listener, "n"),
                partial(registry.remove_key_set_change_listener, "n"),
            )
        case "group":
            group = client.group_membership("g")
            return _Listening(group.add_listener, group.remove_listener)
        case _:
            election = client.leader_election("s")
            return _Listening(election.add_listener, election.remove_listener)


class _Changes:
    """Makes changes, each of which calls the listeners of one place once."""

    def __init__(self, client: PluginLocator, place: str) -> None:
        self._storage, self._group = client.storage(), client.group_membership("g")
        self._election, self._place = client.leader_election("s"), place
        self._number = 0

    def make(self) -> None:
        self._number += 1
        name = f"{self._number}"
        match self._place:
            case "value":
                self._storage.set("n/k", name)
            case "key set":
                self._storage.put(f"n/{name}", "")
            case "group":
                self._group.join(name, "")
            case _ if self._election.leadership("c") is None:
                self._election.nominate("c", "")
            case _:
                self._election.resign("c")


def _heard_since(recorder: ValueRecorder, version: Version) -> bool:
    return any(event.version and event.version >= version for event in recorder.events)


@contextmanager
def _storm(storage: Storage[str]) -> Generator[None]:
    """Write ``k`` without a pause while this lasts."""
    over = threading.Event()

    def write() -> None:
        while not over.is_set():
            _write(storage)

    writer = threading.Thread(target=write)
    writer.start()
    yield
    over.set()
    writer.join()


def _write(storage: Storage[str]) -> Version:
    """Create or update ``k``."""
    try:
        return storage.update("k", "")
    except KeyMissingError:
        return storage.put("k", "")


def _raise(_: ValueChange[str]) -> None:
    raise RuntimeError("a callback that raises, on purpose")
