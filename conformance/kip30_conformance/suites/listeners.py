"""The events of listeners: R01 to R11, R20, R24, R26 and R28."""

import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip30 import (
    KeyExistsError,
    KeyMissingError,
    KeySetChange,
    ListenerRegistry,
    PluginLocator,
    Storage,
    ValueChange,
    Version,
)
from kip30_conformance.clients.callback_recorder import Recorder, ValueRecorder
from kip30_conformance.hypothesis_settings import searching
from kip30_conformance.polling import eventually, throughout
from kip30_conformance.suite import OpenClient, OpenPeer, Suite

SILENCE_SECONDS = 0.3
SOON_SECONDS = 0.5
BURST = 300
_LISTENERS = 8
_RACING_SECONDS = 1.0
"""Seconds for which registrations race with changes; it finds no more on a slower machine."""
_GOLDEN = 0.618
"""Multiples of it, less their whole parts, are evenly distributed, also the first few of them."""
_LONGEST_SECONDS = 0.1
"""A registration that takes longer was disturbed by something else."""
_LATEST = 1.5
"""Moment of the latest racing change, in multiples of a registration's usual duration."""


class ListenerSuite(Suite):
    """A client with a registry, and the storage of another client that makes the changes."""

    @pytest.fixture
    def storage(self, open_client: OpenClient) -> Storage[str]:
        """Return the storage of the other client."""
        return open_client().storage()

    @pytest.fixture
    def registry(self, client: PluginLocator) -> ListenerRegistry[str]:
        """Return the registry."""
        return client.listener_registry()


class ValueListenerTests(ListenerSuite):
    """A value listener receives every final state, in order, and no state that never was."""

    def test_R01_value_changes(
        self, registry: ListenerRegistry[str], storage: Storage[str]
    ) -> None:
        """Creation, update and deletion each arrive with key, new value and version."""
        recorder = _listen(registry, "n/k")
        first = storage.put("n/k", "v")
        assert recorder.expect_count(1)[-1] == ValueChange("n/k", "v", first)
        second = storage.update("n/k", "w")
        assert recorder.expect_count(2)[-1] == ValueChange("n/k", "w", second)
        storage.delete("n/k")
        assert recorder.expect_count(3)[-1] == ValueChange("n/k", None, None)

    def test_R01_change_of_another_process(
        self, registry: ListenerRegistry[str], peer: OpenPeer
    ) -> None:
        """Changes that another process makes arrive."""
        recorder, other = _listen(registry, "k"), peer()
        version = other.call("put", key="k", value="v")
        assert str(recorder.expect_count(1)[0].version) == version
        other.call("delete", key="k")
        assert recorder.expect_count(2)[-1] == ValueChange("k", None, None)

    def test_R01_own_change(self, client: PluginLocator) -> None:
        """Changes that the listening client makes itself arrive."""
        recorder = _listen(client.listener_registry(), "k")
        version = client.storage().put("k", "v")
        assert recorder.expect_count(1) == [ValueChange("k", "v", version)]

    def test_R02_initial_state(
        self, registry: ListenerRegistry[str], storage: Storage[str]
    ) -> None:
        """With ``initial`` the present state comes first, whether or not the key exists."""
        version = storage.put("there", "v")
        there, absent = _listen(registry, "there", initial=True), ValueRecorder()
        registry.add_value_change_listener("absent", absent, initial=True)
        assert there.expect_count(1) == [ValueChange("there", "v", version)]
        assert absent.expect_count(1) == [ValueChange("absent", None, None)]

    def test_R02_no_initial_state(
        self, registry: ListenerRegistry[str], storage: Storage[str]
    ) -> None:
        """Without ``initial`` no event comes before the first change."""
        storage.put("k", "v")
        recorder = _listen(registry, "k")
        throughout(lambda: not recorder.events, seconds=SILENCE_SECONDS)
        version = storage.update("k", "w")
        assert recorder.expect_count(1) == [ValueChange("k", "w", version)]

    def test_R02_nothing_is_lost_on_registration(
        self, registry: ListenerRegistry[str], storage: Storage[str]
    ) -> None:
        """However a change and a registration fall together, the final state arrives."""
        for number in range(50):
            key = f"n/{number}"
            writer = threading.Thread(target=storage.put, args=(key, "v"))
            writer.start()
            recorder = _listen(registry, key, initial=True)
            writer.join()
            recorder.expect(lambda event: event.value == "v")

    def test_R28_change_while_subscribing(
        self, open_client: OpenClient, storage: Storage[str]
    ) -> None:
        """A change at any moment of a registration arrives as soon as any other change does.

        A store that reads first and subscribes then misses what changes in between, and delivers it
        with the next change or poll.
        """
        usual, shares = _usual(open_client(), storage), _shares()
        until = time.monotonic() + _RACING_SECONDS
        with ThreadPoolExecutor(1) as writer:
            for number in count():
                # Some stores subscribe once for all listeners of a client: the first one differs.
                client = open_client()
                keys = [f"n/{number}/{nth}" for nth in range(_LISTENERS)]
                storage.put_many(dict.fromkeys(keys, "before"))
                moments = [usual[min(nth, 1)] * next(shares) for nth in range(_LISTENERS)]
                _race(client, storage, writer, dict(zip(keys, moments, strict=True)))
                client.close()
                for key in keys:
                    storage.delete(key)  # ends the request of a closed client on Consul
                if time.monotonic() > until:
                    break

    def test_R03_register_absent_key(
        self, registry: ListenerRegistry[str], storage: Storage[str]
    ) -> None:
        """A key can be listened to before it is there, also when none of its namespace is."""
        recorder = _listen(registry, "nobody/knows")
        version = storage.put("nobody/knows", "v")
        assert recorder.expect_count(1) == [ValueChange("nobody/knows", "v", version)]

    def test_R04_order_per_key(
        self, registry: ListenerRegistry[str], storage: Storage[str]
    ) -> None:
        """The versions a listener sees always grow, and none comes twice (R07)."""
        recorder, versions = _listen(registry, "k"), _burst(storage)
        recorder.expect_version(versions[-1])
        throughout(lambda: recorder.events[-1].version == versions[-1], seconds=SILENCE_SECONDS)
        seen = [event.version for event in recorder.events if event.version]
        assert seen == sorted(set(seen))

    def test_R05_last_of_a_burst(
        self, registry: ListenerRegistry[str], storage: Storage[str]
    ) -> None:
        """States in between may be merged; the last one always arrives."""
        recorder, versions = _listen(registry, "k"), _burst(storage)
        recorder.expect_version(versions[-1])
        storage.delete("k")
        recorder.expect(lambda event: event.version is None)
        assert recorder.events[-1] == ValueChange("k", None, None)

    def test_R06_no_phantom(self, registry: ListenerRegistry[str], storage: Storage[str]) -> None:
        """All that a listener sees was written, at that version, after it was registered."""
        storage.put("k", "before")
        recorder, written = _listen(registry, "k"), dict[Version | None, str]()
        for number in range(BURST):
            written[storage.update("k", str(number))] = str(number)
        recorder.expect(lambda event: event.value == str(BURST - 1))
        assert all(written[event.version] == event.value for event in recorder.events)

    def test_R07_no_duplicate_version(
        self, registry: ListenerRegistry[str], storage: Storage[str]
    ) -> None:
        """A state is delivered once, however often the key is looked at."""
        recorder = _listen(registry, "k")
        version = storage.put("k", "v")
        recorder.expect_count(1)
        for _ in range(20):
            storage.fetch("k").result()
            _listen(registry, "k", initial=True)
        throughout(lambda: len(recorder.events) == 1, seconds=SILENCE_SECONDS)
        assert recorder.events == [ValueChange("k", "v", version)]

    def test_R08_same_order_for_all(self, open_client: OpenClient, storage: Storage[str]) -> None:
        """Listeners of several clients agree on the order of what they see."""
        clients = [open_client() for _ in range(3)]
        logs = [_listen(client.listener_registry(), "k") for client in clients]
        versions = _burst(storage)
        for recorder in logs:
            recorder.expect_version(versions[-1])
            places = [versions.index(event.version) for event in recorder.events if event.version]
            assert places == sorted(places)

    def test_R20_write_vs_callback_causality(
        self, client: PluginLocator, registry: ListenerRegistry[str], storage: Storage[str]
    ) -> None:
        """A read in a callback sees the state of its event or a newer one."""
        mine, behind = client.storage(), list[ValueChange[str]]()

        def look(event: ValueChange[str]) -> None:
            found = mine.get("k")
            if event.version and (found is None or found.version < event.version):
                behind.append(event)

        recorder = ValueRecorder(then=look)
        registry.add_value_change_listener("k", recorder)
        versions = _burst(storage)
        recorder.expect_version(versions[-1])
        assert not behind

    def test_R24_aba_hidden_change(
        self, registry: ListenerRegistry[str], storage: Storage[str]
    ) -> None:
        """Deletion and re-creation with an equal value is a change."""
        storage.put("k", "v")
        recorder = _listen(registry, "k")
        for _ in range(20):
            storage.delete("k")
            version = storage.put("k", "v")
            recorder.expect_version(version)

    def test_R26_bound(
        self, client: PluginLocator, registry: ListenerRegistry[str], storage: Storage[str]
    ) -> None:
        """A change arrives within the bound that the store declares."""
        bound = client.backend.limits.observe_seconds + 0.5
        recorder = _listen(registry, "k")
        versions = [storage.put("k", "v")]
        for number in range(20):
            recorder.expect_version(versions[-1], within=bound)
            versions.append(storage.update("k", str(number)))


class KeySetListenerTests(ListenerSuite):
    """A key-set listener is notified of created and deleted keys, of its own namespace only."""

    def test_R09_keyset_add_remove(
        self, registry: ListenerRegistry[str], storage: Storage[str]
    ) -> None:
        """Events carry exactly the difference and the whole; value updates are no events."""
        recorder = _listen_to_keys(registry, "n")
        storage.put("n/a", "v")
        assert recorder.expect_count(1)[-1] == _change({"n/a"}, set(), {"n/a"})
        storage.put("n/b", "v")
        assert recorder.expect_count(2)[-1] == _change({"n/b"}, set(), {"n/a", "n/b"})
        storage.update("n/a", "w")
        throughout(lambda: len(recorder.events) == 2, seconds=SILENCE_SECONDS)
        storage.delete("n/a")
        assert recorder.expect_count(3)[-1] == _change(set(), {"n/a"}, {"n/b"})

    def test_R09_initial_keyset(
        self, registry: ListenerRegistry[str], storage: Storage[str]
    ) -> None:
        """With ``initial`` the present keys come first, all of them as added."""
        storage.put_many({"n/a": "", "n/b": ""})
        recorder, empty = Recorder[KeySetChange](), Recorder[KeySetChange]()
        registry.add_key_set_change_listener("n", recorder, initial=True)
        registry.add_key_set_change_listener("empty", empty, initial=True)
        assert recorder.expect_count(1) == [_change({"n/a", "n/b"}, set(), {"n/a", "n/b"})]
        assert empty.expect_count(1)[0].keys == frozenset()

    def test_R09_keys_without_namespace(
        self, registry: ListenerRegistry[str], storage: Storage[str]
    ) -> None:
        """Keys without a slash are the key set of the namespace without a name."""
        recorder = _listen_to_keys(registry, "")
        storage.put("k", "v")
        assert recorder.expect_count(1)[0].keys == {"k"}

    @searching
    @given(steps=st.lists(st.tuples(st.booleans(), st.integers(0, 5)), max_size=25))
    def test_R10_keyset_rebuild(
        self, client: PluginLocator, storage: Storage[str], steps: list[tuple[bool, int]]
    ) -> None:
        """The set rebuilt from the events is the set of keys, once all is quiet."""
        with client.listener_registry() as registry:
            recorder, rebuilt = Recorder[KeySetChange](), set[str]()
            registry.add_key_set_change_listener("n", recorder, initial=True)
            recorder.expect_count(1)
            for create, number in steps:
                _put_or_delete(storage, f"n/{number}", create=create)
            keys = storage.fetch_many(f"n/{number}" for number in range(6)).result().keys()
            recorder.expect(lambda event: event.keys == keys)
            eventually(
                lambda: recorder.events[-1].keys == keys,
                what="the last event has the keys that are there",
            )
            for event in recorder.events:
                assert not event.added & rebuilt
                assert event.removed <= rebuilt
                rebuilt = (rebuilt | event.added) - event.removed
                assert rebuilt == event.keys

    @pytest.mark.parametrize("key", ["nn/k", "n", "n/a/b", "n/a/b/c", "m/n/k", "N/k"])
    def test_R11_keyset_scope(
        self, registry: ListenerRegistry[str], storage: Storage[str], key: str
    ) -> None:
        """Namespaces that begin alike, lie above or below stay silent."""
        recorder = _listen_to_keys(registry, "n")
        storage.put(key, "v")
        storage.put("n/k", "v")
        assert recorder.expect_count(1) == [_change({"n/k"}, set(), {"n/k"})]


def _listen(registry: ListenerRegistry[str], key: str, *, initial: bool = False) -> ValueRecorder:
    recorder = ValueRecorder()
    registry.add_value_change_listener(key, recorder, initial=initial)
    return recorder


def _shares() -> Iterator[float]:
    """Yield moments of changes, in times of a registration's usual duration."""
    return (number * _GOLDEN % 1 * _LATEST for number in count())


def _race(
    client: PluginLocator,
    storage: Storage[str],
    writer: ThreadPoolExecutor,
    moments: Mapping[str, float],
) -> None:
    """Change each key at its moment after a registration began; require all changes to arrive."""
    recorders: list[ValueRecorder] = []
    for key, moment in moments.items():
        changed = writer.submit(_update_after, moment, storage, key)
        recorders.append(_listen(client.listener_registry(), key, initial=True))
        changed.result()
    bound = client.backend.limits.observe_seconds + SOON_SECONDS
    for recorder in recorders:
        recorder.expect(lambda event: event.value == "racing", within=bound)


def _usual(client: PluginLocator, storage: Storage[str]) -> tuple[float, float]:
    """Return how long the present state takes to reach the first and a later listener."""
    storage.put("usual", "")
    first, later = (_seconds_to_arrive(client.listener_registry()) for _ in range(2))
    return min(first, _LONGEST_SECONDS), min(later, _LONGEST_SECONDS)


def _seconds_to_arrive(registry: ListenerRegistry[str]) -> float:
    arrived_at = list[float]()
    recorder = ValueRecorder(then=lambda _: arrived_at.append(time.monotonic()))
    begun = time.monotonic()
    registry.add_value_change_listener("usual", recorder, initial=True)
    eventually(lambda: arrived_at, what="the present state")
    return arrived_at[0] - begun


def _update_after(seconds: float, storage: Storage[str], key: str) -> None:
    # A thread that polls would delay the registration that it races with.
    time.sleep(seconds)
    storage.update(key, "racing")


def _listen_to_keys(registry: ListenerRegistry[str], namespace: str) -> Recorder[KeySetChange]:
    recorder = Recorder[KeySetChange]()
    registry.add_key_set_change_listener(namespace, recorder)
    return recorder


def _burst(storage: Storage[str]) -> list[Version]:
    """Change ``k`` quickly and return its versions."""
    return [storage.put("k", "")] + [storage.update("k", str(one)) for one in range(BURST)]


def _change(added: set[str], removed: set[str], keys: set[str]) -> KeySetChange:
    return KeySetChange("n", frozenset(added), frozenset(removed), frozenset(keys))


def _put_or_delete(storage: Storage[str], key: str, *, create: bool) -> None:
    with suppress(KeyExistsError, KeyMissingError):
        if create:
            storage.put(key, "v")
        else:
            storage.delete(key)
