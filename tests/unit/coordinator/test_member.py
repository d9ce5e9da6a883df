"""The next step of a member."""

from dataclasses import replace

import pytest

from kip30.coordinator.decisions import (
    MemberFacts,
    OwnGeneration,
    member_next,
    member_state,
)
from kip30.coordinator.decisions.steps import (
    CollectMetadata,
    EndMember,
    FetchPart,
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
from kip30.coordinator.packing import part_of
from kip30.coordinator.records import MemberRecord, StateRecord
from kip30.driver.records import Version
from kip30.errors import GroupError

from .made import NONCE, assignment, member, record, state
from .made_member import (
    DYNAMIC,
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

# -- joining


def test_nothing_is_decided_before_the_state_was_read() -> None:
    assert member_next(DYNAMIC) == ReadState()


@pytest.mark.parametrize(
    ("found", "coming"), [(None, 1), (state(4), 5), (state(4, preparing=True), 5)]
)
def test_a_newcomer_joins_the_coming_round_at_once(found: StateRecord | None, coming: int) -> None:
    facts = knowing(DYNAMIC, found)
    assert member_next(facts) == PrepareJoin(-1, "")
    facts = facts.prepared()
    assert member_next(facts) == CollectMetadata()
    facts = facts.collected(OFFER, "digest")
    step = member_next(facts)
    assert isinstance(step, JoinGroup)
    assert (step.record.round, step.record.generation, step.record.rejoin) == (coming, -1, -1)
    assert (step.record.nonce, step.record.protocols) == (NONCE, OFFER)
    assert member_next(facts.joined(step.record, lease_deadline=1e9)) == WaitForChange()


@pytest.mark.case("K32")
def test_a_newcomer_does_not_take_what_its_former_life_was_given() -> None:
    facts = joined(DYNAMIC, given(4, SHARE), number=5)
    assert member_next(facts) == WaitForChange()
    preparing = facts.read(reading(given(4, SHARE, preparing=True), 11))
    assert member_next(preparing) == WaitForChange()


@pytest.mark.case("K10")
def test_a_newcomer_of_another_type_ends_before_it_joins() -> None:
    facts = knowing(DYNAMIC, state(4, protocol_type="other"))
    assert member_next(facts) == ReadGroup()
    step = member_next(facts.read_group((member("b", protocol_type="other"),)))
    assert isinstance(step, EndMember)
    assert isinstance(step.error, GroupError)
    assert "'test' is not the group's, 'other'" in str(step.error)


@pytest.mark.case("K10")
def test_a_group_without_members_may_get_another_type() -> None:
    facts = knowing(DYNAMIC, state(4, protocol_type="other"))
    for others in ((), (member("b"),), (member("a", protocol_type="other"),)):
        assert member_next(facts.read_group(others)) == PrepareJoin(-1, "")


@pytest.mark.case("K02")
def test_on_join_prepare_is_not_called_again_before_the_next_share() -> None:
    facts = joined(HELD, given(4, SHARE, preparing=True), number=4)
    assert member_next(facts) == PrepareJoin(4, "a")
    facts = facts.prepared().collected(OFFER, "same")
    step = member_next(facts)
    assert isinstance(step, UpdateRecord)
    assert (step.record.round, step.record.generation) == (5, 4)
    facts = facts.written(step.record)
    assert member_next(facts) == WaitForChange()
    # Left out of 5: it asks for a round, and joins it without another call.
    left_out = facts.read(reading(state(5), 12)).lost()
    left_out = replace(left_out, is_prepared=True).read(reading(state(5, preparing=True), 13))
    assert member_next(left_out) == CollectMetadata()


def test_a_record_without_an_answer_is_sent_again() -> None:
    shown = record("a", round=5)
    facts = knowing(DYNAMIC, state(4, preparing=True)).written(shown, acknowledged=False)
    assert member_next(facts) == UpdateRecord(shown)
    assert member_next(facts.written(shown)) == WaitForChange()


def test_a_round_may_have_been_joined_by_a_record_without_an_answer() -> None:
    """Else the member could take the generation back that it gave up by joining."""
    shown = record("a", round=5)
    facts = knowing(DYNAMIC, given(4, SHARE)).written(shown, acknowledged=False).written(shown)
    assert member_next(facts) == WaitForChange()


# -- taking up


def test_a_share_is_taken_up_inline() -> None:
    facts = joined(DYNAMIC, given(4, SHARE), number=4)
    assert member_next(facts) == TakeUp(4, "p", SHARE)
    held = facts.taken_up(SHARE)
    assert held.own == OwnGeneration(
        number=4,
        attempt="4.1.0123abcd",
        protocol="p",
        assignment=SHARE,
        state_version=Version(10),
        confirmed_at=99.0,
    )
    assert held.deadline == 158.0
    assert member_next(held) == WaitForChange(158.0)


def test_a_share_is_taken_up_from_a_common_part_or_from_its_own_part() -> None:
    found = state(4, parts=4)
    facts = joined(DYNAMIC, found, number=4)
    number = part_of("a", 4)
    assert member_next(facts) == FetchPart(found.attempt, number)
    direct = facts.fetched(found.attempt, {"a": SHARE, "b": assignment("b")})
    assert member_next(direct) == TakeUp(4, "p", SHARE)
    alone = facts.fetched(found.attempt, {"a": 7})
    assert member_next(alone) == FetchPart(found.attempt, 7)
    assert member_next(alone.fetched(found.attempt, {"a": SHARE})) == TakeUp(4, "p", SHARE)


def test_a_part_fetched_for_another_attempt_is_ignored() -> None:
    facts = joined(DYNAMIC, state(4, parts=1), number=4).fetched("4.9.99999999", {"a": SHARE})
    assert member_next(facts) == FetchPart("4.1.0123abcd", 0)


@pytest.mark.case("K57")
def test_a_part_that_was_collected_leaves_the_member_out() -> None:
    facts = joined(DYNAMIC, state(4, parts=1), number=4).fetched("4.1.0123abcd", None)
    step = member_next(facts)
    assert isinstance(step, UpdateRecord)
    assert step.record.rejoin == 4


def test_a_member_that_is_left_out_reports_it_and_asks_for_a_round() -> None:
    facts = replace(HELD, record=record("a", round=5)).read(reading(state(5), 12))
    step = member_next(facts)
    assert isinstance(step, ReportLoss)
    assert step.generation == 4
    facts = facts.lost()
    assert member_next(facts) == ReadState()
    facts = facts.read(reading(state(5), 12))
    step = member_next(facts)
    assert isinstance(step, UpdateRecord)
    assert (step.record.rejoin, step.record.round) == (5, 5)
    assert member_next(facts.written(step.record)) == WaitForChange()


def test_a_share_that_answers_an_earlier_join_is_taken_up_and_a_round_asked_for() -> None:
    older = assignment("a", nonce="an earlier join")
    facts = joined(DYNAMIC, given(4, older), number=4)
    assert member_next(facts) == TakeUp(4, "p", older)
    facts = facts.taken_up(older)
    step = member_next(facts)
    assert isinstance(step, UpdateRecord)
    assert step.record.rejoin == 4
    assert isinstance(member_next(facts.written(step.record)), WaitForChange)


def test_a_refusal_of_this_join_ends_the_member() -> None:
    refused = assignment("a", refusal="the group is full")
    step = member_next(joined(DYNAMIC, given(4, refused), number=4))
    assert isinstance(step, EndMember)
    assert "the group is full" in str(step.error)


def test_a_refusal_of_another_join_does_not() -> None:
    refused = assignment("a", nonce="another", refusal="the group is full")
    step = member_next(joined(DYNAMIC, given(4, refused), number=4))
    assert isinstance(step, UpdateRecord)
    assert step.record.rejoin == 4


@pytest.mark.case("K63")
def test_the_last_generation_is_taken_up_before_the_next_round_is_joined() -> None:
    facts = joined(DYNAMIC, given(4, SHARE, preparing=True), number=4)
    assert member_next(facts) == TakeUp(4, "p", SHARE)
    facts = facts.taken_up(SHARE)
    assert facts.deadline < 0
    assert member_next(facts) == PrepareJoin(4, "a")


@pytest.mark.case("K65")
def test_a_member_that_keeps_its_work_has_a_deadline_also_if_the_next_round_has_begun() -> None:
    cooperative = replace(DYNAMIC, profile=profile(cooperative=True))
    held = holding(cooperative, 4, SHARE)
    other = assignment("a", share=b"other", since=5)
    found = replace(held, record=record("a", round=5)).read(
        reading(state(5, inline={"a": other}, preparing=True), 12, sent_at=140.0)
    )
    assert found.taken_up(other).deadline == held.deadline == 158.0
    assert found.prepared().taken_up(other).deadline == 158.0
    eager = replace(found, profile=profile())
    assert eager.prepared().taken_up(other).deadline < 0
    assert found.reading is not None
    assert found.lost().read(found.reading).taken_up(other).deadline < 0


# -- losing


@pytest.mark.case("K65")
def test_a_reading_that_arrives_after_the_deadline_does_not_revive_the_share() -> None:
    confirming = reading(HELD.state, sent_at=HELD.deadline - 1)
    assert HELD.at(HELD.deadline - 0.1).read(confirming).deadline > HELD.deadline
    assert HELD.at(HELD.deadline).read(confirming).deadline == HELD.deadline


@pytest.mark.case("K61")
def test_a_share_is_lost_at_its_deadline_and_taken_up_again_without_a_round() -> None:
    assert member_next(replace(HELD, now=157.9)) == WaitForChange(158.0)
    late = replace(HELD, now=158.0)
    assert isinstance(member_next(late), ReportLoss)
    late = late.lost()
    assert member_next(late) == ReadState()
    again = late.read(reading(given(4, SHARE), sent_at=158.0))
    assert member_next(again) == TakeUp(4, "p", SHARE)


@pytest.mark.case("K36")
def test_a_share_is_lost_with_the_session_and_the_next_record_is_fresh() -> None:
    unconfirmed = joined(DYNAMIC, given(4, SHARE, preparing=True), number=4).taken_up(SHARE)
    assert isinstance(member_next(unconfirmed.session_over()), ReportLoss)
    facts = HELD.session_over()
    assert isinstance(member_next(facts), ReportLoss)
    facts = facts.lost().read(reading(given(4, SHARE)))
    assert member_next(facts) == PrepareJoin(-1, "")
    step = member_next(facts.prepared().collected(OFFER, "same"))
    assert isinstance(step, JoinGroup)
    assert (step.record.round, step.record.generation) == (5, -1)


@pytest.mark.parametrize(
    "found",
    [None, state(3), given(4, SHARE, attempt="4.7.99999999"), state(0, preparing=True)],
)
def test_a_share_is_lost_with_the_history_of_the_group(found: StateRecord | None) -> None:
    newer = reading(found, 2, sent_at=101.0)
    facts = replace(HELD, now=102.0).read(newer)
    assert isinstance(member_next(facts), ReportLoss)


def test_after_the_store_was_emptied_the_member_joins_as_a_newcomer() -> None:
    shown = record("a", round=7)
    facts = replace(DYNAMIC, record=shown, is_acknowledged=True).read(reading(None))
    assert member_next(facts) == PrepareJoin(-1, "")
    step = member_next(facts.prepared().collected(OFFER, "same"))
    assert isinstance(step, UpdateRecord)
    assert step.record.round == 1
    preparing = facts.read(reading(state(0, preparing=True)))
    assert member_next(preparing) == PrepareJoin(-1, "")


def test_an_eager_member_is_not_valid_once_it_has_given_its_share_up() -> None:
    eager = HELD.prepared()
    assert eager.deadline < 0
    facts = replace(HELD, profile=profile(cooperative=True)).prepared()
    assert facts.deadline == HELD.deadline


# -- asking for a round


@pytest.mark.case("K20")
def test_changed_metadata_asks_for_a_round_once() -> None:
    facts = HELD.wanting_rejoin()
    step = member_next(facts)
    assert isinstance(step, UpdateRecord)
    assert step.record.rejoin == 4
    facts = facts.written(step.record)
    assert not facts.rejoin_wanted
    assert isinstance(member_next(facts), WaitForChange)


def test_metadata_that_was_shown_by_joining_asks_for_no_round() -> None:
    facts = HELD.wanting_rejoin().read(reading(given(4, SHARE, preparing=True), 11))
    facts = facts.prepared().collected(OFFER, "same")
    step = member_next(facts)
    assert isinstance(step, UpdateRecord)
    assert not facts.written(step.record).rejoin_wanted
    without_answer = facts.written(step.record, acknowledged=False)
    assert without_answer.rejoin_wanted
    assert not without_answer.written(step.record).rejoin_wanted
    asked_again = without_answer.wanting_rejoin()
    assert asked_again.written(step.record).rejoin_wanted


# -- readings


def test_an_older_reading_that_arrives_late_is_passed_over() -> None:
    facts = replace(DYNAMIC.read(reading(state(5), 12)), now=105.0)
    assert facts.read(reading(state(4), 10)).state == state(5)
    assert facts.read(reading(state(4), 10, sent_at=None)).state == state(5)
    assert facts.read(reading(None, sent_at=99.5)).state == state(5)


def test_a_later_reading_of_an_emptied_store_counts() -> None:
    facts = replace(DYNAMIC.read(reading(state(5), 12)), now=105.0)
    assert facts.read(reading(state(1), 3, sent_at=101.0)).state == state(1)
    assert facts.read(reading(None, sent_at=101.0)).state is None


# -- the states of Kafka's clients


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (knowing(DYNAMIC, None), MemberState.UNJOINED),
        (joined(DYNAMIC, None, number=1), MemberState.COMPLETING_REBALANCE),
        (joined(DYNAMIC, state(4), number=5), MemberState.COMPLETING_REBALANCE),
        (
            replace(joined(DYNAMIC, state(4), number=5), is_acknowledged=False),
            MemberState.PREPARING_REBALANCE,
        ),
        (
            joined(DYNAMIC, state(4, preparing=True), number=4),
            MemberState.PREPARING_REBALANCE,
        ),
        (HELD, MemberState.STABLE),
        (HELD.read(reading(given(4, SHARE, preparing=True), 11)), MemberState.PREPARING_REBALANCE),
    ],
)
def test_member_states_are_those_of_kafka(facts: MemberFacts, expected: MemberState) -> None:
    assert member_state(facts) is expected


def test_a_member_record_tells_whether_it_is_static() -> None:
    assert isinstance(STATIC.profile.instance, str)
    made: list[MemberRecord] = [record("a"), record("k", instance_version=Version(1))]
    assert [one.is_static for one in made] == [False, True]
