"""Bans of members whose processes are stopped meanwhile: O31."""

import pytest

from kip30.operations import admit, evict
from kip30_conformance.evidence import Evidence
from kip30_conformance.harness import Harness
from kip30_conformance.polling import eventually, throughout
from kip30_conformance.suite import OpenClient, OpenPeer
from kip30_conformance.suites.directives import OBEYS, DirectivesSuite

_DAY_SECONDS = 86_400.0


@pytest.mark.fault
class BanFaultTests(DirectivesSuite):
    """A member that was stopped while it was banned stays out when it goes on."""

    def test_O31_stopped_member(
        self, open_client: OpenClient, peer: OpenPeer, harness: Harness, evidence: Evidence
    ) -> None:
        """A member that is stopped until its session is over, and banned, does not re-join."""
        member, client = peer(**OBEYS), open_client(**harness.steady)
        group = client.group_membership("g")
        member.call("join", group="g", member_id="m", data="data")
        member.stop()
        evidence.saw("stopped process", member.pid)
        eventually(
            lambda: not group.membership_list(),
            within=2 * harness.crash_patience,
            what="the store has released it",
        )
        assert not evict(client, "g", "m", ban_seconds=_DAY_SECONDS).is_member
        member.resume()
        throughout(
            lambda: not member.call("is_member", group="g", member_id="m"),
            seconds=harness.session_seconds,
            what="it stays out",
        )
        eventually(lambda: not group.membership_list(), what="it has given back what it claimed")
        admit(client, "g", "m")
        eventually(
            lambda: member.call("is_member", group="g", member_id="m"),
            within=2 * harness.crash_patience,
            what="it has re-joined",
        )
        assert group.membership() == {"m": "data"}
