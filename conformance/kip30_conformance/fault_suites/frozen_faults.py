"""Servers that are stopped, all of them or on one side of a connection: S28, F06 and F07."""

import time

import pytest

from kip30 import DefiniteError, OutcomeUnknownError, UnavailableError
from kip30_conformance.clients.rivals import Rivals
from kip30_conformance.evidence import Evidence
from kip30_conformance.fault_suites.mixed_workload import MixedWorkload, MixedWorkloadSuite
from kip30_conformance.fault_suites.timed_calls import WRITTEN_KEYS, Caller, Ended, late, make
from kip30_conformance.harness import Harness
from kip30_conformance.polling import eventually, throughout, time_scale
from kip30_conformance.server_suite import Linked, can_read, connected_node, recovery_seconds
from kip30_conformance.servers import Ensemble
from kip30_conformance.servers.link import Side
from kip30_conformance.suite import OpenClient

_AWAKE_SECONDS = 2.0
_SIDES: tuple[Side, ...] = ("client", "server")


@pytest.mark.fault
class FrozenServerTests(MixedWorkloadSuite):
    """Calls end in time and leadership by its own clock; then everything resumes."""

    def test_S28_stopped_servers(
        self, servers: Ensemble, open_client: OpenClient, harness: Harness, evidence: Evidence
    ) -> None:
        """Every kind of call ends by the operation timeout; what claims not to be done is not."""
        caller, observer = Caller(open_client()), open_client(**harness.steady).storage()
        with servers.frozen():
            ended = caller.make_all()
        evidence.saw("stopped servers", [node.pid for node in servers.nodes])
        evidence.saw("calls that had to wait", _had_to_wait(ended, harness))
        assert late(ended, harness) == {}
        assert {name: one for name, one in ended.items() if not _is_allowed(name, one)} == {}
        eventually(lambda: not _fails(caller), within=recovery_seconds(harness), what="reads")
        refused = {name for name in WRITTEN_KEYS if _is_refused(ended.get(name))}
        throughout(
            lambda: refused.isdisjoint(caller.done(observer)),
            seconds=harness.soon,
            what=f"{refused} were not done",
        )

    def test_F06_pause_all(
        self, servers: Ensemble, life: MixedWorkload, harness: Harness, evidence: Evidence
    ) -> None:
        """Leadership ends before the session can; clients recover soon after the servers resume.

        A server alone has nothing to agree on with others, so that two seconds must do.
        """
        alone = len(servers.nodes) == 1
        with servers.frozen():
            ended_within = _seconds_until_nobody_leads(life.rivals, harness)
            assert ended_within < harness.session_seconds
        evidence.saw("stopped servers", [node.pid for node in servers.nodes])
        evidence.saw("seconds until no candidate led", f"{ended_within:.3f}")
        life.expect_well(within=_AWAKE_SECONDS if alone else recovery_seconds(harness))

    def test_F06_short_pause(
        self, servers: Ensemble, life: MixedWorkload, harness: Harness, evidence: Evidence
    ) -> None:
        """After a pause of a fraction of the session timeout the same term continues."""
        (term,) = life.rivals.leading()
        deadline = term.deadline  # on a busy machine a renewal may be almost due, or be late
        eventually(
            lambda: term.deadline > deadline, within=harness.session_seconds, what="a renewal"
        )
        with servers.frozen():
            throughout(term.is_valid, seconds=0.3 * harness.session_seconds)
        evidence.saw("stopped servers", [node.pid for node in servers.nodes])
        life.expect_well(within=recovery_seconds(harness))
        assert life.rivals.leading() == [term]

    @pytest.mark.parametrize("toward", _SIDES)
    def test_F07_half_open(
        self, life: MixedWorkload, harness: Harness, evidence: Evidence, toward: Side
    ) -> None:
        """Half-open connections are noticed: calls end in time, and the other candidate leads."""
        mute, other = life.inhabitants
        caller, leads = Caller(mute.client), bool(mute.election.leadership(mute.name))
        mute.link.half_open(toward)
        ended = caller.make_all()
        assert late(ended, harness) == {}
        eventually(lambda: not mute.election.leadership(mute.name), within=harness.session_seconds)
        eventually(
            lambda: other.election.leadership(other.name),
            within=harness.crash_patience,
            what="the other one leads",
        )
        evidence.saw("bytes held back", mute.link.counted().held)
        evidence.saw("leader before", mute.name if leads else other.name)
        mute.link.heal()
        life.expect_well(within=recovery_seconds(harness))

    def test_F07_one_server_silent(
        self, three: Ensemble, linked: Linked, harness: Harness, evidence: Evidence
    ) -> None:
        """A client whose server falls silent continues with another one."""
        silent = connected_node(linked, three)
        linked.link.half_open("client", nodes=[silent.index])
        eventually(lambda: can_read(linked.client), within=harness.crash_patience, what="it reads")
        evidence.saw("bytes held back", linked.link.counted().held)
        assert connected_node(linked, three) is not silent


def _seconds_until_nobody_leads(rivals: Rivals, harness: Harness) -> float:
    """Wait until no candidate leads, and return the time at which one last did."""
    begun = last = now = time.monotonic()
    until = begun + 2 * harness.session_seconds * time_scale()
    while rivals.leading():
        assert now < until, "it leads for ever"
        # Read before the check, so that the term was valid until then at least.
        last, now = now, time.monotonic()
    return last - begun


def _had_to_wait(ended: dict[str, Ended], harness: Harness) -> list[str]:
    return [name for name, one in ended.items() if one.seconds > harness.operation_seconds / 2]


def _is_allowed(name: str, ended: Ended) -> bool:
    """Return whether a call to a store that is stopped may end like this."""
    if name == "nominate":
        return ended.outcome is False
    return isinstance(ended.outcome, OutcomeUnknownError | UnavailableError)


def _is_refused(ended: Ended | None) -> bool:
    return ended is not None and isinstance(ended.outcome, DefiniteError)


def _fails(caller: Caller) -> dict[str, Ended]:
    """Return the reads that do not work."""
    return {
        name: one
        for name, one in make(caller.reads).items()
        if isinstance(one.outcome, DefiniteError)
    }
