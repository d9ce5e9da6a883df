"""Changes while a listener's client was cut off: R21 to R23."""

from collections.abc import Callable, Generator
from contextlib import contextmanager

import pytest
from typing_extensions import override

from kip30 import Member, PluginLocator, ValueChange
from kip30_conformance.clients.listener_probe import ListenerProbe
from kip30_conformance.evidence import Evidence
from kip30_conformance.harness import Harness
from kip30_conformance.polling import eventually, throughout
from kip30_conformance.server_suite import Linked, OpenLinked, ServerSuite
from kip30_conformance.servers import Ensemble
from kip30_conformance.suite import supported

_A_SHORT_WHILE = 0.4


@pytest.mark.fault
class MissedChangeTests(ServerSuite):
    """The final state reaches every listener, and every listener stays alive."""

    @pytest.fixture
    @override
    def linked(self, open_linked: OpenLinked, harness: Harness) -> Linked:
        """Return a client whose session outlasts a short cut also on a slow machine."""
        return open_linked(**harness.patient)

    @pytest.fixture
    def member(self, linked: Linked) -> Member:
        """Return the membership of a client that can be cut off."""
        return linked.client.group_membership("g").join("listener", "")

    @pytest.fixture
    def probe(self, linked: Linked, client: PluginLocator, member: Member) -> ListenerProbe:
        """Return the listeners of the client of *member*, with targets that exist."""
        assert member.is_valid()
        client.storage().put_many({"n/k": "before", "n/deleted": "before"})
        client.group_membership("g").join("stayer", "")
        probe = ListenerProbe(linked.client)
        probe.expect_keys("n/k", "n/deleted")
        probe.expect_members("stayer", "listener")
        return probe

    def test_R21_cut_shorter_than_the_session(
        self,
        linked: Linked,
        member: Member,
        probe: ListenerProbe,
        client: PluginLocator,
        evidence: Evidence,
    ) -> None:
        """Changes arrive after a short cut, and the session continues."""
        with _cut(linked, evidence):
            throughout(member.is_valid, seconds=_A_SHORT_WHILE)
            expect_delivered = _change(client)
        expect_delivered(probe)
        assert member.is_valid()
        assert probe.sessions.events == []
        _expect_alive(probe, client)

    def test_R22_cut_longer_than_the_session(
        self,
        linked: Linked,
        probe: ListenerProbe,
        client: PluginLocator,
        harness: Harness,
        evidence: Evidence,
    ) -> None:
        """Changes arrive after a lost session, and the client is a member again."""
        group = client.group_membership("g")
        with _cut(linked, evidence):
            probe.sessions.expect_count(1, within=harness.crash_patience)
            eventually(
                lambda: "listener" not in group.membership_list(),
                within=harness.crash_patience,
                what="the session ends in the store",
            )
            expect_delivered = _change(client)
        expect_delivered(probe)
        _expect_alive(probe, client)

    def test_R23_compaction_gap(
        self,
        servers: Ensemble,
        linked: Linked,
        probe: ListenerProbe,
        client: PluginLocator,
        evidence: Evidence,
    ) -> None:
        """Changes during a cut arrive although the store has compacted its history meanwhile."""
        with _cut(linked, evidence):
            expect_delivered = _change(client)
            supported(servers.compact)
        expect_delivered(probe)
        _expect_alive(probe, client)


@contextmanager
def _cut(linked: Linked, evidence: Evidence) -> Generator[None]:
    """Drop everything between a client and the servers, and show that something was dropped."""
    linked.link.cut()
    yield
    lost = eventually(lambda: linked.link.counted().dropped, what="something is lost")
    evidence.saw("lost bytes", lost)
    linked.link.heal()


def _change(client: PluginLocator) -> Callable[[ListenerProbe], None]:
    """Change every kind of target, and return a function that expects the events."""
    storage, election = client.storage(), client.leader_election("s")
    storage.update("n/k", "between")
    version = storage.update("n/k", "last")
    storage.delete("n/deleted")
    storage.put("n/new", "")
    client.group_membership("g").join("newcomer", "")
    election.nominate("leader", "")
    term = election.leadership("leader")
    assert term is not None

    def expect(probe: ListenerProbe) -> None:
        probe.expect_value(ValueChange("n/k", "last", version))
        probe.expect_keys("n/k", "n/new")
        probe.expect_members("stayer", "newcomer", "listener")
        probe.expect_leader(term)

    return expect


def _expect_alive(probe: ListenerProbe, client: PluginLocator) -> None:
    """Require the listeners to be notified of changes from now on."""
    version = client.storage().update("n/k", "after")
    probe.expect_value(ValueChange("n/k", "after", version))
    client.storage().delete("n/new")
    probe.expect_keys("n/k")
