"""The next step of the leader while a round is under way."""

from dataclasses import replace
from typing import Any

import pytest

from kip30.coordinator.decisions import LeaderFacts, StateReading, leader_next
from kip30.coordinator.decisions.steps import (
    Assign,
    CleanParts,
    PutParts,
    ReadGroup,
    ReadState,
    Resign,
    WaitForChange,
)
from kip30.coordinator.interface import JoinGroupMetadata
from kip30.coordinator.packing import PackingLimits
from kip30.coordinator.records import MEMBER, Assignment, PresentMember
from kip30.driver.records import Version

from .made import NONCE, assignment, member
from .made_leader import (
    BLANK,
    JOINED,
    MEMBERS,
    RETURNED,
    ROSTER,
    RULES,
    STATIC,
    after,
    forming,
    led,
    mine,
    settled,
    written,
)

# -- a round


def test_a_round_waits_for_all_and_then_reads_the_group() -> None:
    facts = forming(JOINED[0], MEMBERS[1])
    assert leader_next(facts) == WaitForChange(160.0)
    facts = facts.saw_group(JOINED)
    assert leader_next(facts) == ReadGroup()
    step = leader_next(facts.saw_group(JOINED, linearizable=True))
    assert isinstance(step, Assign)
    assert step.vote.accepted == JOINED
    # A state from the listener after the reading makes the leader read again.
    again = facts.saw_group(JOINED, linearizable=True).saw_group(JOINED)
    assert leader_next(again) == ReadGroup()


def test_a_round_waits_for_a_worker_whose_record_cannot_be_read() -> None:
    facts = forming(JOINED[0]).saw_group(JOINED[:1], unreadable={"b"})
    assert leader_next(facts) == WaitForChange(160.0)
    late = after(facts, 60.0).saw_group(JOINED[:1], unreadable={"b"}, linearizable=True)
    assert isinstance(leader_next(late), Assign)
    healed = facts.saw_group(JOINED, linearizable=True)
    assert isinstance(leader_next(healed), Assign)


def test_a_round_waits_for_the_unreadable_process_that_has_an_instance() -> None:
    facts = led(mine(4, preparing=True, inline=STATIC), JOINED[0]).cleaned_up(4)
    facts = facts.read_instances({"k": "new"}).saw_group(JOINED[:1], unreadable={"new"})
    assert leader_next(facts) == WaitForChange(160.0)


def test_a_round_waits_for_no_other_record_that_cannot_be_read() -> None:
    facts = forming(*JOINED).saw_group(JOINED, unreadable={"x"}, linearizable=True)
    assert isinstance(leader_next(facts), Assign)


def test_a_worker_whose_record_can_no_longer_be_read_is_not_gone() -> None:
    facts = settled(MEMBERS[0], member("b", 2, round=4, rebalance_timeout_seconds=90.0))
    facts = facts.saw_group(MEMBERS[:1], unreadable={"b"})
    assert leader_next(facts) == WaitForChange()
    round_ = facts.read(StateReading(mine(4, preparing=True), Version(11), facts.now))
    round_ = round_.saw_group(JOINED[:1], unreadable={"b"})
    assert leader_next(round_) == WaitForChange(190.0)


def test_a_reading_of_the_group_serves_one_round() -> None:
    facts = assigning().assigned({}, follow_up=True)
    facts = facts.written(written(leader_next(facts)), Version(12)).cleaned_up(5)
    facts = facts.written(written(leader_next(facts)), Version(13))
    late = after(facts.saw_group(JOINED), 60.0)
    assert leader_next(late) == WaitForChange()
    late = after(facts.saw_group((member("a", 1, round=6), JOINED[1])), 60.0)
    assert leader_next(late) == ReadGroup()
    stale = assigning().saw_group(JOINED, linearizable=True).unread()
    assert not stale.read(StateReading(mine(4, preparing=True), Version(10))).is_group_read


def test_reading_the_state_again_does_not_put_the_deadline_off() -> None:
    facts = after(forming(JOINED[0], MEMBERS[1]), 30.0)
    again = facts.read(StateReading(mine(4, preparing=True), Version(10)))
    assert leader_next(again) == WaitForChange(160.0)


@pytest.mark.case("K23")
def test_it_waits_for_the_greatest_rebalance_timeout() -> None:
    slow = member("b", 2, round=4, rebalance_timeout_seconds=90.0)
    facts = forming(JOINED[0], slow)
    assert leader_next(facts) == WaitForChange(190.0)
    assert leader_next(after(facts, 90.0)) == ReadGroup()


@pytest.mark.case("K24")
def test_a_dynamic_member_that_has_not_joined_by_then_is_left_out() -> None:
    facts = after(forming(JOINED[0], MEMBERS[1]), 60.0)
    step = leader_next(facts.saw_group(facts.members, linearizable=True))
    assert isinstance(step, Assign)
    assert [one.member_id for one in step.vote.accepted] == ["a"]


@pytest.mark.case("K41")
def test_a_static_member_that_has_not_joined_by_then_stays() -> None:
    facts = after(forming(JOINED[0], RETURNED, inline=STATIC), 60.0)
    step = leader_next(facts.saw_group(facts.members, linearizable=True))
    assert isinstance(step, Assign)
    assert [one.member_id for one in step.vote.accepted] == ["a", "s"]


@pytest.mark.case("K41")
def test_a_static_member_in_its_grace_stays_with_what_it_joined_with() -> None:
    present = settled(MEMBERS[0], RETURNED, member("c", 3), inline=STATIC)
    gone = present.saw_group((MEMBERS[0], member("c", 3)))
    begun = after(gone, 0.1).written(
        written(leader_next(after(gone.read_instances({"k": "s"}), 0.1))), Version(11)
    )
    joined = begun.saw_group((JOINED[0], member("c", 3, round=5)), linearizable=True)
    step = leader_next(joined)
    assert isinstance(step, Assign)
    assert [one.member_id for one in step.vote.accepted] == ["a", "s", "c"]


@pytest.mark.case("K40", "K41", "K76")
@pytest.mark.parametrize("in_parts", [False, True])
def test_a_new_leader_keeps_the_share_of_an_absent_static_member(*, in_parts: bool) -> None:
    joined = MEMBER.encode(RETURNED.record)
    roster = {**STATIC, "k": STATIC["k"]._replace(record=joined)}
    if in_parts:
        facts = led(mine(4, preparing=True, parts=1, inline={}), JOINED[0])
        facts = facts.read_parts({0: roster}).cleaned_up(4)
    else:
        facts = forming(JOINED[0], inline=roster)
    step = leader_next(facts.saw_group((JOINED[0],), linearizable=True))
    assert isinstance(step, Assign)
    assert [one.member_id for one in step.vote.accepted] == ["s", "a"]
    assert step.vote.absent == {"s"}
    new = published(facts.assigning(step.vote), {"a": b"1", "s": b"2"})
    assert (new["k"].nonce, new["k"].share, new["k"].record) == ("join of k", b"2", joined)
    assert new["a"].record == b""


@pytest.mark.case("K40")
@pytest.mark.parametrize("kept", [b"", b"of a newer kip30"])
def test_a_new_leader_leaves_an_absent_member_out_that_it_cannot_know(kept: bytes) -> None:
    facts = forming(JOINED[0], inline={**STATIC, "k": STATIC["k"]._replace(record=kept)})
    step = leader_next(facts.saw_group((JOINED[0],), linearizable=True))
    assert isinstance(step, Assign)
    assert [one.member_id for one in step.vote.accepted] == ["a"]


@pytest.mark.case("K64")
@pytest.mark.parametrize(("size", "is_kept"), [(10, True), (256 * 1024 - 400, False)])
def test_a_share_that_needs_the_room_goes_without_the_record(size: int, *, is_kept: bool) -> None:
    facts = assigning(JOINED[0], RETURNED._replace(record=replace(RETURNED.record, round=5)))
    done = facts.assigned({"s": bytes(size)}, follow_up=False)
    assert done.formation is not None
    assert not done.formation.failure
    assert done.formation.assignments is not None
    assert (done.formation.assignments["k"].record != b"") == is_kept


def test_a_large_record_is_left_out() -> None:
    large = replace(RETURNED.record, round=5, protocols=(JoinGroupMetadata("p", bytes(2**14)),))
    new = published(assigning(JOINED[0], RETURNED._replace(record=large)), {"s": b"1"})
    assert new["k"].record == b""


@pytest.mark.case("K17")
def test_a_round_that_no_member_has_joined_goes_on() -> None:
    facts = after(forming(*MEMBERS), 1e6)
    assert leader_next(facts) == WaitForChange()


@pytest.mark.case("K16")
def test_a_leader_that_has_not_joined_by_the_deadline_resigns() -> None:
    facts = after(forming(MEMBERS[0], JOINED[1]), 60.0)
    step = leader_next(facts.saw_group(facts.members, linearizable=True))
    assert step == Resign("the leader has not joined the round", 60.0)


def test_a_leader_without_the_common_protocol_resigns() -> None:
    odd = member("a", 3, round=5, protocols=["q"])
    facts = forming(odd, JOINED[1], inline={"b": ROSTER["b"]})
    step = leader_next(facts.saw_group(facts.members, linearizable=True))
    assert step == Resign("the group refuses the leader", 60.0)


def test_of_two_members_of_an_instance_the_newer_counts_and_the_older_is_waited_for() -> None:
    newer = member("t", 9, instance="k", round=5)
    facts = forming(JOINED[0], member("s", 2, instance="k", round=4), newer, inline=STATIC)
    assert leader_next(facts) == WaitForChange(160.0)
    late = after(facts, 60.0)
    step = leader_next(late.saw_group(late.members, linearizable=True))
    assert isinstance(step, Assign)
    assert step.vote.accepted == (JOINED[0], newer)


@pytest.mark.case("K23")
def test_the_older_one_is_waited_for_as_long_as_it_may_work() -> None:
    older = member("s", 2, instance="k", round=4, rebalance_timeout_seconds=90.0)
    newer = member("t", 9, instance="k", round=5)
    facts = forming(JOINED[0], older, newer, inline=STATIC)
    assert leader_next(facts) == WaitForChange(190.0)


def test_a_refused_member_is_not_waited_for_and_not_missed() -> None:
    refused = assignment("c", refusal="the group is full")
    members = *MEMBERS, member("c", 3, round=4)
    facts = settled(*members, inline={**ROSTER, "c": refused})
    assert leader_next(facts) == WaitForChange()
    assert leader_next(facts.saw_group(MEMBERS)) == WaitForChange()
    preparing = forming(*JOINED, members[2], inline={**ROSTER, "c": refused})
    facts = preparing.saw_group(preparing.members, linearizable=True)
    step = leader_next(facts)
    assert isinstance(step, Assign)
    published = facts.assigning(step.vote).assigned({}, follow_up=False).formation
    assert published is not None
    assert published.assignments is not None
    assert published.assignments["c"] == refused


@pytest.mark.case("K65")
@pytest.mark.parametrize("cooperative", [False, True])
def test_a_member_that_is_refused_with_its_items_may_work_until_its_deadline(
    *, cooperative: bool
) -> None:
    other = member("b", 2, round=5, protocols=("q",), cooperative=cooperative)
    facts = forming(JOINED[0], other)
    step = leader_next(facts.saw_group((JOINED[0], other), linearizable=True))
    assert isinstance(step, Assign)
    facts = facts.assigning(step.vote).assigned({"a": b"all"}, follow_up=False)
    if cooperative:
        assert leader_next(facts) == WaitForChange(160.0)
        facts = after(facts, 60.0)
    new = written(leader_next(facts)).inline
    assert (new["a"].share, bool(new["b"].refusal)) == (b"all", True)


def test_a_refused_instance_that_joins_again_is_a_newcomer() -> None:
    refused = assignment("c", nonce="an earlier join", refusal="the group is full")
    for again in (member("c", 3, round=5), member("d", 3, instance="c", round=0)):
        facts = settled(*MEMBERS, again, inline={**ROSTER, "c": refused})
        assert leader_next(facts) == WaitForChange(100.1)


# -- publishing


def assigning(*members: PresentMember, **fields: Any) -> LeaderFacts:
    facts = forming(*(members or JOINED), **fields)
    facts = facts.saw_group(facts.members, linearizable=True)
    step = leader_next(facts)
    assert isinstance(step, Assign)
    return facts.assigning(step.vote)


def published(facts: LeaderFacts, shares: dict[str, bytes]) -> dict[str, Assignment]:
    record = written(leader_next(facts.assigned(shares, follow_up=False)))
    return dict(record.inline)


@pytest.mark.case("K01")
def test_the_commit_publishes_the_next_generation() -> None:
    facts = assigning().assigned({"a": b"1", "b": b"2"}, follow_up=True)
    step = leader_next(facts)
    record = written(step)
    assert (record.generation, record.is_preparing, record.follow_up) == (5, False, True)
    assert (record.protocol_type, record.protocol) == ("test", "p")
    assert record.attempt == f"5.3.{NONCE[:8]}"
    assert {name: one.share for name, one in record.inline.items()} == {"a": b"1", "b": b"2"}
    done = after(facts, 2.0).written(record, Version(12))
    assert done.roster == record.inline
    assert (done.committed_at, done.formation) == (102.0, None)


@pytest.mark.case("K05", "K06")
def test_a_member_without_a_share_gets_nothing_and_a_foreign_share_is_dropped() -> None:
    shares = published(assigning(), {"a": b"1", "foreign": b"2"})
    assert {name: one.share for name, one in shares.items()} == {"a": b"1", "b": b""}


@pytest.mark.case("K69")
def test_since_stays_while_a_cooperative_member_keeps_its_bytes() -> None:
    last = {name: assignment(name, since=2, share=name.encode()) for name in "abc"}
    members = (
        member("a", 1, round=5, cooperative=True),
        member("b", 2, round=5, cooperative=True),
        member("c", 3, round=5),
        member("d", 4, round=5, cooperative=True),
    )
    shares = {"a": b"a", "b": b"other", "c": b"c", "d": b""}
    new = published(assigning(*members, inline=last), shares)
    assert {name: one.since for name, one in new.items()} == {"a": 2, "b": 5, "c": 5, "d": 5}


def test_refusals_are_published_with_their_reason() -> None:
    odd = member("c", 3, round=5, protocols=["q"])
    new = published(assigning(*JOINED, odd), {"a": b"1", "b": b"2", "c": b"3"})
    assert "none of the protocols" in new["c"].refusal
    assert (new["c"].share, new["c"].nonce) == (b"", odd.record.nonce)


def test_assignments_mark_standby_members() -> None:
    members = JOINED[0], member("b", 2, round=5, eligible=False)
    new = published(assigning(*members), {})
    assert {name: one.is_standby for name, one in new.items()} == {"a": True, "b": False}


@pytest.mark.case("K64")
def test_all_parts_are_stored_before_the_commit() -> None:
    rules = replace(RULES, limits=PackingLimits(inline_bytes=0))
    facts = replace(assigning(), rules=rules).assigned({"a": b"1", "b": b"2"}, follow_up=False)
    step = leader_next(facts)
    assert isinstance(step, PutParts)
    assert step.attempt == f"5.3.{NONCE[:8]}"
    record = written(leader_next(facts.stored()))
    assert (record.parts, record.inline, record.attempt) == (1, {}, step.attempt)
    done = facts.stored().written(record, Version(12))
    assert done.roster is not None
    assert done.roster.keys() == {"a", "b"}


@pytest.mark.case("K55")
def test_an_attempt_without_an_answer_is_abandoned_and_the_state_read() -> None:
    rules = replace(RULES, limits=PackingLimits(inline_bytes=0))
    facts = replace(assigning(), rules=rules).assigned({}, follow_up=False)
    first = leader_next(facts)
    again = replace(facts, nonce="fedcba9876543210").abandoned()
    assert leader_next(again) == ReadState()
    again = again.read(StateReading(mine(4, preparing=True), Version(10)))
    second = leader_next(again)
    assert isinstance(first, PutParts)
    assert isinstance(second, PutParts)
    assert second.attempt == "5.3.fedcba98"
    assert second.parts == first.parts


@pytest.mark.case("K50")
def test_a_commit_without_an_answer_is_recognised_by_its_attempt() -> None:
    facts = assigning().assigned({"a": b"1"}, follow_up=False)
    record = written(leader_next(facts))
    unknown = facts.unread()
    assert leader_next(unknown) == ReadState()
    done = unknown.read(StateReading(record, Version(12)))
    assert done.roster == record.inline
    other_s = unknown.read(StateReading(mine(5, epoch=4, leader="b"), Version(12)))
    assert other_s.roster == ROSTER
    not_done = unknown.read(StateReading(mine(4, preparing=True), Version(10)))
    assert written(leader_next(not_done)).attempt == record.attempt


@pytest.mark.case("K73")
@pytest.mark.parametrize("shares", [None, {"a": b"1"}])
def test_a_generation_that_is_formed_is_dropped_once_the_state_is_gone(
    shares: dict[str, bytes] | None,
) -> None:
    facts = assigning()
    if shares is not None:
        facts = facts.assigned(shares, follow_up=False)
    gone = after(facts, 30.0).unread().read(StateReading(None, None))
    assert gone.formation is None
    state = written(leader_next(after(gone, 60.0)))
    assert (state.generation, state.is_preparing) == (0, True)
    joined = [one._replace(record=replace(one.record, round=1)) for one in JOINED]
    facts = after(gone, 60.0).written(state, Version(2)).saw_group(joined, linearizable=True)
    step = leader_next(facts)
    assert isinstance(step, Assign)
    record = written(leader_next(facts.assigning(step.vote).assigned({}, follow_up=False)))
    assert (record.generation, record.history) == (1, state.history)


@pytest.mark.case("K73")
def test_a_generation_that_is_formed_is_dropped_in_another_round() -> None:
    facts = after(assigning(), 30.0).unread()
    restored = facts.read(StateReading(mine(2, preparing=True), Version(2)))
    assert (restored.formation, restored.began_at) == (None, restored.now)
    assert leader_next(restored.cleaned_up(2)) == WaitForChange(restored.now + 60.0)


@pytest.mark.case("K07")
@pytest.mark.parametrize(
    ("facts", "why"),
    [
        (assigning().failed("ValueError: no"), "ValueError: no"),
        (after(assigning(), 60.0), "not performed in time"),
        (assigning().assigned({"b": b"x" * 300_000}, follow_up=False), "member 'b' has 300000"),
    ],
)
def test_a_leader_whose_assignment_fails_resigns_and_does_not_stand(
    facts: LeaderFacts, why: str
) -> None:
    step = leader_next(facts)
    assert isinstance(step, Resign)
    assert why in step.reason
    assert step.barred_seconds == 60.0


@pytest.mark.case("K07")
def test_an_assignment_that_comes_too_late_is_dropped() -> None:
    assert leader_next(assigning()) == WaitForChange(160.0)
    done = assigning().assigned({"a": b"1"}, follow_up=False)
    assert done.assigned({"a": b"2"}, follow_up=False) == done
    assert BLANK.assigned({}, follow_up=False) == BLANK


@pytest.mark.case("K71")
def test_parts_are_cleaned_once_for_each_generation_and_while_waiting() -> None:
    assert leader_next(led(mine(4), *MEMBERS)) == CleanParts(4)
    assert leader_next(led(mine(4), *MEMBERS).cleaned_up(4)) == WaitForChange()
    assert leader_next(led(mine(4, preparing=True), *MEMBERS)) == CleanParts(4)


@pytest.mark.case("K25")
def test_a_member_that_left_because_it_was_silent_costs_one_round() -> None:
    left = settled(*MEMBERS).saw_group(MEMBERS[:1])
    begun = written(leader_next(after(left, 0.1)))
    facts = after(left, 0.1).written(begun, Version(11))
    facts = facts.saw_group(JOINED[:1], linearizable=True)
    step = leader_next(facts)
    assert isinstance(step, Assign)
    facts = facts.assigning(step.vote).assigned({"a": b"1"}, follow_up=False)
    done = facts.written(written(leader_next(facts)), Version(12)).cleaned_up(5)
    assert leader_next(done) == WaitForChange()
