"""Storage when the store, the answer or the writer is lost: S28 to S30."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

import pytest

from kip30 import (
    KeyExistsError,
    OutcomeUnknownError,
    PartialWriteError,
    PluginLocator,
    Storage,
    UnavailableError,
    VersionConflictError,
)
from kip30.driver import Capability
from kip30_conformance.clients.crowd import at_once
from kip30_conformance.clients.peer import Peer, PeerError
from kip30_conformance.evidence import Evidence
from kip30_conformance.harness import Harness
from kip30_conformance.polling import eventually, time_scale
from kip30_conformance.suite import Freeze, OpenClient, OpenPeer, Suite, needing, supported

Call = Callable[[Storage[str]], object]

READS: list[Call] = [
    lambda storage: storage.get("there"),
    lambda storage: storage.fetch("there").result(),
    lambda storage: storage.fetch_many(["there"]).result(),
]
ONE_BY_ONE: list[Call] = [
    lambda storage: storage.put("new", "v"),
    lambda storage: storage.update("there", "w"),
    lambda storage: storage.set("there", "w"),
    lambda storage: storage.delete("there"),
]
WRITES: list[Call] = [*ONE_BY_ONE, lambda storage: storage.put_many({"new": "v"})]


@pytest.mark.fault
class StorageFaultTests(Suite):
    """Calls end in time, lost answers are settled, and acknowledged writes stay."""

    @pytest.fixture
    def storage(self, client: PluginLocator) -> Storage[str]:
        """Return the storage of a client, with a key that exists."""
        client.storage().put("there", "v")
        return client.storage()

    def test_S28_read_deadline(
        self, harness: Harness, client: PluginLocator, storage: Storage[str], evidence: Evidence
    ) -> None:
        """A read that does not get through raises UnavailableError by the operation timeout."""
        errors = _ended_in_time(harness, client, evidence, READS)
        assert [type(error) for error in errors] == [UnavailableError] * len(READS)
        for call in READS:
            call(storage)

    def test_S28_write_deadline(
        self, harness: Harness, client: PluginLocator, storage: Storage[str], evidence: Evidence
    ) -> None:
        """A write that does not get through ends by the operation timeout; its error is honest."""
        _expect_honest(_ended_in_time(harness, client, evidence, WRITES), storage)

    def test_S28_frozen_store(
        self, harness: Harness, freeze: Freeze, storage: Storage[str], evidence: Evidence
    ) -> None:
        """A write to a frozen store ends by the operation timeout; its error is honest."""
        started = time.monotonic()
        with freeze():
            ended = at_once([partial(call, storage) for call in WRITES])
        took = time.monotonic() - started
        evidence.saw("writes that had to wait", took > harness.operation_seconds / 2)
        assert took <= _longest(harness)
        _expect_honest([_only_cause(error) for error in ended], storage)

    def test_S29_put_own_success(
        self, harness: Harness, open_client: OpenClient, evidence: Evidence
    ) -> None:
        """A put whose answer was lost succeeds: it never meets its own value as another's."""
        client = open_client(**harness.patient)
        storage, faults = client.storage(), harness.faults(client)
        for number in range(20):
            faults.lose_answers("storage.write")
            version = storage.put(f"n/{number}", "mine")
            found = storage.get(f"n/{number}")
            assert found is not None
            assert (found.value, found.version) == ("mine", version)
        evidence.saw("injected faults", faults.counted() >= 20)

    def test_S29_put_happens_once(
        self, harness: Harness, open_client: OpenClient, evidence: Evidence
    ) -> None:
        """A put that was seen, and deleted by another client, does not happen a second time."""
        client, other = open_client(), open_client().storage()
        faults = harness.faults(client)
        faults.lose_answers("storage.write")
        faults.delay("storage.read", harness.operation_seconds / 2)
        with ThreadPoolExecutor(1) as pool:
            putting = pool.submit(client.storage().put, "k", "v")
            eventually(lambda: other.get("k"), what="another client sees the key")
            other.delete("k")
            with suppress(OutcomeUnknownError):
                putting.result()
        evidence.saw("injected faults", faults.counted())
        assert other.get("k") is None

    def test_S29_put_of_existing(
        self, harness: Harness, client: PluginLocator, storage: Storage[str], evidence: Evidence
    ) -> None:
        """A lost answer to a put of someone else's key never turns into success."""
        faults = harness.faults(client)
        faults.lose_answers("storage.write")
        with pytest.raises((KeyExistsError, OutcomeUnknownError)):
            storage.put("there", "w")
        evidence.saw("injected faults", faults.counted())
        assert storage.fetch("there").result() == "v"

    def test_S29_put_many_own_success(
        self, harness: Harness, open_client: OpenClient, evidence: Evidence
    ) -> None:
        """Many puts whose answers were lost succeed."""
        client = open_client(**harness.patient)
        storage, faults = client.storage(), harness.faults(client)
        faults.lose_answers("storage.write_many")
        versions = storage.put_many({f"n/{number}": "mine" for number in range(20)})
        evidence.saw("injected faults", faults.counted())
        assert storage.fetch_many(versions).result() == dict.fromkeys(versions, "mine")

    def test_S29_update_own_success(
        self, harness: Harness, open_client: OpenClient, evidence: Evidence
    ) -> None:
        """An update whose answer was lost, and which was not overwritten, succeeds."""
        client = open_client(**harness.patient)
        storage, faults = client.storage(), harness.faults(client)
        storage.put("there", "v")
        faults.lose_answers("storage.write")
        version = storage.update("there", "w")
        evidence.saw("injected faults", faults.counted())
        found = storage.get("there")
        assert found is not None
        assert (found.value, found.version) == ("w", version)

    def test_S29_compare_and_set_own_success(
        self, harness: Harness, open_client: OpenClient, evidence: Evidence
    ) -> None:
        """A compare-and-set whose answer was lost never meets its own version as a conflict."""
        client = open_client(**harness.patient)
        storage, faults = client.storage(), harness.faults(client)
        version = storage.put("k", "0")
        with needing(client, Capability.COMPARE_AND_SET):
            for number in range(20):
                faults.lose_answers("storage.write")
                version = storage.compare_and_set("k", version, str(number))
        evidence.saw("injected faults", faults.counted())

    def test_S29_lost_conflict(
        self, harness: Harness, client: PluginLocator, evidence: Evidence
    ) -> None:
        """A compare-and-set whose refusal was lost never turns into success."""
        storage, faults = client.storage(), harness.faults(client)
        stale = storage.put("k", "v")
        storage.update("k", "w")
        with needing(client, Capability.COMPARE_AND_SET):
            faults.lose_answers("storage.write")
            with pytest.raises((VersionConflictError, OutcomeUnknownError)):
                storage.compare_and_set("k", stale, "x")
        evidence.saw("injected faults", faults.counted())
        assert storage.fetch("k").result() == "w"

    def test_S29_delete(
        self, harness: Harness, client: PluginLocator, storage: Storage[str], evidence: Evidence
    ) -> None:
        """A delete whose answer was lost never claims that there was nothing to delete."""
        faults = harness.faults(client)
        faults.lose_answers("storage.write")
        with suppress(OutcomeUnknownError):
            storage.delete("there")
        evidence.saw("injected faults", faults.counted())
        assert storage.get("there") is None

    def test_S29_refused_is_not_done(
        self, harness: Harness, client: PluginLocator, storage: Storage[str], evidence: Evidence
    ) -> None:
        """A write that the store did not take raises UnavailableError, and was not done."""
        faults = harness.faults(client)
        faults.fail("storage.write", times=len(ONE_BY_ONE))
        refused = at_once([partial(call, storage) for call in ONE_BY_ONE])
        evidence.saw("injected faults", faults.counted() >= len(ONE_BY_ONE))
        assert [type(error) for error in refused] == [UnavailableError] * len(ONE_BY_ONE)
        assert storage.fetch_many(["there", "new"]).result() == {"there": "v"}

    def test_S30_durability_after_kill9(
        self, harness: Harness, open_client: OpenClient, peer: OpenPeer, evidence: Evidence
    ) -> None:
        """Every write acknowledged before its writer was killed is there afterwards."""
        reader = open_client(**harness.contended).storage()
        for life in range(3):
            writer, keys = peer(), [f"life{life}/{number}" for number in range(600)]
            for key in keys:
                writer.send("put", key=key, value=key)
            for _ in range(60):
                writer.receive()
            writer.kill()
            acknowledged = keys[: 60 + _answers_left(writer)]
            evidence.saw("writes cut short by kill -9", len(keys) - len(acknowledged))
            found = reader.fetch_many(keys).result()
            assert [found.get(key) for key in acknowledged] == acknowledged
            assert len(found) <= len(acknowledged) + 1


def _ended_in_time(
    harness: Harness, client: PluginLocator, evidence: Evidence, calls: Sequence[Call]
) -> list[object]:
    """Make all *calls* at once while *client* is cut off, and return how they ended."""
    faults, storage = harness.faults(client), client.storage()
    started = time.monotonic()
    with supported(faults.cut_off):
        ended = at_once([partial(call, storage) for call in calls])
    assert time.monotonic() - started <= _longest(harness)
    evidence.saw("injected faults", faults.counted() >= len(calls))
    return [_only_cause(error) for error in ended]


def _expect_honest(errors: Sequence[object], storage: Storage[str]) -> None:
    """Require that writes which claim not to have been done were not."""
    assert all(isinstance(error, UnavailableError | OutcomeUnknownError) for error in errors)
    if not any(isinstance(error, OutcomeUnknownError) for error in errors):
        assert storage.fetch_many(["there", "new"]).result() == {"there": "v"}


def _longest(harness: Harness) -> float:
    return (1.1 * harness.operation_seconds + 0.5) * time_scale()


def _only_cause(error: object) -> object:
    """Return the error of the only key, if *error* is about writing several."""
    return next(iter(error.failed.values())) if isinstance(error, PartialWriteError) else error


def _answers_left(peer: Peer) -> int:
    """Return how many answers a dead peer has left."""
    count = 0
    with suppress(PeerError):
        while True:
            peer.receive()
            count += 1
    return count
