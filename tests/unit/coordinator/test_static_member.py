"""The next step of a static member."""

from dataclasses import replace

import pytest

from kip30.coordinator.decisions import (
    MemberFacts,
    member_next,
    member_state,
)
from kip30.coordinator.decisions.steps import (
    ClaimInstance,
    CollectMetadata,
    EndMember,
    JoinGroup,
    PrepareJoin,
    ReadGroup,
    ReadState,
    ReportLoss,
    TakeUp,
    UpdateRecord,
    WaitForChange,
)
from kip30.coordinator.interface import MemberState
from kip30.coordinator.records import StateRecord
from kip30.driver.records import Version
from kip30.errors import FencedInstanceError

from .made import assignment, member, record, state
from .made_member import (
    HELD,
    OFFER,
    SHARE,
    STATIC,
    given,
    holding,
    joined,
    knowing,
    profile,
    reading,
)


def test_a_static_member_takes_its_instance_first() -> None:
    facts = replace(STATIC, claim=None).read(reading(state(4), holder="b"))
    assert member_next(facts) == ClaimInstance()
    facts = facts.claimed(Version(6))
    assert member_next(facts) == ReadState()


def newcomer(found: StateRecord | None, digest: str = "same") -> MemberFacts:
    return joined(STATIC, found, number=0, digest=digest)


def test_a_static_newcomer_joins_no_round_at_first() -> None:
    facts = knowing(STATIC, state(4))
    assert member_next(facts) == CollectMetadata()
    step = member_next(facts.collected(OFFER, "same"))
    assert isinstance(step, JoinGroup)
    assert (step.record.round, step.record.instance_version) == (0, Version(5))


@pytest.mark.case("K38")
def test_it_adopts_the_share_of_its_instance() -> None:
    predecessor_s = assignment("former", share=b"share")
    facts = newcomer(given(4, predecessor_s))
    assert member_next(facts) == TakeUp(4, "p", predecessor_s)
    facts = facts.taken_up(predecessor_s)
    assert member_next(facts) == CollectMetadata()
    step = member_next(facts.collected(OFFER, "same"))
    assert isinstance(step, UpdateRecord)
    shown = step.record
    assert (shown.round, shown.generation, shown.rejoin) == (4, 4, -1)
    assert shown.nonce == predecessor_s.nonce
    done = facts.written(shown)
    assert isinstance(member_next(done), WaitForChange)
    assert member_state(done) is MemberState.STABLE


@pytest.mark.case("K38", "K65")
def test_it_reads_the_state_again_once_it_has_joined() -> None:
    """Its share may have been given away while no record of its instance was in the group."""
    facts = replace(knowing(STATIC, given(4, SHARE)).collected(OFFER, "same"), now=102.0)
    step = member_next(facts)
    assert isinstance(step, JoinGroup)
    facts = facts.joined(step.record, lease_deadline=1e9)
    assert member_next(facts) == ReadState()
    facts = facts.read(reading(given(4, SHARE), sent_at=101.9)).taken_up(SHARE)
    assert facts.deadline < 0
    assert facts.read(reading(given(4, SHARE), sent_at=102.0)).deadline == 161.0


@pytest.mark.case("K38")
@pytest.mark.parametrize("member_id", ["former", "a"])
def test_it_asks_for_a_round_if_its_metadata_is_another(member_id: str) -> None:
    step = member_next(newcomer(given(4, assignment(member_id)), digest="another"))
    assert isinstance(step, UpdateRecord)
    assert step.record.rejoin == 4


def test_it_waits_in_a_group_without_state() -> None:
    assert member_next(newcomer(None)) == WaitForChange()


@pytest.mark.case("K42")
def test_it_joins_a_round_that_is_under_way() -> None:
    facts = newcomer(given(4, assignment("former"), preparing=True))
    assert member_next(facts) == PrepareJoin(-1, "")


@pytest.mark.case("K66")
def test_it_waits_for_its_predecessor_if_it_is_to() -> None:
    waiting = replace(STATIC, profile=profile(instance="k", wait_for_predecessor=True))
    facts = knowing(waiting, state(4))
    assert member_next(facts) == ReadGroup()
    former = member("former", instance="k")
    assert member_next(facts.read_group((former,))) == WaitForChange()
    assert member_next(facts.read_group((member("b"),))) == CollectMetadata()


def test_it_waits_for_a_record_that_cannot_be_read_and_may_be_its_predecessors() -> None:
    waiting = replace(STATIC, profile=profile(instance="k", wait_for_predecessor=True))
    facts = knowing(waiting, state(4))
    until = facts.claimed_at + facts.profile.rebalance_timeout_seconds
    assert facts.now < until
    hidden = facts.read_group((member("b"),), unreadable={"former"})
    assert member_next(hidden) == WaitForChange(until)
    # Its own, of a lost session: nothing works on that.
    own = facts.read_group((), unreadable={facts.profile.member_id})
    assert member_next(own) == CollectMetadata()
    assert member_next(hidden.at(until)) == CollectMetadata()
    assert member_next(hidden.read_group(())) == CollectMetadata()


@pytest.mark.case("K39")
def test_a_replaced_member_ends() -> None:
    step = member_next(STATIC.read(reading(state(4), holder="b")))
    assert isinstance(step, EndMember)
    assert isinstance(step.error, FencedInstanceError)


@pytest.mark.case("K36", "K39")
def test_a_member_that_ends_has_lost_its_share_before() -> None:
    taken = reading(state(4), 12, holder="b")
    replaced = holding(STATIC, 4, SHARE).read(taken)
    assert isinstance(member_next(replaced), ReportLoss)
    assert isinstance(member_next(replaced.lost().read(taken)), EndMember)
    refused = reading(given(5, assignment("a", refusal="the group is full")), 12)
    left_out = replace(HELD, record=record("a", round=5)).read(refused)
    assert isinstance(member_next(left_out), ReportLoss)
    assert isinstance(member_next(left_out.lost().read(refused)), EndMember)


@pytest.mark.case("K39")
def test_only_a_reading_sent_after_the_claim_shows_a_replacement() -> None:
    late_claim = replace(STATIC, claimed_at=99.5)
    assert member_next(late_claim.read(reading(state(4), holder="former"))) == CollectMetadata()
    heard = reading(state(4), holder=None, sent_at=None)
    assert member_next(STATIC.read(heard)) == CollectMetadata()


@pytest.mark.case("K73")
def test_a_lost_key_of_the_instance_is_a_lost_share_and_a_new_claim() -> None:
    gone = reading(None, sent_at=120.0, holder=None)
    facts = replace(holding(STATIC, 4, SHARE).read(gone), now=121.0)
    assert isinstance(member_next(facts), ReportLoss)
    facts = facts.lost()
    assert member_next(facts) == ReadState()
    facts = facts.read(gone)
    assert member_next(facts) == ClaimInstance()
    facts = facts.claimed(Version(30)).read(reading(None, sent_at=121.0))
    step = member_next(facts)
    assert isinstance(step, UpdateRecord)
    assert step.record.instance_version == Version(30)
    assert member_next(facts.written(step.record)) == PrepareJoin(-1, "")


@pytest.mark.case("K73")
def test_a_share_is_lost_with_the_key_of_the_instance_alone() -> None:
    gone = reading(given(4, SHARE), 10, sent_at=120.0, holder=None)
    facts = holding(STATIC, 4, SHARE).read(gone)
    assert isinstance(member_next(facts), ReportLoss)
    facts = replace(facts.lost().read(gone), now=121.0).claimed(Version(30))
    facts = facts.written(record("k", round=4, instance_version=Version(30)))
    facts = facts.read(reading(given(4, SHARE), 10, sent_at=121.0))
    assert member_next(facts) == TakeUp(4, "p", SHARE)
    assert facts.taken_up(SHARE).deadline == 180.0


@pytest.mark.case("K65", "K73")
def test_a_reading_from_before_the_new_claim_confirms_no_share() -> None:
    """Another process may have had the instance when that reading saw the state."""
    facts = replace(joined(STATIC, None, number=4), now=121.0).claimed(Version(30))
    early = facts.read(reading(given(4, SHARE), 10, sent_at=120.0)).taken_up(SHARE)
    assert early.deadline < 0


@pytest.mark.case("K73")
@pytest.mark.parametrize("holder", ["b", ""])
def test_only_another_holder_or_none_left_ends_it(holder: str) -> None:
    facts = STATIC.read(reading(None, sent_at=120.0, holder=holder))
    assert isinstance(member_next(facts), EndMember)


def test_a_reading_that_shows_another_holder_confirms_no_share() -> None:
    held = holding(STATIC, 4, SHARE)
    later = held.read(reading(given(4, SHARE), 10, sent_at=120.0, holder="b"))
    assert later.deadline == held.deadline
