"""Storage with one or two clients: S01 to S09, S13, S14, S16 and S24 to S27."""

import threading
from concurrent.futures import Future, wait
from typing import Any

import pytest

from kip30 import (
    BYTES,
    JSON,
    KeyExistsError,
    KeyMissingError,
    PluginLocator,
    Storage,
    ValueChange,
    Version,
    VersionConflictError,
    parse_version,
)
from kip30.driver import Capability
from kip30_conformance.clients.callback_recorder import Recorder
from kip30_conformance.harness import Harness
from kip30_conformance.polling import time_scale
from kip30_conformance.suite import OpenClient, OpenPeer, Suite, needing


class StorageTests(Suite):
    """Every verb does what it says, refuses when it must, and is seen by the next read."""

    @pytest.fixture
    def storage(self, client: PluginLocator) -> Storage[str]:
        """Return the text storage of the check's own root."""
        return client.storage()

    def test_S01_fetch_absent(self, storage: Storage[str]) -> None:
        """An absent key reads as None, neither as an error nor as an empty value."""
        assert storage.fetch("k").result() is None
        assert storage.get("k") is None
        assert storage.fetch_many(["k", "l"]).result() == {}

    def test_S02_put_then_fetch(self, storage: Storage[str]) -> None:
        """A put value comes back as it was, with the version that put returned."""
        version = storage.put("n/k", "välue\n")
        found = storage.get("n/k")
        assert found is not None
        assert (found.value, found.version) == ("välue\n", version)
        assert storage.fetch("n/k").result() == "välue\n"

    def test_S02_version_as_text(self, storage: Storage[str]) -> None:
        """A version survives being written as text."""
        version = storage.put("k", "v")
        assert parse_version(str(version)) == version

    def test_S02_put_many(self, storage: Storage[str]) -> None:
        """Each of many put values comes back, at the version reported for it."""
        versions = storage.put_many({f"n/{number}": str(number) for number in range(30)})
        assert storage.fetch_many(versions).result() == {f"n/{n}": str(n) for n in range(30)}
        assert versions["n/7"] == _version(storage, "n/7")

    def test_S02_none_of_many(self, storage: Storage[str]) -> None:
        """Reading and writing no key at all is done at once."""
        assert storage.fetch_many([]).result() == {}
        assert storage.put_many({}) == {}

    def test_S02_codecs(self, client: PluginLocator) -> None:
        """Bytes and JSON come back as they were."""
        client.storage(BYTES).put("bytes", b"\0\xff")
        client.storage(JSON).put("json", {"a": [1, None, "ü"]})
        assert client.storage(BYTES).fetch("bytes").result() == b"\0\xff"
        assert client.storage(JSON).fetch("json").result() == {"a": [1, None, "ü"]}

    def test_S03_put_existing(self, storage: Storage[str]) -> None:
        """A put of a key that is there raises KeyExistsError and changes nothing."""
        version = storage.put("k", "v")
        with pytest.raises(KeyExistsError):
            storage.put("k", "w")
        assert storage.fetch("k").result() == "v"
        assert _version(storage, "k") == version

    def test_S04_update_missing(self, storage: Storage[str]) -> None:
        """An update of a key that is not there raises KeyMissingError and creates nothing."""
        with pytest.raises(KeyMissingError):
            storage.update("k", "v")
        assert storage.get("k") is None

    def test_S05_update_changes(self, storage: Storage[str]) -> None:
        """An update is visible, with a greater version."""
        before = storage.put("k", "v")
        after = storage.update("k", "w")
        assert after > before
        assert storage.fetch("k").result() == "w"
        assert _version(storage, "k") == after

    def test_S06_update_same_value(self, client: PluginLocator, storage: Storage[str]) -> None:
        """An update with an equal value counts: the version grows and listeners are notified."""
        before = storage.put("k", "v")
        recorder: Recorder[ValueChange[str]] = Recorder()
        client.listener_registry().add_value_change_listener("k", recorder)
        after = storage.update("k", "v")
        assert after > before
        assert recorder.expect_count(1) == [ValueChange("k", "v", after)]

    def test_S07_expected_version(self, client: PluginLocator, storage: Storage[str]) -> None:
        """With a stale expected version nothing is written; with the right one it is."""
        stale = storage.put("k", "v")
        fresh = storage.update("k", "w")
        with needing(client, Capability.COMPARE_AND_SET):
            with pytest.raises(VersionConflictError):
                storage.compare_and_set("k", stale, "x")
            assert _version(storage, "k") == fresh
            newest = storage.compare_and_set("k", fresh, "x")
            assert newest > fresh
            assert storage.fetch("k").result() == "x"

    def test_S07_expected_version_of_missing(self, client: PluginLocator) -> None:
        """With an expected version a missing key raises KeyMissingError and stays missing."""
        storage = client.storage()
        with needing(client, Capability.COMPARE_AND_SET):
            with pytest.raises(KeyMissingError):
                storage.compare_and_set("k", Version(1), "v")
            assert storage.get("k") is None

    def test_S07_conditional_delete(self, client: PluginLocator, storage: Storage[str]) -> None:
        """With a stale expected version nothing is deleted; with the right one it is."""
        stale = storage.put("k", "v")
        fresh = storage.update("k", "w")
        with needing(client, Capability.COMPARE_AND_SET):
            with pytest.raises(VersionConflictError):
                storage.delete("k", expected=stale)
            assert storage.fetch("k").result() == "w"
            storage.delete("k", expected=fresh)
            assert storage.get("k") is None

    def test_S08_delete_then_put(self, storage: Storage[str]) -> None:
        """A deleted key can be put again, at a greater version than it ever had."""
        storage.put("k", "v")
        before = storage.update("k", "w")
        storage.delete("k")
        assert storage.get("k") is None
        after = storage.put("k", "w")
        assert after > before, f"put at {after} after a delete, although it was at {before} before"

    def test_S08_old_version_stays_stale(self, client: PluginLocator) -> None:
        """A version from before a deletion never matches again."""
        storage = client.storage()
        before = storage.put("k", "v")
        storage.delete("k")
        storage.put("k", "v")
        with needing(client, Capability.COMPARE_AND_SET), pytest.raises(VersionConflictError):
            storage.compare_and_set("k", before, "w")

    def test_S09_delete_missing(self, storage: Storage[str]) -> None:
        """Deleting an absent key raises KeyMissingError and creates nothing."""
        with pytest.raises(KeyMissingError):
            storage.delete("k")
        assert storage.get("k") is None

    def test_S13_read_your_writes(self, storage: Storage[str]) -> None:
        """A client that reads after its acknowledged write sees that write."""
        storage.put("k", "0")
        for number in range(1, 200):
            version = storage.update("k", str(number))
            assert storage.fetch("k").result() == str(number)
            assert storage.fetch_many(["k"]).result() == {"k": str(number)}
            assert _version(storage, "k") == version

    def test_S13_read_your_writes_across_threads(self, storage: Storage[str]) -> None:
        """Another thread of the same client sees that write or a newer one."""
        storage.put("k", "0")
        written, behind, over = 0, list[tuple[int, int]](), threading.Event()

        def read() -> None:
            while not over.is_set():
                known = written
                seen = int(storage.fetch("k").result() or 0)
                if seen < known:
                    behind.append((seen, known))

        readers = [threading.Thread(target=read) for _ in range(3)]
        for reader in readers:
            reader.start()
        for number in range(1, 200):
            storage.update("k", str(number))
            written = number
        over.set()
        for reader in readers:
            reader.join()
        assert not behind

    def test_S14_cross_client_freshness(self, open_client: OpenClient) -> None:
        """Once A's write is acknowledged B reads it, value by value."""
        writer, reader = open_client().storage(), open_client().storage()
        writer.put("k", "0")
        for number in range(1, 200):
            writer.update("k", str(number))
            assert reader.fetch("k").result() == str(number)

    def test_S14_cross_process_freshness(self, client: PluginLocator, peer: OpenPeer) -> None:
        """Once a process's write is acknowledged another process reads it, both ways."""
        storage, other = client.storage(), peer()
        storage.put("k", "0")
        for number in range(100):
            version = storage.update("k", f"here {number}")
            assert other.call("get", key="k") == [f"here {number}", str(version)]
            version = parse_version(other.call("update", key="k", value=f"there {number}"))
            assert storage.fetch("k").result() == f"there {number}"
            assert _version(storage, "k") == version

    def test_S24_list_keys(self, client: PluginLocator, storage: Storage[str]) -> None:
        """A listing has exactly the keys of the namespace, one level deep, by UTF-8 bytes."""
        names = ["b", "a", "ä", "a.b", "\U0001f600", "\uffff", "A", "~"]
        storage.put_many(
            {f"n/{name}": "" for name in names} | {"n/a/deep": "", "nn/a": "", "m": ""}
        )
        storage.put("n/gone", "")
        storage.delete("n/gone")
        with needing(client, Capability.LISTING):
            assert list(storage.list("n")) == [f"n/{n}" for n in sorted(names, key=str.encode)]
            assert list(storage.list("")) == ["m"]
            assert list(storage.list("nobody")) == []

    def test_S24_list_shows_keys_only(self, client: PluginLocator, storage: Storage[str]) -> None:
        """Members, leaders, sessions and other internals are in no listing."""
        client.group_membership("n").join("m", "")
        client.leader_election("n").nominate("c", "")
        storage.put("n/k", "")
        with needing(client, Capability.LISTING):
            assert list(storage.list("n")) == ["n/k"]
            assert list(storage.list("")) == []

    def test_S24_list_pages(self, client: PluginLocator, storage: Storage[str]) -> None:
        """Ten thousand keys are listed, each once and in order."""
        keys = [f"n/{number:05}" for number in range(10_000)]
        for first in range(0, len(keys), 200):
            storage.put_many(dict.fromkeys(keys[first : first + 200], ""))
        with needing(client, Capability.LISTING):
            assert list(storage.list("n")) == keys

    def test_S25_many_futures(self, harness: Harness, open_client: OpenClient) -> None:
        """A thousand outstanding fetches all end, each with the value of its own key."""
        storage = open_client(**harness.contended).storage()
        values = {f"n/{number}": f"v{number}" for number in range(0, 1000, 2)}
        storage.put_many(values)
        futures = {f"n/{number}": storage.fetch(f"n/{number}") for number in range(1000)}
        assert not wait(futures.values(), 30 * time_scale()).not_done
        assert {key: future.result() for key, future in futures.items()} == {
            key: values.get(key) for key in futures
        }

    def test_S26_future_is_late(self, harness: Harness, client: PluginLocator) -> None:
        """A result() that times out does not affect the future."""
        storage = client.storage()
        storage.put("k", "v")
        harness.faults(client).delay("storage.read", 0.3)
        future = storage.fetch("k")
        with pytest.raises(TimeoutError):
            future.result(0.01)
        assert future.result(10 * time_scale()) == "v"
        assert future.exception() is None

    def test_S26_future_callbacks(self, storage: Storage[str]) -> None:
        """Every callback is called, before or after completion, also when another one raises."""
        storage.put("k", "v")
        called: Recorder[Future[str | None]] = Recorder()
        future = storage.fetch("k")
        future.add_done_callback(called)
        future.add_done_callback(_raise)
        future.add_done_callback(called)
        assert future.result() == "v"
        future.add_done_callback(called)
        assert called.expect_count(3) == [future] * 3

    def test_S26_callback_that_blocks(self, harness: Harness, client: PluginLocator) -> None:
        """While one callback blocks, answers come and other callbacks are called."""
        storage = client.storage()
        storage.put("k", "v")
        harness.faults(client).delay("storage.read", 0.2, times=2)
        first, second = storage.fetch("k"), storage.fetch("k")
        called: Recorder[Future[str | None]] = Recorder()
        unblocked = threading.Event()
        first.add_done_callback(lambda _: unblocked.wait(60 * time_scale()))
        second.add_done_callback(called)
        assert called.expect_count(1) == [second]
        assert storage.fetch("k").result() == "v"
        unblocked.set()

    def test_S26_future_cancelled(self, harness: Harness, client: PluginLocator) -> None:
        """Cancelling one future leaves all others as they are."""
        storage = client.storage()
        storage.put_many({f"n/{number}": str(number) for number in range(20)})
        harness.faults(client).delay("storage.read", harness.operation_seconds / 2, times=20)
        futures = [storage.fetch(f"n/{number}") for number in range(20)]
        assert futures[7].cancel()
        others = [(number, one) for number, one in enumerate(futures) if number != 7]
        for number, future in others:
            assert future.result(10 * time_scale()) == str(number)
        assert storage.fetch("n/7").result() == "7"

    def test_S27_given_value_changes(self, client: PluginLocator) -> None:
        """Changing a value after it was put does not change the stored one."""
        given: Any = bytearray(b"value")
        storage = client.storage(BYTES)
        storage.put("k", given)
        given[:] = b"other"
        assert storage.fetch("k").result() == b"value"

    def test_S27_fetched_value_changes(self, client: PluginLocator) -> None:
        """Changing a fetched value does not change the stored one."""
        storage = client.storage(JSON)
        storage.put("k", ["value"])
        fetched = storage.get("k")
        assert fetched is not None
        fetched.value.append("other")
        assert storage.fetch("k").result() == ["value"]


def _version(storage: Storage[str], key: str) -> Version | None:
    found = storage.get(key)
    return found.version if found else None


def _raise(_: object) -> None:
    raise RuntimeError("a callback that raises, on purpose")
