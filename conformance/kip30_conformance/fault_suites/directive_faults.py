"""Directives when the processes that must obey are killed or stopped: O02, O12, O16 and O23."""

from collections.abc import Mapping
from typing import Any

import pytest

from kip30 import DirectiveNotObeyedError
from kip30.operations import (
    HOLD_SECONDS,
    pause_service,
    read_directives,
    resume_service,
    step_down_leader,
)
from kip30.runtime.candidate_line import preferred_group
from kip30_conformance.evidence import Evidence
from kip30_conformance.harness import Harness
from kip30_conformance.polling import eventually, throughout
from kip30_conformance.suite import OpenClient, OpenPeer
from kip30_conformance.suites.directives import OBEYS, DirectivesSuite
from kip30_conformance.suites.vacancies import wait_in_line


@pytest.mark.fault
class DirectiveFaultTests(DirectivesSuite):
    """A pause outlasts the leader, and no dead candidate holds a service for long."""

    def test_O02_leader_is_killed(
        self, open_client: OpenClient, peer: OpenPeer, harness: Harness, evidence: Evidence
    ) -> None:
        """Nobody follows a leader that is killed under a pause, until the service is resumed."""
        leader, client = peer(**OBEYS), open_client(**OBEYS)
        assert leader.call("nominate", service="s", candidate="killed")
        election = client.leader_election("s")
        election.nominate("a", "")
        wait_in_line(client, "s", 1)
        pause_service(client, "s")
        leader.kill()
        evidence.saw("dead process", leader.pid)
        eventually(
            lambda: election.get_leader() is None,
            within=2 * harness.crash_patience,
            what="the store has released it",
        )
        throughout(
            lambda: election.leadership("a") is None and election.get_leader() is None,
            seconds=harness.crash_patience,
            what="no one leads",
        )
        resume_service(client, "s")
        eventually(lambda: election.leadership("a"), what="a leads")

    def test_O12_successor_is_stopped(
        self, open_client: OpenClient, peer: OpenPeer, evidence: Evidence
    ) -> None:
        """A service is not held for a stopped successor: the hand-over is withdrawn."""
        first, second = (open_client(**OBEYS).leader_election("s") for _ in range(2))
        first.nominate("a", "")
        successor, client = peer(**OBEYS), open_client()
        assert not successor.call("nominate", service="s", candidate="stopped")
        wait_in_line(client, "s", 1)
        second.nominate("b", "")
        wait_in_line(client, "s", 2)
        successor.stop()
        evidence.saw("stopped process", successor.pid)
        with pytest.raises(DirectiveNotObeyedError, match="'stopped' did not claim"):
            step_down_leader(client, "s", successor="stopped", wait_seconds=1.0)
        eventually(
            lambda: first.leadership("a") or second.leadership("b"),
            within=HOLD_SECONDS,
            what="another one leads",
        )

    def test_O16_leader_is_stopped(
        self, open_client: OpenClient, peer: OpenPeer, harness: Harness, evidence: Evidence
    ) -> None:
        """A leader that is stopped does not obey what was withdrawn before it goes on."""
        leader, client = peer(**OBEYS, **harness.steady), open_client(**harness.steady)
        assert leader.call("nominate", service="s", candidate="stopped")
        second = open_client(**OBEYS, **harness.steady).leader_election("s")
        second.nominate("b", "")
        wait_in_line(client, "s", 1)
        leader.stop()
        evidence.saw("stopped process", leader.pid)
        with pytest.raises(DirectiveNotObeyedError, match="'stopped' did not step down"):
            step_down_leader(client, "s", wait_seconds=0.5)
        leader.resume()
        assert leader.call("epoch", service="s", candidate="stopped")
        described = read_directives(client, "s")
        assert (described.leader, described.directives.step_down) == ("stopped", None)

    def test_O23_best_is_stopped(
        self, open_client: OpenClient, peer: OpenPeer, harness: Harness, evidence: Evidence
    ) -> None:
        """A stopped candidate of the highest priority delays the others by less than its session.

        It leads at a vacancy after it goes on.
        """
        client = open_client(**harness.steady)
        first, second = (
            open_client(**OBEYS, **harness.steady).leader_election("s") for _ in range(2)
        )
        first.nominate("a", "")
        second.nominate("b", "")
        wait_in_line(client, "s", 1)
        preferred: Mapping[str, Any] = {"plugin.priority": 100}
        best = peer(**OBEYS, **harness.steady, **preferred)
        assert not best.call("nominate", service="s", candidate="stopped")
        group = client.group_membership(preferred_group("s"))
        eventually(group.membership_list, what="the best candidate waits")
        best.stop()
        evidence.saw("stopped process", best.pid)
        first.resign("a")
        eventually(lambda: second.leadership("b"), what="another one leads")
        assert group.membership_list()
        best.resume()
        second.resign("b")
        eventually(lambda: best.call("epoch", service="s", candidate="stopped"), what="it leads")
