"""`Storage.set`, which creates or replaces: S40 and S42. Its fence is S41, in `fencing`."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

import pytest

from kip30 import (
    CodecError,
    KeyExistsError,
    KeyMissingError,
    KeySetChange,
    OutcomeUnknownError,
    PluginLocator,
    Storage,
    ValueChange,
    ValueTooLargeError,
    Version,
    Versioned,
    parse_version,
)
from kip30_conformance.clients.callback_recorder import Recorder
from kip30_conformance.clients.crowd import at_once, together
from kip30_conformance.evidence import Evidence
from kip30_conformance.harness import Harness
from kip30_conformance.polling import eventually
from kip30_conformance.suite import OpenClient, OpenPeer, Suite

TIMES = 40


class StorageSetTests(Suite):
    """A set needs no read first: it creates the key or replaces its value, once."""

    @pytest.fixture
    def storage(self, client: PluginLocator) -> Storage[str]:
        """Return the text storage of the check's own root."""
        return client.storage()

    def test_S40_set_creates(self, storage: Storage[str]) -> None:
        """A set of an absent key creates it, at the version that it returns."""
        version = _set(storage, "n/k", "v")
        assert storage.get("n/k") == Versioned("v", version)
        with pytest.raises(KeyExistsError):
            storage.put("n/k", "w")

    def test_S40_set_replaces(self, storage: Storage[str]) -> None:
        """A set of a key that is there replaces its value, at a greater version."""
        before = storage.put("n/k", "v")
        after = _set(storage, "n/k", "w")
        assert storage.get("n/k") == Versioned("w", after)
        assert after > before

    def test_S40_set_same_value(self, storage: Storage[str]) -> None:
        """A set to an equal value counts: the version grows."""
        versions = [storage.set("n/k", "v") for _ in range(3)]
        assert len(set(versions)) == 3
        assert versions == sorted(versions)

    def test_S40_version_never_reused(self, storage: Storage[str]) -> None:
        """Versions grow over deletions, however the key was created."""
        versions: list[Version] = []
        for value in ("1", "2", "3"):
            versions += [storage.set("n/k", value), storage.set("n/k", value)]
            storage.delete("n/k")
            versions.append(storage.put("n/k", value))
            storage.delete("n/k")
        assert versions == sorted(set(versions))

    def test_S40_value_listener(self, client: PluginLocator, storage: Storage[str]) -> None:
        """Listeners of the value are called for creation and replacement."""
        changes: Recorder[ValueChange[str]] = Recorder()
        client.listener_registry().add_value_change_listener("n/k", changes)
        created = storage.set("n/k", "v")
        assert changes.expect_count(1) == [ValueChange("n/k", "v", created)]
        replaced = storage.set("n/k", "w")
        assert changes.expect_count(2)[1:] == [ValueChange("n/k", "w", replaced)]

    def test_S40_key_set_listener(self, client: PluginLocator, storage: Storage[str]) -> None:
        """Listeners of the key set are called for creation, and not for replacement."""
        changes: Recorder[KeySetChange] = Recorder()
        client.listener_registry().add_key_set_change_listener("n", changes)
        storage.set("n/k", "v")
        assert [change.added for change in changes.expect_count(1)] == [{"n/k"}]
        storage.set("n/k", "w")
        storage.set("n/other", "v")
        assert [change.added for change in changes.expect_count(2)[1:]] == [{"n/other"}]

    def test_S40_set_refused(self, client: PluginLocator, storage: Storage[str]) -> None:
        """A value that cannot be stored is refused and leaves the key as it was."""
        too_long = "x" * (client.backend.limits.value_bytes + 1)
        version = storage.set("n/k", "v")
        with pytest.raises(ValueTooLargeError):
            storage.set("n/k", too_long)
        with pytest.raises(CodecError):
            storage.set("n/k", "\ud800")
        assert storage.get("n/k") == Versioned("v", version)

    def test_S40_set_race(self, open_client: OpenClient, peer: OpenPeer) -> None:
        """Threads and a process that set one key all succeed, each with a version of its own."""
        storages, other = [open_client().storage() for _ in range(2)], peer()
        other.send("set_each", key="n/k", values=[f"process {n}" for n in range(TIMES)])
        racers = [partial(_set_each, storages[name % 2], f"thread {name}") for name in range(4)]
        written = [pair for pairs in together(racers) for pair in pairs]
        theirs = [parse_version(version) for version in other.receive()]
        written += [(version, f"process {number}") for number, version in enumerate(theirs)]
        assert len({version for version, _ in written}) == 5 * TIMES
        newest, value = max(written)
        assert storages[0].get("n/k") == Versioned(value, newest)

    def test_S40_set_while_deleted(self, open_client: OpenClient) -> None:
        """A set that races with deletions neither fails nor reuses a version."""
        setter, deleter = open_client().storage(), open_client().storage()
        races: list[Callable[[], list[tuple[Version, str]]]] = [
            partial(_set_each, setter, "one"),
            partial(_set_each, setter, "two"),
            partial(_delete_each, deleter),
        ]
        versions = [version for pairs in together(races) for version, _ in pairs]
        assert len(set(versions)) == len(versions) == 2 * TIMES
        assert setter.set("n/k", "last") > max(versions)

    @pytest.mark.fault
    def test_S42_lost_answer(
        self, harness: Harness, open_client: OpenClient, evidence: Evidence
    ) -> None:
        """A set whose answer was lost succeeds, with the version that others see."""
        client = open_client(**harness.patient)
        storage, faults = client.storage(), harness.faults(client)
        for number in range(20):
            faults.lose_answers("storage.write")
            version = storage.set(f"n/{number // 2}", str(number))
            assert storage.get(f"n/{number // 2}") == Versioned(str(number), version)
        evidence.saw("injected faults", faults.counted() >= 20)

    @pytest.mark.fault
    def test_S42_newer_value_stays(
        self, harness: Harness, open_client: OpenClient, evidence: Evidence
    ) -> None:
        """A set whose answer was lost does not overwrite what another client wrote after it."""
        client, other = open_client(), open_client().storage()
        with pytest.raises(OutcomeUnknownError):
            _set_with_lost_answer(harness, client, other, lambda: other.set("k", "newer"), evidence)
        found = other.get("k")
        assert found is not None
        assert found.value == "newer"

    @pytest.mark.fault
    def test_S42_deletion_stays(
        self, harness: Harness, open_client: OpenClient, evidence: Evidence
    ) -> None:
        """A set whose answer was lost does not bring back what another client deleted."""
        client, other = open_client(), open_client().storage()
        with pytest.raises(OutcomeUnknownError):
            _set_with_lost_answer(harness, client, other, lambda: other.delete("k"), evidence)
        assert other.get("k") is None


def _set(storage: Storage[str], key: str, value: str) -> Version:
    """Set *key*, which must not be refused in any state."""
    (outcome,) = at_once([partial(storage.set, key, value)])
    assert isinstance(outcome, Version), repr(outcome)
    return outcome


def _set_with_lost_answer(
    harness: Harness,
    client: PluginLocator,
    other: Storage[str],
    act: Callable[[], object],
    evidence: Evidence,
) -> None:
    """Lose the answer to a set, and *act* before *client* reads the record again."""
    faults = harness.faults(client)
    faults.lose_answers("storage.write")
    faults.delay("storage.read", harness.operation_seconds / 2)
    with ThreadPoolExecutor(1) as pool:
        setting = pool.submit(client.storage().set, "k", "mine")
        eventually(lambda: other.get("k"), what="another client sees the key")
        act()
        evidence.saw("injected faults", faults.counted())
        setting.result()


def _set_each(storage: Storage[str], name: str) -> list[tuple[Version, str]]:
    values = [f"{name} {number}" for number in range(TIMES)]
    return [(storage.set("n/k", value), value) for value in values]


def _delete_each(storage: Storage[str]) -> list[tuple[Version, str]]:
    for _ in range(TIMES):
        with suppress(KeyMissingError):
            storage.delete("n/k")
    return []
