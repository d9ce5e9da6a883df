"""Guarantees of every store for leader election when leaders die, stall or are cut off."""

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain, repeat

import pytest
from typing_extensions import override

from kip30 import (
    FencedError,
    LeaderChange,
    LeaderElection,
    Leadership,
    LeadershipLostError,
    PluginLocator,
    UnsupportedError,
)
from kip30.driver import Capability
from kip30.driver.clock import SystemClock
from kip30_conformance.clients.callback_recorder import Recorder
from kip30_conformance.clients.peer import Peer, settled
from kip30_conformance.evidence import Evidence
from kip30_conformance.harness import Harness
from kip30_conformance.polling import eventually, throughout
from kip30_conformance.suite import OpenClient, OpenPeer, Suite, supported

_HOUR = 3600.0
_SHIFTS = {
    "forward": {"start_seconds": _HOUR, "rate": 1.0},
    "frozen": {"start_seconds": -_HOUR, "rate": 0.0},
    "drifting": {"start_seconds": 0.0, "rate": 2.0},
}


@pytest.mark.fault
class ElectionFaultTests(Suite):
    """A dead or stalled leader is replaced in time, and never acts as one again."""

    def test_L09_same_leader_same_epoch(
        self, open_client: OpenClient, harness: Harness, evidence: Evidence
    ) -> None:
        """A leader cut off for less than its timeout keeps its term, and is not notified (L12)."""
        client = open_client()
        faults, election, log = harness.faults(client), client.leader_election("s"), _Log()
        observer, changes = (
            open_client().leader_election("s"),
            Recorder[LeaderChange[str]](),
        )
        term = log.nominate(election, "c")
        observer.add_listener(changes)
        with supported(faults.cut_off):
            client.storage().fetch("unanswered")
            throughout(
                term.is_valid,
                seconds=0.4 * harness.session_seconds,
                what="the term is valid while the leader is cut off",
            )
        throughout(
            lambda: election.leadership("c") is term,
            seconds=harness.session_seconds,
            what=f"the candidate leads in the same term, of epoch {term.epoch}, once connected",
        )
        assert (log.elected.events, log.lost.events, changes.events) == ([term], [], [])
        evidence.saw("cut connection", faults.counted())

    def test_L12_waiter_cut_off(
        self, open_client: OpenClient, harness: Harness, evidence: Evidence
    ) -> None:
        """A waiting candidate that was cut off for a while is elected once, when its turn comes."""
        first, client = open_client().leader_election("s"), open_client()
        faults, waiting, log = harness.faults(client), client.leader_election("s"), _Log()
        first.nominate("a", "")
        waiting.nominate("b", "", on_elected=log.elected, on_lost=log.lost)
        with supported(faults.cut_off):
            client.storage().fetch("unanswered")
            first.resign("a")
            throughout(lambda: not log.elected.events, seconds=harness.session_seconds / 4)
        (term,) = log.elected.expect_count(1)
        throughout(lambda: waiting.leadership("b") is term, seconds=harness.session_seconds / 2)
        assert (log.elected.events, log.lost.events) == ([term], [])
        evidence.saw("cut connection", faults.counted())

    def test_L13_leader_kill9(
        self, client: PluginLocator, peer: OpenPeer, harness: Harness, evidence: Evidence
    ) -> None:
        """A leader killed with -9 is succeeded within the session timeout, at a new epoch."""
        election, leader = client.leader_election("s"), peer()
        old_epoch = _lead_in(leader)
        assert election.nominate("successor", "") is False
        leader.kill()
        term = eventually(
            lambda: election.leadership("successor"),
            within=harness.crash_patience,
            what="the successor leads",
        )
        assert term.epoch > old_epoch
        evidence.saw("dead process", leader.pid)

    def test_L14_zombie_leader(
        self, open_client: OpenClient, peer: OpenPeer, harness: Harness, evidence: Evidence
    ) -> None:
        """A leader stopped for three timeouts first learns that it no longer leads.

        Its writes are refused while it sleeps and after it wakes up.
        """
        client, zombie = open_client(**harness.steady), peer()
        election, old_epoch = client.leader_election("s"), _lead_in(zombie)
        client.storage().put("key", "kept")
        zombie.stop()
        term = _succeeded(election, harness)
        assert term.epoch > old_epoch
        throughout(term.is_valid, seconds=2 * harness.session_seconds)
        write = {"key": "key", "value": "undead", "fence": ["s", old_epoch]}
        zombie.send("epoch", service="s", candidate="zombie")
        zombie.send("update", **write)
        zombie.resume()
        assert zombie.receive() is None
        _must_refuse(
            chain([zombie.receive], repeat(partial(zombie.call, "update", **write))), client
        )
        eventually(lambda: _ended_once(zombie), what="the former leader hears of its loss, once")
        assert term.is_valid()
        found = client.storage().get("key")
        assert found is not None
        assert found.value == "kept"
        evidence.saw("stopped process", zombie.pid)

    @pytest.mark.parametrize("shift", _SHIFTS.values(), ids=_SHIFTS)
    def test_L15_wall_clock(
        self,
        client: PluginLocator,
        peer: OpenPeer,
        harness: Harness,
        evidence: Evidence,
        shift: dict[str, float],
    ) -> None:
        """When the leader's wall clock jumps, its term continues and no other takes over."""
        election, leader = client.leader_election("s"), peer()
        epoch = _lead_in(leader)
        election.nominate("rival", "")
        leader.call("shift_wall_clock", **shift)
        throughout(
            lambda: leader.call("epoch", service="s", candidate="zombie") == epoch,
            seconds=1.25 * harness.session_seconds,
        )
        assert election.leadership("rival") is None
        evidence.saw(
            "seconds the clock is wrong by", round(leader.call("wall_clock") - time.time())
        )

    def test_L15_lease_clock_forward(self, open_client: OpenClient, evidence: Evidence) -> None:
        """A leader whose lease clock leaps past the deadline, as in suspend, does not lead."""
        clock = _LeapingClock()
        client, log = open_client(clock=clock), _Log()
        term = log.nominate(client.leader_election("s"), "c")
        clock.leap(_HOUR)
        assert not term.is_valid()
        with pytest.raises(LeadershipLostError):
            term.check()
        assert log.lost.expect_count(1) == [term]
        assert all(later.epoch > term.epoch for later in log.elected.events[1:])
        evidence.saw("seconds the clock leapt by", clock.ahead)

    def test_L17_create_then_disconnect(
        self, open_client: OpenClient, harness: Harness, evidence: Evidence
    ) -> None:
        """A candidate leads by a claim whose answer was lost; nothing blocks the next one."""
        client, successor = open_client(), open_client().leader_election("s")
        faults, election, log = harness.faults(client), client.leader_election("s"), _Log()
        faults.lose_answers("election.claim")
        election.nominate("c", "", on_elected=log.elected)
        term = eventually(lambda: election.leadership("c"), what="the candidate leads")
        evidence.saw("lost answers", faults.counted())
        leader = successor.get_leader()
        assert leader is not None
        assert leader.epoch == term.epoch
        successor.nominate("successor", "")
        election.resign("c")
        eventually(
            lambda: successor.leadership("successor"),
            within=harness.soon,
            what="the successor leads",
        )
        assert log.elected.events == [term]

    def test_L17_resigned_before_it_knew(
        self, open_client: OpenClient, harness: Harness, evidence: Evidence
    ) -> None:
        """A candidate that resigns before it knows of its claim leaves none to block the others."""
        client, successor = open_client(), open_client().leader_election("s")
        faults, election = harness.faults(client), client.leader_election("s")
        faults.lose_answers("election.claim", times=2)
        election.nominate("c", "")
        election.resign("c")
        successor.nominate("successor", "")
        eventually(
            lambda: successor.leadership("successor"),
            within=harness.soon,
            what="the successor leads",
        )
        evidence.saw("lost answers", faults.counted())

    def test_L18_session_expired_while_waiting(
        self, open_client: OpenClient, harness: Harness, evidence: Evidence
    ) -> None:
        """A candidate whose session ran out while it waited is elected when its turn comes."""
        first, client = open_client().leader_election("s"), open_client()
        faults, waiting = harness.faults(client), client.leader_election("s")
        first.nominate("a", "")
        waiting.nominate("b", "")
        supported(faults.expire_session)
        evidence.saw("expired session", faults.counted())
        first.resign("a")
        eventually(lambda: waiting.leadership("b"), what="who waited leads")

    def test_L19_leader_deleted_externally(
        self, open_client: OpenClient, harness: Harness, root: str, evidence: Evidence
    ) -> None:
        """A leader whose record is removed is notified; the next one has a greater epoch (L08)."""
        clients = [open_client().leader_election("s") for _ in range(2)]
        logs = [_Log(), _Log()]
        term = logs[0].nominate(clients[0], "a")
        clients[1].nominate("b", "", on_elected=logs[1].elected, on_lost=logs[1].lost)
        supported(harness.delete_leader, root, "s")
        assert logs[0].lost.expect_count(1) == [term]
        new = eventually(
            lambda: clients[0].leadership("a") or clients[1].leadership("b"),
            what="one of the two leads",
        )
        leader = clients[0].get_leader()
        assert leader is not None
        assert (leader.id, leader.epoch) == (new.candidate, new.epoch)
        assert new.epoch > term.epoch
        evidence.saw("new epoch", new.epoch)
        throughout(new.is_valid, seconds=harness.session_seconds / 2)
        assert [clients[0].leadership("a"), clients[1].leadership("b")].count(None) == 1

    def test_L20_session_expiry_no_regain(
        self, open_client: OpenClient, harness: Harness, evidence: Evidence
    ) -> None:
        """After an expiry the old term never returns; the next one has a new epoch."""
        client, log = open_client(), _Log()
        faults, election = harness.faults(client), client.leader_election("s")
        term = log.nominate(election, "c")
        supported(faults.expire_session)
        evidence.saw("expired session", faults.counted())
        assert log.lost.expect_count(1) == [term]
        new = eventually(lambda: election.leadership("c"), what="the candidate leads")
        assert new.epoch > term.epoch
        throughout(new.is_valid, seconds=harness.session_seconds / 2)
        assert log.elected.events == [term, new]
        assert not term.is_valid()

    def test_L26_no_server_at_start(
        self, open_client: OpenClient, harness: Harness, evidence: Evidence
    ) -> None:
        """A candidate nominated while the store does not answer is elected once it does."""
        client, log = open_client(), _Log()
        faults, election = harness.faults(client), client.leader_election("s")
        with supported(faults.cut_off):
            assert election.nominate("c", "", on_elected=log.elected) is False
            evidence.saw("cut connection", faults.counted())
        term = eventually(lambda: election.leadership("c"), what="the candidate leads")
        log.elected.expect(lambda event: event == term)
        # On a busy machine a term before it may have been lost already.
        assert log.elected.events.count(term) == 1

    def test_L26_refused_at_first(
        self, open_client: OpenClient, harness: Harness, evidence: Evidence
    ) -> None:
        """A candidate whose first claims fail because of the store is elected later."""
        client = open_client()
        faults, election = harness.faults(client), client.leader_election("s")
        faults.fail("election.claim", times=3)
        election.nominate("c", "")
        eventually(lambda: election.leadership("c"), what="the candidate leads")
        evidence.saw("refused claims", faults.counted())

    def test_L27_long_callback(
        self, open_client: OpenClient, harness: Harness, evidence: Evidence
    ) -> None:
        """A callback that blocks after the gain stops neither renewals nor notice of the loss."""
        client, blocked, free = open_client(), threading.Event(), threading.Event()
        faults, election = harness.faults(client), client.leader_election("s")
        lost = Recorder[Leadership]()

        def block(_term: Leadership) -> None:
            blocked.set()
            free.wait()

        try:
            election.nominate("c", "", on_elected=block, on_lost=lost)
            term = eventually(lambda: election.leadership("c"), what="the candidate leads")
            assert blocked.wait(harness.crash_patience)
            throughout(term.is_valid, seconds=1.5 * harness.session_seconds)
            supported(faults.expire_session)
            assert lost.expect_count(1) == [term]
            evidence.saw("expired session", faults.counted())
        finally:
            free.set()

    @pytest.mark.heavy
    @pytest.mark.timeout(600)
    def test_L24_reset_race(
        self, open_client: OpenClient, harness: Harness, evidence: Evidence
    ) -> None:
        """Nominations, resignations and lost answers at once leave no candidacy over."""
        client, observer = open_client(), open_client().leader_election("s")
        faults, election = harness.faults(client), client.leader_election("s")
        for number in range(1000):
            faults.lose_answers(("election.claim", "election.release")[number % 2])
            election.nominate("c", "")
            election.resign("c")
        evidence.saw("lost answers", faults.counted())
        eventually(lambda: observer.get_leader() is None, what="no candidate leads")
        assert observer.nominate("next", "") is True


class _Log:
    """The callbacks of a candidate, and the events that they receive."""

    def __init__(self) -> None:
        self.elected = Recorder[Leadership]()
        self.lost = Recorder[Leadership]()

    def nominate(self, election: LeaderElection[str], candidate: str) -> Leadership:
        """Nominate, and return the first term."""
        election.nominate(candidate, "", on_elected=self.elected, on_lost=self.lost)
        return self.elected.expect_count(1)[0]


class _LeapingClock(SystemClock):
    """The system's clock, which a test can make leap forward."""

    def __init__(self) -> None:
        self.ahead = 0.0

    @override
    def now(self) -> float:
        return super().now() + self.ahead

    def leap(self, seconds: float) -> None:
        self.ahead += seconds


def _lead_in(peer: Peer) -> int:
    """Let *peer* lead as ``zombie``, and return the epoch."""
    peer.call("nominate", service="s", candidate="zombie")
    epoch: int = eventually(
        lambda: peer.call("epoch", service="s", candidate="zombie"), what="the peer leads"
    )
    return epoch


def _succeeded(election: LeaderElection[str], harness: Harness) -> Leadership:
    """Nominate a successor, and return its term.

    L13 limits the delay; here the machine may be slow.
    """
    election.nominate("successor", "")
    return eventually(
        lambda: election.leadership("successor"),
        within=10 + harness.crash_patience,
        what="the successor leads",
    )


def _must_refuse(attempts: Iterator[Callable[[], object]], client: PluginLocator) -> None:
    """Require the first of *attempts* at a fenced write with a known outcome to be refused."""
    declared = Capability.FENCING in client.backend.capabilities
    kind = eventually(lambda: settled(next(attempts)), what="the store answers the write")
    assert kind == (FencedError if declared else UnsupportedError).__name__


def _ended_once(peer: Peer) -> bool:
    """Return whether *peer* was notified of the end of each of its terms, once.

    Terms, because on a busy machine the first one may run out before the peer is stopped.
    """
    heard = [note["what"] for note in peer.call("history")]
    return bool(heard) and heard == ["elected", "lost"] * (len(heard) // 2)
