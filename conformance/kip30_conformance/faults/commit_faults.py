"""Connections that are cut after the servers have done what they were asked: S29, G08, L17, M02."""

from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest
from typing_extensions import override

from kip30 import Member, OutcomeUnknownError, PluginLocator, Storage, Version
from kip30.driver import Capability
from kip30_conformance.polling import TIME_SCALE, eventually
from kip30_conformance.server_suite import Linked, OpenLinked, ServerSuite
from kip30_conformance.suite import Evidence

Write = Callable[[Storage[str], Version], Version]
T = TypeVar("T")

_WRITES: dict[str, Write] = {
    "put": lambda storage, _: storage.put("new", "mine"),
    "update": lambda storage, _: storage.update("there", "mine"),
    "set": lambda storage, _: storage.set("there", "mine"),
    "compare_and_set": lambda storage, version: storage.compare_and_set("there", version, "mine"),
}
_PATIENT: dict[str, Any] = {
    "plugin.operation.timeout.ms": round(8000 * TIME_SCALE),
    "plugin.session.timeout.ms": round(10_000 * TIME_SCALE),
}
_IN_A_HURRY: dict[str, Any] = {
    "plugin.operation.timeout.ms": round(3000 * TIME_SCALE),
    "plugin.session.timeout.ms": round(10_000 * TIME_SCALE),
}


@pytest.mark.fault
class CommitFaultTests(ServerSuite):
    """Who was cut off before the answer came finds out, and never meets itself as another."""

    @pytest.fixture
    @override
    def linked(self, open_linked: OpenLinked) -> Linked:
        """Return a client with time enough to connect again and look."""
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
            told = answer.result()
        found = storage.get(key)
        assert found is not None
        assert (found.value, found.version) == ("mine", told)

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
        """A write that was done unheard while its client closes is not said not to be done."""
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
        """A candidate leads in the term it was granted unheard, and nothing blocks the next."""
        election, heir = linked.client.leader_election("s"), client.leader_election("s")
        election.nominate("c", "")
        election.resign("c")
        with _cut_after_commit(
            linked, lambda: election.nominate("c", ""), heir.get_leader, evidence
        ) as answer:
            granted = heir.get_leader()
            assert answer.result() is True
        term = election.leadership("c")
        assert term is not None
        assert granted is not None
        assert (granted.id, granted.epoch) == ("c", term.epoch)
        heir.nominate("heir", "")
        election.resign("c")
        eventually(lambda: heir.leadership("heir"), what="the heir leads")

    def test_M02_cut_after_join(
        self, linked: Linked, client: PluginLocator, evidence: Evidence
    ) -> None:
        """A member that has joined unheard is one, once, and not in its own way."""
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
        # Others may see it by way of another server, and before the answer is lost.
        dropped = eventually(lambda: linked.link.counted().dropped_to_client, what="lost answer")
        evidence.saw("lost answer, in bytes", dropped)
        assert not answer.done()
        linked.link.heal()
        yield answer


def _put_and_replace(client: PluginLocator) -> Version:
    """Put and replace a value, after which doing either takes one round trip."""
    version = client.storage().put("there", "older")
    if not _can_compare(client):
        return version
    return client.storage().compare_and_set("there", version, "old")


def _can_compare(client: PluginLocator) -> bool:
    return Capability.COMPARE_AND_SET in client.backend.capabilities
