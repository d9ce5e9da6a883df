"""Election under trouble that only the core has to deal with."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

from kip30 import (
    AuthenticationError,
    ClosedError,
    FencedError,
    LeadershipLostError,
    NotElectedError,
    NotNominatedError,
    OutcomeUnknownError,
    PluginLocator,
    SessionLost,
    UnavailableError,
)
from kip30.driver.clock import ManualClock
from kip30.driver.records import new_nonce
from kip30.election import LeaderElection
from kip30.runtime import campaign
from kip30.runtime.campaign import Campaign
from kip30.runtime.candidacy import Candidacy, Leadership
from kip30.runtime.candidate_line import CandidateLine
from kip30.runtime.late_claims import LateClaims
from kip30.runtime.term_work import ThreadOrTask
from kip30_conformance.driver_faults import DriverFault, Effect
from kip30_conformance.polling import eventually, time_scale

from .conftest import OpenClient
from .trouble import faults, has_arrived

pytestmark = pytest.mark.virtual_time

PATIENCE = 10


def test_a_claim_whose_answer_is_lost_is_found_again(client: PluginLocator) -> None:
    election = client.leader_election("s")
    faults(client).lose_answers("election.claim")
    election.nominate("a", "x")
    leadership = election.wait_elected("a", 5)
    assert leadership is not None
    leader = election.get_leader()
    assert leader is not None
    assert (leader.id, leader.epoch) == ("a", leadership.epoch)


def test_a_callback_that_closes_the_locator_fails_no_nomination(
    client: PluginLocator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if all is closed before the nomination that made it leader has returned."""
    closed, answer, close = threading.Event(), Candidacy.answer_waiting, Candidacy.close

    def answer_slowly(candidacy: Candidacy, term: Leadership | None) -> None:
        if term is not None:  # the callback has been queued, and the nomination waits
            assert closed.wait(PATIENCE * time_scale())
        answer(candidacy, term)

    def close_one(candidacy: Candidacy) -> None:
        close(candidacy)
        closed.set()

    monkeypatch.setattr(Candidacy, "answer_waiting", answer_slowly)
    monkeypatch.setattr(Candidacy, "close", close_one)
    election = client.leader_election("s")
    assert not election.nominate("a", "x", on_elected=lambda _: client.close())
    assert closed.is_set()


def test_a_resignation_takes_back_a_claim_whose_answer_was_lost(open_client: OpenClient) -> None:
    client, other = open_client(), open_client()
    election = client.leader_election("s")
    faults(client).lose_answers("election.claim", times=None)
    assert not election.nominate("a", "x")
    faults(client).clear()
    election.resign("a")
    assert other.leader_election("s").get_leader() is None


def test_a_claim_that_arrives_after_a_refusal_and_the_resignation_is_taken_back(
    open_client: OpenClient,
) -> None:
    client, other = open_client(), open_client()
    leads, election = other.leader_election("s"), client.leader_election("s")
    leads.nominate("b", "x")
    faults(client).arrive_late("election.claim", 1)
    assert not election.nominate("a", "x")
    eventually(lambda: faults(client).counted() == 1)
    election.resign("a")
    leads.resign("b")
    eventually(has_arrived)
    eventually(lambda: other.leader_election("s").get_leader() is None)


@pytest.mark.parametrize("seconds", [1, 4], ids=["soon", "after a whole session"])
def test_a_claim_that_arrives_after_its_term_is_taken_back(
    open_client: OpenClient, seconds: float
) -> None:
    client, other = open_client(), open_client()
    election = client.leader_election("s")
    faults(client).arrive_late("election.claim", seconds)
    election.nominate("a", "x")
    assert election.wait_elected("a", 10) is not None
    election.resign("a")
    eventually(has_arrived)
    eventually(lambda: other.leader_election("s").get_leader() is None)


def term_after_a_lost_answer(client: PluginLocator, election: LeaderElection[str]) -> Leadership:
    """Return a term that the claim of the candidate "a" found after the answer to one was lost."""
    faults(client).lose_answers("election.claim")
    election.nominate("a", "x")
    term = election.wait_elected("a", PATIENCE)
    assert term is not None
    return term


def expect_held_from(other: PluginLocator, term: Leadership) -> None:
    """Require that *other* can lead only when the work under *term* holds it no longer."""
    rival = other.leader_election("s")
    rival.nominate("b", "x")
    assert rival.wait_elected("b", PATIENCE) is not None
    assert other.context.clock.now() >= term.held_until


def test_a_term_whose_claim_got_a_lost_answer_is_held_by_its_work(open_client: OpenClient) -> None:
    client, other = open_client(), open_client()
    election = client.leader_election("s")
    term = term_after_a_lost_answer(client, election)
    work = term.begin_work(ThreadOrTask(thread=-1))
    with suppress(OutcomeUnknownError):
        election.resign("a")
    expect_held_from(other, term)
    term.end_work(work)


def test_a_term_that_ends_while_late_claims_are_released_is_held_by_its_work(
    open_client: OpenClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As above, but it resigns after the campaign has begun the step that looks for late claims."""
    client, other = open_client(), open_client()
    election = client.leader_election("s")
    term = term_after_a_lost_answer(client, election)
    work = term.begin_work(ThreadOrTask(thread=-1))
    own, release = election._campaign, LateClaims.release_shown

    def end_and_release(late_claims: LateClaims, *args: Any) -> None:
        candidacy = own.find("a")
        if late_claims is own._late_claims and candidacy is not None:
            own.withdraw(candidacy)
        release(late_claims, *args)

    monkeypatch.setattr(LateClaims, "release_shown", end_and_release)
    own._task.wake()
    eventually(lambda: own.find("a") is None)
    expect_held_from(other, term)
    term.end_work(work)


@pytest.mark.parametrize("waiting", [[], ["c"]], ids=["idle", "a candidate waits far behind"])
def test_a_late_claim_is_found_though_the_service_is_not_watched(
    open_client: OpenClient, monkeypatch: pytest.MonkeyPatch, waiting: list[str]
) -> None:
    """Otherwise an outage let all clients that gave up in it watch each hand-over of a lock."""
    monkeypatch.setattr(CandidateLine, "is_near", lambda line: line._position is None)
    client, other = open_client(), open_client()
    leads, election = other.leader_election("s"), client.leader_election("s")
    leads.nominate("b", "x")
    faults(client).arrive_late("election.claim", 5)
    assert not election.nominate("a", "x")
    for candidate in waiting:
        election.nominate(candidate, "x")
    election.resign("a")
    eventually(lambda: election._campaign._watch.feed is None)
    assert not has_arrived()
    leads.resign("b")
    eventually(has_arrived)
    eventually(lambda: other.leader_election("s").get_leader() is None)
    assert election._campaign._watch.feed is None
    assert election._campaign._late_claims


def test_a_late_claim_is_not_looked_up_in_a_state_from_before_the_release(
    open_client: OpenClient,
) -> None:
    """The look-up is a claim with the same nonce: it would lead once more, and count an epoch."""
    client, other = open_client(), open_client()
    election = client.leader_election("s")
    faults(client).lose_answers("election.claim")
    election.nominate("a", "x")
    assert election.wait_elected("a", 10) is not None
    feed = election._campaign._watch.feed
    assert feed is not None
    stale = eventually(lambda: feed.latest if feed.latest and feed.latest.entries else None)
    election.resign("a")
    eventually(lambda: feed.latest and not feed.latest.entries)
    feed.latest = stale
    election._campaign._step()
    assert other.leader_election("s").nominate("b", "")
    leader = other.leader_election("s").get_leader()
    assert leader is not None
    assert (leader.id, leader.epoch) == ("b", 2)


def test_an_unconfirmed_resignation_raises_outcome_unknown(open_client: OpenClient) -> None:
    clock = ManualClock()
    client = open_client(clock)
    election = client.leader_election("s")
    assert election.nominate("a", "x")
    faults(client).renewals_paused = True
    faults(client).add(
        DriverFault(operation="election.release", effect=Effect.CUT_OFF, seconds=0.5)
    )
    with ThreadPoolExecutor(1) as pool:
        resigned = pool.submit(election.resign, "a")
        eventually(lambda: faults(client).counted() == 1)
        clock.advance(5)
        with pytest.raises(OutcomeUnknownError, match="when the session is over"):
            resigned.result()


def test_nomination_outlives_a_store_that_does_not_answer(client: PluginLocator) -> None:
    election = client.leader_election("s")
    faults(client).fail("election.claim", times=None)
    assert not election.nominate("a", "x")
    faults(client).clear()
    assert election.wait_elected("a", 10) is not None


def test_an_authentication_error_fails_the_nomination(
    client: PluginLocator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AuthenticationError("no such right")

    monkeypatch.setattr(faults(client), "apply", refuse)
    faults(client).fail("election.claim")
    election = client.leader_election("s")
    with pytest.raises(AuthenticationError):
        election.nominate("a", "x")
    with pytest.raises(NotNominatedError):
        election.resign("a")


def test_a_refusal_after_the_nomination_has_returned_is_retried(
    client: PluginLocator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`nominate` has returned false, so nobody would see the error that withdraws the candidate."""
    refused = threading.Event()

    def refuse(*_: object) -> None:
        refused.set()
        raise AuthenticationError("no such right")

    election = client.leader_election("s")
    faults(client).fail("election.claim", times=None)
    assert not election.nominate("a", "x")
    with monkeypatch.context() as patch:
        patch.setattr(faults(client), "apply", refuse)
        assert refused.wait(30)
    faults(client).clear()
    assert election.wait_elected("a", 30) is not None


def test_a_campaign_goes_on_after_an_unexpected_error(
    client: PluginLocator, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    struck = threading.Event()

    def fall(*_: object) -> None:
        struck.set()
        raise RuntimeError("unforeseen")

    election = client.leader_election("s")
    with monkeypatch.context() as patch:
        patch.setattr(faults(client), "apply", fall)
        faults(client).fail("election.claim")
        with ThreadPoolExecutor(1) as pool:
            nominated = pool.submit(election.nominate, "a", "x")
            assert struck.wait(10)
            patch.undo()
            faults(client).clear()
            assert nominated.result()
    assert "unforeseen" in caplog.text


def test_resigning_is_done_locally_even_if_the_store_is_silent(open_client: OpenClient) -> None:
    client = open_client()
    election = client.leader_election("s")
    assert election.nominate("a", "x")
    leadership = election.leadership("a")
    assert leadership is not None
    faults(client).fail("election.release", times=None)
    with pytest.raises(OutcomeUnknownError):
        election.resign("a")
    assert not leadership.is_valid()
    assert leadership.lost.is_set()
    faults(client).clear()
    eventually(lambda: election.get_leader() is None)


def test_several_candidates_of_one_process_take_turns(client: PluginLocator) -> None:
    election = client.leader_election("s")
    assert election.nominate("a", "1")
    assert not election.nominate("b", "2")
    election.resign("a")
    second = election.wait_elected("b", 5)
    assert second is not None
    assert second.epoch == 2


def test_a_lost_session_ends_the_term_and_begins_another(client: PluginLocator) -> None:
    terms: list[tuple[str, int]] = []
    losses: list[SessionLost] = []
    client.add_session_listener(losses.append)
    election = client.leader_election("s")
    election.nominate(
        "a",
        "x",
        on_elected=lambda term: terms.append(("elected", term.epoch)),
        on_lost=lambda term: terms.append(("lost", term.epoch)),
    )
    faults(client).expire_session()
    eventually(lambda: ("elected", 2) in terms)
    assert sorted(terms) == [("elected", 1), ("elected", 2), ("lost", 1)]
    eventually(lambda: len(losses) == 1)


def test_no_claim_is_sent_while_a_term_is_being_ended(
    client: PluginLocator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would have the nonce of that term, and the release of that would end the next one too."""
    election = client.leader_election("s")
    election.nominate("a", "x")
    first = election.leadership("a")
    assert first is not None

    def slowly() -> str:
        monkeypatch.undo()
        election._campaign._task.wake()
        time.sleep(1)  # by the virtual clock: the task comes as far as it can
        return new_nonce()

    monkeypatch.setattr(campaign, "new_nonce", slowly)
    faults(client).expire_session()
    assert first.lost.wait(PATIENCE)
    second = election.wait_elected("a", PATIENCE)
    assert second is not None
    assert second.claim.entry.nonce != first.claim.entry.nonce


def test_a_long_callback_holds_up_neither_the_lease_nor_the_other_callback(
    client: PluginLocator,
) -> None:
    release, lost = threading.Event(), threading.Event()
    election = client.leader_election("s")
    election.nominate("a", "x", on_elected=lambda _: release.wait(30), on_lost=lambda _: lost.set())
    leadership = election.leadership("a")
    assert leadership is not None
    until = time.monotonic() + 2.5
    eventually(lambda: time.monotonic() > until)
    leadership.check()
    faults(client).expire_session()
    assert lost.wait(10)
    release.set()


def test_candidates_are_those_that_are_nominated_here(client: PluginLocator) -> None:
    election = client.leader_election("s")
    assert election.candidates() == {}
    begun = time.time()
    assert election.nominate("a", "x")
    assert not election.nominate("b", "x")
    leadership = election.leadership("a")
    assert leadership is not None
    assert election.candidates() == {"a": leadership, "b": None}
    assert begun - 1 <= leadership.since <= time.time() + 1
    assert client.leader_election("s").candidates() == {}
    election.resign("a")
    eventually(lambda: election.candidates() == {"b": election.leadership("b")})
    client.close()
    with pytest.raises(ClosedError):
        election.candidates()


def test_the_clock_alone_ends_a_term_that_is_not_renewed(open_client: OpenClient) -> None:
    clock = ManualClock()
    client = open_client(clock)
    election = client.leader_election("s")
    assert election.nominate("a", "x")
    leadership = election.leadership("a")
    assert leadership is not None
    faults(client).renewals_paused = True
    clock.advance(1.7)
    assert leadership.is_valid()
    clock.advance(0.2)
    assert not leadership.is_valid()
    assert election.candidates() == {"a": None}
    with pytest.raises(LeadershipLostError, match="not renewed in time"):
        leadership.check()
    assert leadership.lost.wait(10)


def test_a_context_manager_leads_and_resigns(open_client: OpenClient) -> None:
    first, second = open_client(), open_client()
    with first.leader_election("s").lead("a", "x") as leadership:
        leadership.check()
        with (
            pytest.raises(NotElectedError),
            second.leader_election("s").lead("b", "y", timeout_seconds=0.2),
        ):
            pass
        first.storage().put("k", "v", fence=leadership)
    with pytest.raises(FencedError):
        first.storage().update("k", "w", fence=leadership)
    assert second.leader_election("s").get_leader() is None


def test_an_interrupt_as_a_leader_is_nominated_leaves_no_candidate(
    client: PluginLocator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would lead as long as the process, with no block that could resign it."""
    election, add = client.leader_election("s"), Campaign.add

    def interrupted(nominating: Campaign, candidacy: Candidacy, *, alone: bool) -> None:
        add(nominating, candidacy, alone=alone)
        raise KeyboardInterrupt

    monkeypatch.setattr(Campaign, "add", interrupted)
    with pytest.raises(KeyboardInterrupt), election.lead("a", ""):
        raise AssertionError
    assert election.candidates() == {}
    eventually(lambda: election.get_leader() is None)


def test_a_frozen_claim_does_not_hold_up_nominate(client: PluginLocator) -> None:
    faults(client).delay("election.claim", 60)
    began = time.monotonic()
    assert not client.leader_election("s").nominate("a", "x")
    assert time.monotonic() - began < 30


def test_a_claim_removed_at_the_store_is_also_released_by_the_client(client: PluginLocator) -> None:
    election = client.leader_election("s")
    election.nominate("a", "x")
    faults(client).add(
        DriverFault(operation="election.release", effect=Effect.DELAY, match="s", times=None)
    )
    first = election.leadership("a")
    assert first is not None
    client.backend.election.release("s", first.claim).result()
    eventually(lambda: not first.is_valid())
    eventually(lambda: faults(client).counted() == 2, what="it is given back here as well")
    assert election.wait_elected("a", 10) is not None


def test_a_service_without_candidates_is_not_watched_for_long(
    client: PluginLocator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(campaign, "_LINGER_SECONDS", 0.05)
    elections = [client.leader_election(f"s{number}") for number in range(20)]
    connection = client.__dict__["_store"]
    for _ in range(3):
        for election in elections:
            with election.lead("c", "") as term:
                assert term.is_valid()
        eventually(lambda: not connection.subscriptions._feeds, what="no watch is left")
        assert not connection._active_claims


def test_nominations_while_the_watch_ends(
    open_client: OpenClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A nomination at the moment when the watch is given up notices the next vacancy."""
    monkeypatch.setattr(campaign, "_LINGER_SECONDS", 0.0)
    client, other = open_client(), open_client()
    election, rival = client.leader_election("s"), other.leader_election("s")
    for _ in range(50):
        with election.lead("c", ""):
            pass
        with rival.lead("d", ""):
            assert not election.nominate("c", "")
        assert election.wait_elected("c", 10)
        election.resign("c")


def test_a_handle_that_leads_again_and_again_keeps_one_watch_and_one_timer(
    client: PluginLocator,
) -> None:
    election, connection = client.leader_election("s"), client.__dict__["_store"]
    watches: set[int] = set()
    for _ in range(50):
        with election.lead("c", ""):
            pass
        watches |= {id(feed.watch) for feed in connection.subscriptions._feeds.values()}
    assert len(watches) == 1
    timers = [task for *_, task in connection.dispatcher._timers if "campaign" in task.name]
    assert len(timers) == 1


def test_a_candidate_that_was_never_asked_for_leaves_while_another_one_waits(
    open_client: OpenClient,
) -> None:
    """Callers that give up a lock must not pile up behind one whose answer was lost."""
    client = open_client()
    election = client.leader_election("s")
    faults(client).add(
        DriverFault(operation="election.claim", effect=Effect.CUT_OFF, times=1, seconds=0.1)
    )
    faults(client).lose_answers("election.claim", times=None)
    faults(client).fail("observe.snapshot", times=None)
    with suppress(OutcomeUnknownError, UnavailableError):
        election.nominate("a", "x")
    with suppress(OutcomeUnknownError):
        election.resign("a")
    campaign = election._campaign
    assert [one.candidate for one in campaign._leaving] == ["a"]
    faults(client).fail("election.claim", times=None)
    with suppress(UnavailableError):
        election.nominate("b", "x")
    election.resign("b")
    assert [one.candidate for one in campaign._leaving] == ["a"]
