"""Guarantees of every store for terms: their sequence, and its events."""

import itertools
import logging
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip30 import (
    Leader,
    LeaderChange,
    LeaderElection,
    Leadership,
    LeadershipLostError,
    NotElectedError,
    PluginLocator,
    SessionLost,
)
from kip30_conformance.clients.callback_recorder import Recorder
from kip30_conformance.evidence import Evidence
from kip30_conformance.harness import Harness
from kip30_conformance.hypothesis_settings import searching
from kip30_conformance.polling import eventually, throughout
from kip30_conformance.suite import OpenClient, Suite, supported
from kip30_conformance.suites.election import A_MOMENT, term_of

_NUMBERS = itertools.count()


class TermTests(Suite):
    """A term ends before the next one begins, which has a greater epoch; all are notified."""

    @pytest.fixture
    def clients(self, open_client: OpenClient) -> list[PluginLocator]:
        """Return two clients that compete and one that observes."""
        return [open_client() for _ in range(3)]

    def test_L04_resign_hands_over(self, open_client: OpenClient, harness: Harness) -> None:
        """The next candidate is elected well within the timeout, after the first has lost."""
        first, second = (open_client().leader_election("s") for _ in range(2))
        lost, held_then = Recorder[Leadership](), list[bool]()
        first.nominate("a", "", on_lost=lost)
        term = term_of(first, "a")
        look = Recorder[Leadership](lambda _: held_then.append(term.is_valid()))
        assert second.nominate("b", "", on_elected=look) is False
        first.resign("a")
        eventually(
            lambda: held_then,
            within=harness.soon,
            what="the next candidate is notified that it leads",
        )
        assert held_then == [False]
        assert look.events[0].epoch > term.epoch
        assert lost.expect_count(1) == [term]

    def test_L04_term_is_over_at_once(self, client: PluginLocator) -> None:
        """A term that was resigned no longer holds, and says why."""
        election = client.leader_election("s")
        election.nominate("c", "")
        term = term_of(election, "c")
        election.resign("c")
        assert not term.is_valid()
        assert term.remaining_seconds() == 0
        with pytest.raises(LeadershipLostError, match="resigned"):
            term.check()

    @pytest.mark.fault
    @pytest.mark.parametrize("is_cut_off", [False, True], ids=["expired", "cut off"])
    def test_L52_reason(
        self,
        client: PluginLocator,
        harness: Harness,
        evidence: Evidence,
        caplog: pytest.LogCaptureFixture,
        *,
        is_cut_off: bool,
    ) -> None:
        """The reason for a lost session is in its event, in its term's error and in one warning."""
        sessions = Recorder[SessionLost]()
        client.add_session_listener(sessions)
        election, faults = client.leader_election("s"), harness.faults(client)
        election.nominate("c", "")
        term = term_of(election, "c")
        if is_cut_off:
            with faults.cut_off():
                (event,) = sessions.expect_count(1)
        elif client.backend.membership.removal_ends_lease:
            pytest.skip("the store has no sessions: it may show first that the claim is gone")
        else:
            supported(faults.expire_session)
            (event,) = sessions.expect_count(1)
        evidence.saw("lost session", faults.counted())
        assert event.reason
        eventually(lambda: not term.is_valid(), what="the term is over")
        # A store may show first that the claim is gone.
        with pytest.raises(LeadershipLostError, match=f"{re.escape(event.reason)}|another leader"):
            term.check()
        warnings = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
        assert [one for one in warnings if "session lost" in one] == [
            f"session lost: {event.reason}"
        ]

    def test_L08_epoch_monotonic(self, open_client: OpenClient) -> None:
        """Every change of leader brings a greater epoch."""
        elections = [open_client().leader_election("s") for _ in range(2)]
        epochs = [_lead_briefly(elections[turn % 2]) for turn in range(12)]
        assert epochs == sorted(set(epochs))

    def test_L08_epoch_outlives_all_clients(self, open_client: OpenClient) -> None:
        """Epochs still rise after every client has gone and new ones have come."""
        epochs: list[int] = []
        for _ in range(5):
            client = open_client()
            epochs.append(_lead_briefly(client.leader_election("s")))
            client.close()
        assert epochs == sorted(set(epochs))

    def test_L09_re_election_is_a_new_term(self, open_client: OpenClient) -> None:
        """The same candidate elected again leads a new term, and listeners are notified."""
        election, other = (open_client().leader_election("s") for _ in range(2))
        changes = Recorder[LeaderChange[str]]()
        other.add_listener(changes)
        first, second = _lead_briefly(election), _lead_briefly(election)
        assert second > first
        election.nominate("c", "")
        last = term_of(election, "c").epoch
        changes.expect(lambda change: change.leader == Leader("c", "", last))

    @searching
    @given(toggles=st.lists(st.sampled_from(range(2)), max_size=12))
    def test_L11_listener_sequence(self, clients: list[PluginLocator], toggles: list[int]) -> None:
        """Candidates are notified of every term's begin and end, observers of the final leader.

        An observer may miss terms in between, but never sees an epoch twice or out of order.
        """
        name = f"s{next(_NUMBERS)}"
        *candidates, observer = (client.leader_election(name) for client in clients)
        logs = [_Log(candidate) for candidate in candidates]
        changes = Recorder[LeaderChange[str]]()
        observer.add_listener(changes, initial=True)
        for number in toggles:
            logs[number].toggle()
        eventually(
            lambda: _agree(changes, observer, logs),
            what="one candidate leads, or none if none is nominated, and all listeners agree",
        )
        seen = [change.leader.epoch for change in changes.events if change.leader]
        assert seen == sorted(set(seen))
        for one in (*candidates, observer):
            one.close()

    def test_L11_lead(self, open_client: OpenClient) -> None:
        """The block under lead begins with a valid term and ends with a resignation."""
        election, other = (open_client().leader_election("s") for _ in range(2))
        with election.lead("c", "data") as term:
            assert term.is_valid()
            assert other.get_leader() == Leader("c", "data", term.epoch)
        assert not term.is_valid()
        assert other.get_leader() is None

    def test_L11_lead_gives_up_in_time(self, open_client: OpenClient) -> None:
        """A candidate that is not elected in the time given is no longer one."""
        first, second = (open_client().leader_election("s") for _ in range(2))
        first.nominate("a", "")
        with pytest.raises(NotElectedError), second.lead("b", "", timeout_seconds=A_MOMENT):
            pytest.fail("two lead at once")
        first.resign("a")
        throughout(lambda: second.get_leader() is None, seconds=A_MOMENT)


class _Log:
    """A candidate, and the events of its terms."""

    def __init__(self, election: LeaderElection[str]) -> None:
        self.elected = Recorder[Leadership]()
        self.lost = Recorder[Leadership]()
        self._election = election
        self._nominated = False

    def toggle(self) -> None:
        if self._nominated:
            self._election.resign("c")
        else:
            self._election.nominate("c", "", on_elected=self.elected, on_lost=self.lost)
        self._nominated = not self._nominated

    def is_settled(self) -> bool:
        """Return whether all terms gained were lost again, except for a present one."""
        held = self._election.leadership("c")
        gained = sorted(term.epoch for term in self.elected.events)
        ended = sorted(term.epoch for term in self.lost.events)
        return gained == [*ended, *([held.epoch] if held else [])]

    def leads(self) -> bool:
        return self._election.leadership("c") is not None

    def waits(self) -> bool:
        return self._nominated


def _agree(
    changes: Recorder[LeaderChange[str]], observer: LeaderElection[str], logs: list[_Log]
) -> bool:
    """Return whether a candidate leads if there is one, and all listeners agree on it."""
    led = [log for log in logs if log.leads()]
    right_number = len(led) == min(1, sum(log.waits() for log in logs))
    shown = changes.events[-1].leader if changes.events else None
    return right_number and shown == observer.get_leader() and all(log.is_settled() for log in logs)


def _lead_briefly(election: LeaderElection[str]) -> int:
    """Lead for a moment and return the epoch."""
    with election.lead("c", "") as term:
        return term.epoch
