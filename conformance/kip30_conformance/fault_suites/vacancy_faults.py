"""Vacancies when the candidate whose turn it is cannot take it: L42 and L43."""

import pytest

from kip30 import LeaderElection
from kip30.runtime.candidate_line import NEAR
from kip30_conformance.evidence import Evidence
from kip30_conformance.harness import Harness
from kip30_conformance.polling import eventually
from kip30_conformance.suite import OpenClient, OpenPeer, Suite, supported
from kip30_conformance.suites.vacancies import wait_in_line


@pytest.mark.fault
class VacancyFaultTests(Suite):
    """A vacancy goes to a live candidate, even if those before it in the line are not."""

    def test_L42_first_is_stopped(
        self, open_client: OpenClient, peer: OpenPeer, harness: Harness, evidence: Evidence
    ) -> None:
        """A candidate that is stopped in its turn is passed over long before its session ends."""
        first, successor = (open_client(**harness.steady).leader_election("s") for _ in range(2))
        stopped = peer(**harness.steady)
        first.nominate("first", "")
        assert not stopped.call("nominate", service="s", candidate="stopped")
        _wait_in_line(open_client, 1)
        successor.nominate("successor", "")
        _wait_in_line(open_client, 2)
        stopped.stop()
        first.resign("first")
        _leads(successor, "successor", harness.soon)
        evidence.saw("stopped process", stopped.pid)

    def test_L42_first_is_cut_off(
        self, open_client: OpenClient, harness: Harness, evidence: Evidence
    ) -> None:
        """A candidate cut off in its turn is passed over long before its session ends."""
        clients = [open_client(**harness.steady) for _ in range(3)]
        first, silent, successor = (client.leader_election("s") for client in clients)
        first.nominate("first", "")
        silent.nominate("silent", "")
        _wait_in_line(open_client, 1)
        successor.nominate("successor", "")
        _wait_in_line(open_client, 2)
        faults = harness.faults(clients[1])
        with supported(faults.cut_off):
            clients[1].storage().fetch("unanswered")
            first.resign("first")
            _leads(successor, "successor", harness.soon)
        evidence.saw("cut connection", faults.counted())

    def test_L43_all_near_are_killed(
        self, open_client: OpenClient, peer: OpenPeer, harness: Harness, evidence: Evidence
    ) -> None:
        """A candidate that is no watcher leads when the leader and all its watchers are killed."""
        election, peers = open_client().leader_election("s"), [peer() for _ in range(NEAR + 1)]
        for number, one in enumerate(peers):
            one.call("nominate", service="s", candidate=str(number))
            _wait_in_line(open_client, number)
        election.nominate("last", "")
        _wait_in_line(open_client, NEAR + 1)
        for one in peers:
            one.kill()
        _leads(election, "last", 2 * harness.crash_patience)
        evidence.saw("dead processes", [one.pid for one in peers])


def _wait_in_line(open_client: OpenClient, number: int) -> None:
    with open_client() as observer:
        wait_in_line(observer, "s", number)


def _leads(election: LeaderElection[str], candidate: str, seconds: float) -> None:
    eventually(lambda: election.leadership(candidate), within=seconds, what="the next one leads")
