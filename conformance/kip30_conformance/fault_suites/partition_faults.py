"""Servers cut off from each other, or that come back empty: L21 and L22."""

from collections.abc import Sequence
from contextlib import suppress

import pytest

from kip30 import Kip30Error, LeaderElection, Leadership, ValueChange
from kip30_conformance.clients.listener_probe import ListenerProbe
from kip30_conformance.clients.rivals import Rivals
from kip30_conformance.evidence import Evidence
from kip30_conformance.harness import Harness
from kip30_conformance.polling import eventually, throughout
from kip30_conformance.server_suite import (
    ROLES,
    Linked,
    OpenLinked,
    ServerSuite,
    recovery_seconds,
)
from kip30_conformance.servers import Ensemble


@pytest.mark.fault
class PartitionFaultTests(ServerSuite):
    """A client with the minority gives up in time, as does one that knows a newer state."""

    @pytest.mark.parametrize("role", ROLES)
    def test_L22_minority_partition(
        self,
        three: Ensemble,
        open_linked: OpenLinked,
        harness: Harness,
        evidence: Evidence,
        role: str,
    ) -> None:
        """A leader cut off with one server stops in time; only then the majority elects."""
        alone = ROLES[role](three)
        rest = [node for node in three.nodes if node is not alone]
        minority, majority = open_linked(only=[alone]), open_linked(only=rest)
        elections = {"a": _nominated(minority, "a"), "b": _nominated(majority, "b")}
        with Rivals(elections) as rivals:
            term = eventually(lambda: elections["a"].leadership("a"), what="a leads")
            _await_renewal(term, within=harness.session_seconds)
            three.isolate(alone)
            eventually(
                lambda: not term.is_valid(), within=harness.session_seconds, what="its term ends"
            )
            new = eventually(
                lambda: elections["b"].leadership("b"),
                within=recovery_seconds(harness),
                what="the majority elects",
            )
            throughout(new.is_valid, seconds=harness.soon)
            evidence.saw("bytes lost between servers", _lost_between(three))
            three.heal()
            eventually(
                lambda: _sees(minority, new), within=recovery_seconds(harness), what="a sees b lead"
            )
        rivals.check()

    def test_L21_ensemble_restart_empty(
        self, servers: Ensemble, open_linked: OpenLinked, harness: Harness, evidence: Evidence
    ) -> None:
        """When the store restarts empty, one new term replaces the old; listeners are notified."""
        clients = [open_linked(), open_linked()]
        storage = clients[0].client.storage()
        storage.put("n/k", "before")
        probes = [ListenerProbe(one.client) for one in clients]
        elections = {f"c{n}": _nominated(one, f"c{n}") for n, one in enumerate(clients)}
        for name, one in zip(elections, clients, strict=True):
            one.client.group_membership("g").join(name, "")
        rivals = Rivals(elections)
        (old,) = rivals.leading()
        killed = [node.pid for node in servers.nodes]
        servers.restart(empty=True)
        evidence.saw("servers that are new", set(killed).isdisjoint(n.pid for n in servers.nodes))
        eventually(
            lambda: not old.is_valid(), within=harness.session_seconds, what="the old term ends"
        )
        new = eventually(
            lambda: _agreed(rivals, clients), within=recovery_seconds(harness), what="one leads"
        )
        for probe in probes:
            probe.expect_value(ValueChange("n/k", None, None))
            probe.expect_keys()
            probe.expect_members(*elections)
            probe.expect_leader(new)
        version = storage.put("n/k", "after")
        for probe in probes:
            probe.expect_value(ValueChange("n/k", "after", version))
        throughout(lambda: rivals.leading() == [new], seconds=harness.soon)


def _nominated(linked: Linked, name: str) -> LeaderElection[str]:
    election = linked.client.leader_election("s")
    election.nominate(name, "")
    return election


def _await_renewal(term: Leadership, within: float) -> None:
    """Wait for the moment when the holder believes in its term for longest."""
    before = term.deadline
    eventually(lambda: term.deadline > before, within=within, what="the term is renewed")


def _sees(linked: Linked, term: Leadership) -> bool:
    with suppress(Kip30Error):
        leader = linked.client.leader_election("s").get_leader()
        return leader is not None and (leader.id, leader.epoch) == (term.candidate, term.epoch)
    return False


def _agreed(rivals: Rivals, clients: Sequence[Linked]) -> Leadership | None:
    """Return the term of the only leader, if all see it."""
    leading = rivals.leading()
    agreed = len(leading) == 1 and all(_sees(one, leading[0]) for one in clients)
    return leading[0] if agreed else None


def _lost_between(servers: Ensemble) -> int:
    return sum(counts.dropped for counts in servers.peer_counts().values())
