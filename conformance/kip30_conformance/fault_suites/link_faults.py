"""Faults between clients and servers that all work: F08 to F11, and L23."""

import pytest

from kip30 import Kip30Error
from kip30_conformance.evidence import Evidence
from kip30_conformance.fault_suites.mixed_workload import MixedWorkload, MixedWorkloadSuite
from kip30_conformance.fault_suites.timed_calls import Caller, late
from kip30_conformance.harness import Harness
from kip30_conformance.polling import eventually
from kip30_conformance.server_suite import recovery_seconds
from kip30_conformance.servers import Link
from kip30_conformance.servers.link import Side

_DROPS = 20
_RESETS = 50
_SIDES: tuple[Side, ...] = ("client", "server")


@pytest.mark.fault
class LinkFaultTests(MixedWorkloadSuite):
    """No wrong result and no hang while a connection is bad; all works when it is good again."""

    def test_F08_reset_storm(
        self, life: MixedWorkload, harness: Harness, evidence: Evidence
    ) -> None:
        """Clients recover after connections were reset again and again, as soon as made."""
        for _ in range(_RESETS):
            for one in life.inhabitants:
                _reset_and_reconnect(one.link, harness)
        for one in life.inhabitants:
            evidence.saw("reset connections", one.link.counted().resets)
        life.expect_well(within=recovery_seconds(harness))

    def test_F09_latency_jitter(
        self, life: MixedWorkload, harness: Harness, evidence: Evidence
    ) -> None:
        """Calls end in time while each way takes up to half a second."""
        slow = life.inhabitants[0]
        caller = Caller(slow.client)
        before = slow.link.counted().round_trips
        slow.link.delay(0.25, 0.25)
        assert late(caller.make_all(), harness) == {}
        evidence.saw("slow answers", slow.link.counted().round_trips - before)
        slow.link.heal()
        life.expect_well(within=recovery_seconds(harness))

    def test_F10_bandwidth(self, life: MixedWorkload, harness: Harness, evidence: Evidence) -> None:
        """A write too long for the operation timeout at 1 KB a second fails; clients recover."""
        slow = life.inhabitants[0]
        slow.link.bandwidth(1024)
        with pytest.raises(Kip30Error) as caught:
            slow.storage.put("bulk", "x" * 64 * 1024)
        evidence.saw("a write that did not get through", repr(caught.value))
        slow.link.heal()
        life.expect_well(within=recovery_seconds(harness))

    @pytest.mark.parametrize("toward", _SIDES)
    def test_F11_truncated_frame(
        self, life: MixedWorkload, harness: Harness, evidence: Evidence, toward: Side
    ) -> None:
        """Calls end in time while every connection breaks in the middle of a message."""
        torn = life.inhabitants[0]
        caller = Caller(torn.client)
        before = torn.link.counted().resets
        torn.link.truncate(toward)
        eventually(
            lambda: torn.link.counted().resets > before + 2,
            within=recovery_seconds(harness),
            what="connections are torn",
        )
        assert late(caller.make_all(), harness) == {}
        evidence.saw("torn connections", torn.link.counted().resets - before)
        torn.link.heal()
        life.expect_well(within=recovery_seconds(harness))

    def test_L23_flapping(self, life: MixedWorkload, harness: Harness, evidence: Evidence) -> None:
        """The leader loses its connection, again and again: never two lead, and one does."""
        for _ in range(_DROPS):
            (leader,) = eventually(
                life.rivals.leading, within=recovery_seconds(harness), what="one leads"
            )
            _reset_and_reconnect(life.inhabitant(leader.candidate).link, harness)
        evidence.saw("drops", sum(one.link.counted().resets for one in life.inhabitants))
        life.expect_well(within=recovery_seconds(harness))


def _reset_and_reconnect(link: Link, harness: Harness) -> None:
    """Reset open connections, and wait until the client has reconnected."""
    before = link.counted().connections
    link.reset()
    eventually(
        lambda: link.counted().connections > before,
        within=recovery_seconds(harness),
        what="the client connects again",
    )
