"""Many clients at one key: S10 to S12 and S15."""

import threading
from collections import Counter
from contextlib import suppress
from functools import partial

import pytest

from kip30 import (
    KeyExistsError,
    PluginLocator,
    Storage,
    UnavailableError,
    Version,
    VersionConflictError,
)
from kip30.driver import Capability
from kip30_conformance.clients.crowd import together
from kip30_conformance.evidence import Evidence
from kip30_conformance.harness import Harness
from kip30_conformance.polling import eventually
from kip30_conformance.suite import OpenClient, OpenPeer, Suite, needing, supported

KEYS = [f"n/{number}" for number in range(40)]


class StorageRaceTests(Suite):
    """With any number of simultaneous writes, each outcome is that of some order of the writes."""

    def test_S10_put_race(self, open_client: OpenClient, peer: OpenPeer) -> None:
        """Of threads and processes that put one key exactly one succeeds, and its value stays."""
        peers = {f"process {number}": peer() for number in range(2)}
        storages = {f"client {number}": open_client().storage() for number in range(2)}
        for name, one in peers.items():
            one.send("put_each", keys=KEYS, value=name)
        racers = [partial(_put_each, storages[name], name) for name in (*storages, *storages)]
        won = [*together(racers), *(one.receive() for one in peers.values())]
        names = [*storages, *storages, *peers]
        claimed = {key: name for name, keys in zip(names, won, strict=True) for key in keys}
        assert Counter(key for keys in won for key in keys) == Counter(KEYS)
        assert open_client().storage().fetch_many(KEYS).result() == claimed

    def test_S11_one_update_of_a_version(self, client: PluginLocator) -> None:
        """Of all who replace one version at the same time one succeeds, and its value stays."""
        storage = client.storage()
        storage.put("k", "")
        for _ in range(10):
            version = _version_of(storage)
            with needing(client, Capability.COMPARE_AND_SET):
                won = together([partial(_replaces, storage, version, name) for name in "abc"])
                assert won.count(True) == 1
                assert storage.fetch("k").result() == "abc"[won.index(True)]

    def test_S11_update_race_version(self, client: PluginLocator, peer: OpenPeer) -> None:
        """Increments by compare-and-set, by threads and processes, are all counted."""
        storage = client.storage()
        storage.put("k", "0")
        with needing(client, Capability.COMPARE_AND_SET):
            storage.compare_and_set("k", _version_of(storage), "0")
            peers = [peer() for _ in range(2)]
            for one in peers:
                one.send("increment", key="k", times=60)
            together([partial(_increment, storage, 60)] * 3)
            for one in peers:
                one.receive()
            assert storage.fetch("k").result() == "300"

    def test_S15_monotonic_reads(self, open_client: OpenClient) -> None:
        """While others write, the versions that one client reads never go back."""
        writer, reader = open_client().storage(), open_client().storage()
        writer.put("k", "0")
        over = threading.Event()
        seen: list[Version] = []

        def read() -> None:
            while not over.is_set():
                seen.append(_version_of(reader))

        thread = threading.Thread(target=read)
        thread.start()
        newest = [writer.update("k", str(number)) for number in range(200)][-1]
        over.set()
        thread.join()
        assert seen == sorted(seen)
        assert _version_of(reader) == newest

    @pytest.mark.fault
    def test_S15_monotonic_reads_over_reconnect(
        self, harness: Harness, open_client: OpenClient, evidence: Evidence
    ) -> None:
        """After a time without the store the versions that a client reads are the newest."""
        writer, cut = open_client().storage(), open_client()
        reader, faults = cut.storage(), harness.faults(cut)
        before = writer.put("k", "0")
        assert _version_of(reader) == before
        with supported(faults.cut_off):
            lost = reader.fetch("k")
            newest = writer.update("k", "1")
            eventually(faults.counted, what="something is lost")
        assert _version_of(reader) == newest
        with suppress(UnavailableError):
            assert lost.result() in {"0", "1"}
        evidence.saw("injected faults", faults.counted())


def _put_each(storage: Storage[str], value: str) -> list[str]:
    return [key for key in KEYS if _creates(storage, key, value)]


def _creates(storage: Storage[str], key: str, value: str) -> bool:
    try:
        storage.put(key, value)
    except KeyExistsError:
        return False
    return True


def _replaces(storage: Storage[str], version: Version, value: str) -> bool:
    try:
        storage.compare_and_set("k", version, value)
    except VersionConflictError:
        return False
    return True


def _increment(storage: Storage[str], times: int) -> None:
    while times:
        found = storage.get("k")
        assert found is not None
        try:
            storage.compare_and_set("k", found.version, str(int(found.value) + 1))
            times -= 1
        except VersionConflictError:
            pass


def _version_of(storage: Storage[str]) -> Version:
    found = storage.get("k")
    assert found is not None
    return found.version
