"""Guarantees of every store for leader election while nothing fails."""

from itertools import pairwise
from typing import NamedTuple

import pytest

from kip30 import (
    BYTES,
    InvalidNameError,
    Leader,
    LeaderChange,
    LeaderElection,
    Leadership,
    NotNominatedError,
    PluginLocator,
)
from kip30.names import MAX_NAME_BYTES
from kip30_conformance.clients.callback_recorder import Recorder
from kip30_conformance.harness import Harness
from kip30_conformance.polling import eventually, throughout
from kip30_conformance.suite import OpenClient, OpenPeer, Suite
from kip30_conformance.suites.vacancies import wait_in_line

A_MOMENT = 0.2


class ElectionTests(Suite):
    """At most one candidate leads; the others wait, and resigning or closing gives way to them."""

    def test_L01_single_candidate(self, open_client: OpenClient) -> None:
        """The only candidate leads when nominate returns, and everyone sees it with its data."""
        election, other = (open_client().leader_election("s", BYTES) for _ in range(2))
        data = bytes(range(256))
        assert election.nominate("c", data) is True
        term = term_of(election, "c")
        expected = Leader("c", data, term.epoch)
        assert election.get_leader() == other.get_leader() == expected

    def test_L01_seen_by_another_process(self, client: PluginLocator, peer: OpenPeer) -> None:
        """Another process sees the leader too, and one that leads there is seen here."""
        other = peer()
        ours, theirs = client.leader_election("ours"), client.leader_election("theirs")
        ours.nominate("c", "")
        assert other.call("nominate", service="theirs", candidate="d")
        assert other.call("leader", service="ours") == ["c", term_of(ours, "c").epoch]
        leader = theirs.get_leader()
        assert leader is not None
        assert leader.epoch == other.call("epoch", service="theirs", candidate="d")

    def test_L01_callback(self, client: PluginLocator) -> None:
        """The candidate is notified once of its term, which names it and is valid."""
        election, elected = client.leader_election("s"), Recorder[Leadership]()
        election.nominate("c", "", on_elected=elected)
        (term,) = elected.expect_count(1)
        assert (term.service, term.candidate, term.is_valid()) == ("s", "c", True)
        assert 0 < term.remaining_seconds() <= term.lease.timeout_seconds
        term.check()

    def test_L02_no_candidate(self, client: PluginLocator) -> None:
        """A service without a nomination has no leader."""
        assert client.leader_election("nobody was here").get_leader() is None

    def test_L02_after_the_last_resign(self, open_client: OpenClient) -> None:
        """There is no leader once the last candidate has resigned, and listeners are notified."""
        election, other = (open_client().leader_election("s") for _ in range(2))
        election.nominate("c", "")
        changes = Recorder[LeaderChange[str]]()
        other.add_listener(changes)
        election.resign("c")
        assert other.get_leader() is None
        changes.expect(lambda change: change.leader is None)

    @pytest.mark.parametrize("name", ["", "a\ud800", "s" * (MAX_NAME_BYTES + 1)])
    def test_L02_unusable_names(self, client: PluginLocator, name: str) -> None:
        """An empty, unencodable or too long name is refused, as service and as candidate."""
        with pytest.raises(InvalidNameError):
            client.leader_election(name)
        with pytest.raises(InvalidNameError):
            client.leader_election("s").nominate(name, "")
        assert client.leader_election("s").get_leader() is None

    def test_L03_one_leader_of_many(self, peer: OpenPeer) -> None:
        """Of fifty candidates in five processes each leads once, and no two at the same time."""
        peers = {f"p{number}": peer() for number in range(5)}
        for name, process in peers.items():
            candidates = [f"{name}-{number}" for number in range(10)]
            process.send("take_turns", service="s", candidates=candidates, seconds=0.01)
        turns = [_Turn(*turn) for process in peers.values() for turn in process.receive()]
        assert len({turn.epoch for turn in turns}) == 50
        for earlier, later in pairwise(sorted(turns)):
            assert earlier.last < later.first

    def test_L03_candidates_of_one_client(self, client: PluginLocator) -> None:
        """Two handles of one client are rivals like any other two: one of them leads."""
        handles = [client.leader_election("s") for _ in range(2)]
        assert [handle.nominate("c", "") for handle in handles] == [True, False]
        throughout(lambda: handles[1].leadership("c") is None, seconds=A_MOMENT)
        handles[0].resign("c")
        eventually(lambda: handles[1].leadership("c"), what="the other handle leads")
        assert handles[0].leadership("c") is None

    def test_L05_resign_not_nominated(self, open_client: OpenClient) -> None:
        """Only a candidate of this client can resign: not before, not twice, not for others."""
        election, other = (open_client().leader_election("s") for _ in range(2))
        with pytest.raises(NotNominatedError):
            election.resign("c")
        election.nominate("c", "")
        with pytest.raises(NotNominatedError):
            other.resign("c")
        election.resign("c")
        with pytest.raises(NotNominatedError):
            election.resign("c")

    def test_L05_resign_while_waiting(self, open_client: OpenClient) -> None:
        """A candidate that resigned before it was ever elected is not elected afterwards."""
        first, second = (open_client().leader_election("s") for _ in range(2))
        elected = Recorder[Leadership]()
        first.nominate("a", "")
        second.nominate("b", "", on_elected=elected)
        second.resign("b")
        first.resign("a")
        throughout(lambda: second.get_leader() is None, seconds=A_MOMENT)
        assert elected.events == []

    def test_L06_nominate_twice(self, client: PluginLocator) -> None:
        """Nominating again as before changes nothing: one term, the data, one resignation."""
        election, elected = client.leader_election("s"), Recorder[Leadership]()
        assert election.nominate("c", "data", on_elected=elected)
        term = term_of(election, "c")
        assert election.nominate("c", "data", on_elected=elected)
        assert election.get_leader() == Leader("c", "data", term.epoch)
        election.resign("c")
        throughout(lambda: election.get_leader() is None, seconds=A_MOMENT)
        assert elected.events == [term]

    def test_L07_re_nominate_after_resign(self, open_client: OpenClient) -> None:
        """After it resigned a candidate may be nominated again, and is elected in its turn."""
        first, second = (open_client().leader_election("s") for _ in range(2))
        for _ in range(5):
            assert first.nominate("a", "") is True
            second.nominate("b", "")
            first.resign("a")
            eventually(
                lambda: second.leadership("b"),
                what="the second candidate leads after the first has resigned",
            )
            assert first.nominate("a", "") is False
            second.resign("b")
            eventually(
                lambda: first.leadership("a"),
                what="the first candidate leads again after the second has resigned",
            )
            first.resign("a")

    def test_L51_a_turn_for_others(self, open_client: OpenClient) -> None:
        """A candidate that resigns and is nominated again at once lets one that waits lead."""
        clients = [open_client(), open_client()]
        first, second = (client.leader_election("s") for client in clients)
        assert first.nominate("a", "")
        for _ in range(3):
            second.nominate("b", "")
            wait_in_line(clients[0], "s", 1)
            first.resign("a")
            if first.nominate("a", ""):
                assert not clients[0].backend.election.forms_line
                first.resign("a")
            eventually(lambda: second.leadership("b"), what="the candidate that waited leads")
            first.nominate("a", "")
            second.resign("b")
            eventually(lambda: first.leadership("a"), what="the first candidate leads again")

    @pytest.mark.parametrize("closed", ["election", "locator"])
    def test_L25_close_releases(
        self, open_client: OpenClient, harness: Harness, closed: str
    ) -> None:
        """Closing the leader's election, or its locator, hands over well within the timeout."""
        leader, successor = open_client(), open_client().leader_election("s")
        election = leader.leader_election("s")
        election.nominate("a", "")
        term = term_of(election, "a")
        successor.nominate("b", "")
        (election if closed == "election" else leader).close()
        assert not term.is_valid()
        eventually(
            lambda: successor.leadership("b"), within=harness.soon, what="the successor leads"
        )

    def test_L25_close_while_waiting(self, open_client: OpenClient) -> None:
        """Closing a client that waits to be elected leaves no candidacy behind."""
        first, waiting = open_client().leader_election("s"), open_client()
        first.nominate("a", "")
        waiting.leader_election("s").nominate("b", "")
        waiting.close()
        first.resign("a")
        throughout(lambda: first.get_leader() is None, seconds=A_MOMENT)

    @pytest.mark.heavy
    def test_L28_elections_independent(self, open_client: OpenClient, harness: Harness) -> None:
        """One client can lead 200 services and wait for 200 others."""
        client, other = (open_client(**harness.steady) for _ in range(2))
        for number in range(200):
            assert client.leader_election(f"ours{number}").nominate("c", "")
            assert other.leader_election(f"theirs{number}").nominate("d", "")
        waiting = [client.leader_election(f"theirs{number}") for number in range(200)]
        assert not any(election.nominate("c", "") for election in waiting)
        other.close()
        eventually(
            lambda: all(election.leadership("c") for election in waiting),
            what="who waited leads all services",
        )


class _Turn(NamedTuple):
    """An epoch, and between which moments its leader believed in it."""

    epoch: int
    first: float
    last: float


def term_of(election: LeaderElection[str] | LeaderElection[bytes], candidate: str) -> Leadership:
    """Return the present term of *candidate*, which must have one."""
    term = election.leadership(candidate)
    assert term is not None
    return term
