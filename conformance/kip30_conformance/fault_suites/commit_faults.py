"""Connections that are cut after the servers have done the request: S29, G08, L17, M02."""

import time
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest
from typing_extensions import override

from kip30 import Member, OutcomeUnknownError, PluginLocator, Storage, Version
from kip30.driver import Backend, Capability
from kip30.driver.records import Condition, new_nonce
from kip30.driver.records import Write as DriverWrite
from kip30.names import Key
from kip30.runtime.vacancies import TURN_SECONDS
from kip30_conformance.evidence import Evidence
from kip30_conformance.polling import eventually, time_scale
from kip30_conformance.server_suite import Linked, OpenLinked, ServerSuite

Write = Callable[[Storage[str], Version], Version]
T = TypeVar("T")

_WRITES: dict[str, Write] = {
    "put": lambda storage, _: storage.put("new", "mine"),
    "update": lambda storage, _: storage.update("there", "mine"),
    "set": lambda storage, _: storage.set("there", "mine"),
    "compare_and_set": lambda storage, version: storage.compare_and_set("there", version, "mine"),
}
_UNANSWERED: dict[str, Callable[[Backend], Future[Any]]] = {
    "create": lambda backend: _write(backend, "new", Condition.ABSENT),
    "update": lambda backend: _write(backend, "there", Condition.PRESENT),
    "set": lambda backend: _write(backend, "there", Condition.ANY),
    "join": lambda backend: backend.membership.claim("g", "m", new_nonce(), b""),
    "nominate": lambda backend: backend.election.claim("s", "c", new_nonce(), b""),
}
_PATIENT: dict[str, Any] = {
    "plugin.operation.timeout.ms": round(8000 * time_scale()),
    "plugin.session.timeout.ms": round(10_000 * time_scale()),
}
_BRIEF: dict[str, Any] = {
    "plugin.operation.timeout.ms": round(1500 * time_scale()),
    "plugin.session.timeout.ms": round(10_000 * time_scale()),
}
_IN_A_HURRY: dict[str, Any] = {
    "plugin.operation.timeout.ms": round(3000 * time_scale()),
    "plugin.session.timeout.ms": round(10_000 * time_scale()),
}


@pytest.mark.fault
class CommitFaultTests(ServerSuite):
    """A client that was cut off before the answer learns the outcome, and never refuses itself."""

    @pytest.fixture
    @override
    def linked(self, open_linked: OpenLinked) -> Linked:
        """Return a client with time enough to reconnect and read."""
        return open_linked(**_PATIENT)

    @pytest.mark.parametrize("verb", _WRITES)
    def test_S29_cut_after_commit(
        self, linked: Linked, client: PluginLocator, evidence: Evidence, verb: str
    ) -> None:
        """A write succeeds, and returns the version that others see."""
        if verb == "compare_and_set" and not _can_compare(client):
            pytest.skip("this store has no compare-and-set")
        storage, key = client.storage(), "new" if verb == "put" else "there"
        version = _put_and_replace(linked.client)
        with _cut_after_commit(
            linked,
            lambda: _WRITES[verb](linked.client.storage(), version),
            lambda: storage.fetch(key).result() == "mine",
            evidence,
        ) as answer:
            written = answer.result()
        found = storage.get(key)
        assert found is not None
        assert (found.value, found.version) == ("mine", written)

    @pytest.mark.parametrize("verb", _UNANSWERED)
    def test_S29_deadline_after_commit(
        self, open_linked: OpenLinked, client: PluginLocator, evidence: Evidence, verb: str
    ) -> None:
        """A write that is done, and whose answer does not come by the deadline, is in doubt.

        Its driver is called directly, because the core's own deadline may hide what that says.
        """
        linked = open_linked(**_BRIEF)
        backend = linked.client.backend
        _put_and_replace(linked.client)
        _claim_once(linked.client)
        linked.link.swallow_answers()
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(lambda: _UNANSWERED[verb](backend).result())
            eventually(lambda: _is_done(client, verb), what="others see the effect")
            evidence.saw("lost answer, in bytes", _await_loss(linked))
            error = answer.exception()
        linked.link.heal()
        assert isinstance(error, OutcomeUnknownError), (
            f"{error!r} for a write that was done, and whose answer did not come by the deadline"
        )

    def test_S29_cut_after_delete(
        self, linked: Linked, client: PluginLocator, evidence: Evidence
    ) -> None:
        """A delete never claims that there was nothing to delete."""
        storage = client.storage()
        storage.put("there", "old")
        with _cut_after_commit(
            linked,
            lambda: linked.client.storage().delete("there"),
            lambda: storage.get("there") is None,
            evidence,
        ) as answer:
            error = answer.exception()
        assert error is None or isinstance(error, OutcomeUnknownError)
        assert storage.get("there") is None

    def test_G08_close_after_commit(
        self, open_linked: OpenLinked, client: PluginLocator, evidence: Evidence
    ) -> None:
        """A write that was applied while its client closes is never reported as not applied."""
        linked, storage = open_linked(**_IN_A_HURRY), client.storage()
        _put_and_replace(linked.client)
        linked.link.swallow_answers()
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(linked.client.storage().update, "there", "mine")
            eventually(lambda: storage.fetch("there").result() == "mine", what="the effect")
            evidence.saw("lost answer, in bytes", linked.link.counted().dropped_to_client)
            linked.client.close()
            assert isinstance(answer.exception(), OutcomeUnknownError)

    def test_L17_cut_after_nominate(
        self, linked: Linked, client: PluginLocator, evidence: Evidence
    ) -> None:
        """A candidate whose granted claim had no answer leads in that term; the next can follow."""
        election, successor = linked.client.leader_election("s"), client.leader_election("s")
        election.nominate("c", "")
        election.resign("c")
        time.sleep(TURN_SECONDS)  # before that it asks first whether others wait (L51)
        with _cut_after_commit(
            linked, lambda: election.nominate("c", ""), successor.get_leader, evidence
        ) as answer:
            granted = successor.get_leader()
            assert answer.result() is True
        term = election.leadership("c")
        assert term is not None
        assert granted is not None
        assert (granted.id, granted.epoch) == ("c", term.epoch)
        successor.nominate("successor", "")
        election.resign("c")
        eventually(lambda: successor.leadership("successor"), what="the successor leads")

    def test_M02_cut_after_join(
        self, linked: Linked, client: PluginLocator, evidence: Evidence
    ) -> None:
        """A join whose answer was lost is done once, and does not conflict with itself."""
        group, observer = linked.client.group_membership("g"), client.group_membership("g")
        group.join("m", "")
        group.leave("m")
        with _cut_after_commit(
            linked, lambda: group.join("m", "data"), observer.membership_list, evidence
        ) as answer:
            member: Member = answer.result()
        assert member.is_valid()
        assert dict(observer.membership()) == {"m": "data"}
        group.leave("m")
        assert dict(observer.membership()) == {}


@contextmanager
def _cut_after_commit(
    linked: Linked, call: Callable[[], T], is_done: Callable[[], object], evidence: Evidence
) -> Generator[Future[T]]:
    """Lose the answer to *call*: once others see it done, its connections are reset."""
    linked.link.swallow_answers()
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(call)
        eventually(is_done, what="others see the effect")
        # Others may see it through another server, and before the answer is lost.
        evidence.saw("lost answer, in bytes", _await_loss(linked))
        assert not answer.done()
        linked.link.heal()
        yield answer


def _await_loss(linked: Linked) -> int:
    return eventually(lambda: linked.link.counted().dropped_to_client, what="lost answer")


def _claim_once(client: PluginLocator) -> None:
    """Join and lead for a moment, after which each takes one round trip."""
    group, election = client.group_membership("g"), client.leader_election("s")
    group.join("m", "")
    group.leave("m")
    election.nominate("c", "")
    eventually(lambda: election.leadership("c"), what="it leads")
    election.resign("c")


def _write(backend: Backend, name: str, condition: Condition) -> Future[Version]:
    # The data is "mine" as the codec of the other client encodes it.
    return backend.storage.write(DriverWrite(Key("", name), new_nonce(), b"mine", condition))


def _is_done(client: PluginLocator, verb: str) -> object:
    match verb:
        case "join":
            return client.group_membership("g").membership_list()
        case "nominate":
            return client.leader_election("s").get_leader()
        case _:
            key = "new" if verb == "create" else "there"
            return client.storage().fetch(key).result() == "mine"


def _put_and_replace(client: PluginLocator) -> Version:
    """Put and replace a value, after which each takes one round trip."""
    version = client.storage().put("there", "older")
    if not _can_compare(client):
        return version
    return client.storage().compare_and_set("there", version, "old")


def _can_compare(client: PluginLocator) -> bool:
    return Capability.COMPARE_AND_SET in client.backend.capabilities
