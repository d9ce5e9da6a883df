"""Guarantees of every store for nominating twice, and for leading for a block: L30 to L32."""

import math
import time
from collections.abc import Callable

import pytest

from kip30 import (
    AlreadyNominatedError,
    Leader,
    LeaderElection,
    Leadership,
    NotElectedError,
    PluginLocator,
    UsageError,
)
from kip30_conformance.clients.callback_recorder import Recorder
from kip30_conformance.clients.crowd import together
from kip30_conformance.harness import Harness
from kip30_conformance.polling import throughout
from kip30_conformance.suite import OpenClient, Suite
from kip30_conformance.suites.election import A_MOMENT, term_of

Nomination = Callable[[LeaderElection[str], Recorder[Leadership]], bool]

_OTHER_NOMINATIONS: dict[str, Nomination] = {
    "other data": lambda election, heard: election.nominate("c", "other", on_lost=heard),
    "another on_lost": lambda election, _: election.nominate("c", "data", on_lost=print),
    "a new on_elected": lambda election, _: election.nominate("c", "data", on_elected=print),
}


class NominationTests(Suite):
    """A candidate is nominated once on each handle, and a block is led by one caller at a time."""

    def test_L30_same_again(self, open_client: OpenClient) -> None:
        """Nominating again with the same data and callbacks, or none, says whether it leads."""
        first, second = (open_client().leader_election("s") for _ in range(2))
        elected, lost = Recorder[Leadership](), Recorder[Leadership]()
        assert first.nominate("a", "data", on_elected=elected, on_lost=lost)
        term = term_of(first, "a")
        assert first.nominate("a", "data", on_elected=elected, on_lost=lost)
        assert first.nominate("a", "data")
        assert second.nominate("b", "") is False
        assert second.nominate("b", "") is False
        assert first.get_leader() == Leader("a", "data", term.epoch)
        assert elected.expect_count(1) == [term]
        assert lost.events == []

    @pytest.mark.parametrize("again", _OTHER_NOMINATIONS.values(), ids=_OTHER_NOMINATIONS)
    def test_L30_not_the_same(
        self,
        client: PluginLocator,
        again: Nomination,
    ) -> None:
        """Nominating again with other data or callbacks is refused, and changes nothing."""
        election, lost = client.leader_election("s"), Recorder[Leadership]()
        election.nominate("c", "data", on_lost=lost)
        term = term_of(election, "c")
        with pytest.raises(AlreadyNominatedError, match="resign it first"):
            again(election, lost)
        assert election.get_leader() == Leader("c", "data", term.epoch)
        term.check()
        election.resign("c")
        assert lost.expect_count(1) == [term]
        assert election.nominate("c", "other")

    def test_L31_lead_of_a_nominated_candidate(self, client: PluginLocator) -> None:
        """A candidate that was nominated cannot be led with too, and stays nominated."""
        election = client.leader_election("s")
        election.nominate("c", "")
        term = term_of(election, "c")
        with pytest.raises(AlreadyNominatedError), election.lead("c", ""):
            pytest.fail("leads twice")
        assert term_of(election, "c") is term

    def test_L31_one_thread_leads(self, client: PluginLocator) -> None:
        """Of several threads that lead with one candidate at once, one does; others are refused."""
        election, refused = client.leader_election("s"), Recorder[AlreadyNominatedError]()

        def lead() -> bool:
            try:
                with election.lead("c", "") as term:
                    refused.expect_count(3)
                    return term.is_valid()
            except AlreadyNominatedError as error:
                refused(error)
            return False

        assert sorted(together([lead] * 4)) == [False, False, False, True]
        with election.lead("c", ""):
            pass

    def test_L32_one_attempt(self, open_client: OpenClient, harness: Harness) -> None:
        """Without time to wait, the answer to one attempt decides, and no candidate is left."""
        first, second = (open_client().leader_election("s") for _ in range(2))
        with first.lead("a", "", timeout_seconds=0) as term:
            term.check()
            started = time.monotonic()
            with pytest.raises(NotElectedError), second.lead("b", "", timeout_seconds=0):
                pytest.fail("two lead at once")
            assert time.monotonic() - started < harness.operation_seconds
        throughout(lambda: second.get_leader() is None, seconds=A_MOMENT)

    @pytest.mark.parametrize("seconds", [-1, -math.inf, math.nan])
    def test_L32_no_such_time(self, client: PluginLocator, seconds: float) -> None:
        """A time to wait that is negative or not a number is refused, and nothing is nominated."""
        election = client.leader_election("s")
        with pytest.raises(UsageError), election.lead("c", "", timeout_seconds=seconds):
            pytest.fail("leads")
        with pytest.raises(UsageError):
            election.wait_elected("c", seconds)
        assert election.get_leader() is None
