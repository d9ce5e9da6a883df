"""Connect: the scenarios of Kafka's IncrementalCooperativeAssignorTest, and random ones.

A test that follows one of Kafka's names it.
"""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip30.coordinator.assignors import (
    ConnectState,
    EagerConnectAssignor,
    IncrementalConnectAssignor,
    WorkUnit,
)
from kip30.coordinator.assignors.connect import ConnectAssignment
from tests.unit.coordinator.assignors.cases import Case, of_kind
from tests.unit.coordinator.assignors.connect_rounds import ConnectRounds

DELAY = 300.0
TWO = {"c1": 4, "c2": 4}
THREE = {"c1": 4, "c2": 4, "c3": 4}


def rounds_of(*workers: str, configured: dict[str, int], delay: float = DELAY) -> ConnectRounds:
    rounds = ConnectRounds(IncrementalConnectAssignor(max_delay_seconds=delay), configured)
    rounds.members(*workers)
    return rounds


@pytest.mark.parametrize("case", of_kind("tasks-eager"))
def test_eager(case: Case) -> None:
    assigned = EagerConnectAssignor().assign(case["jobs"], case["members"])
    assert {
        worker: {
            "jobs": [unit.connector for unit in units if not unit.is_task],
            "tasks": [f"{unit.connector}-{unit.number}" for unit in units if unit.is_task],
        }
        for worker, units in assigned.items()
    } == case["expect"]


@pytest.mark.parametrize("case", of_kind("tasks-incremental"))
def test_incremental(case: Case) -> None:
    delay = case["max_delay"] and DELAY
    times = {0: 0.0, "D": delay, "D/2": delay / 2, "D/2+1": delay / 2 + 1}
    rounds = rounds_of(configured=case["jobs"], delay=delay)
    for step in case["steps"]:
        rounds.members(*step["workers"])
        done = rounds.run()
        if "delay" in step:
            assert done.delay_seconds == times[step["delay"]]
        if "job_counts" in step:
            assert (rounds.connectors, rounds.tasks) == (step["job_counts"], step["task_counts"])
        if step.get("no_change"):
            assert not any(done.started.values())
        if step.get("no_change") or step.get("revocations") == 0:
            assert not any(done.revoked.values())
        rounds.now_seconds += times[step.get("then_advance", 0)]


def test_work_for_a_new_worker_is_revoked_before_it_is_assigned() -> None:
    """Follow testTaskAssignmentWhenWorkerJoins."""
    rounds = rounds_of("w1", configured=TWO)
    rounds.run()
    rounds.members("w1", "w2")
    assert rounds.run().delay_seconds == 0
    assert (rounds.connectors, rounds.tasks) == ([0, 1], [0, 4])
    rounds.run()
    assert (rounds.connectors, rounds.tasks) == ([1, 1], [4, 4])
    assert rounds.rests()


def test_lost_work_waits_for_its_worker_to_return() -> None:
    """Follow testTaskAssignmentWhenWorkerBounces."""
    rounds = rounds_of("w1", "w2", configured=TWO)
    rounds.run()
    before = set(rounds.doing["w2"])
    rounds.members("w1")
    assert rounds.run().delay_seconds == DELAY
    rounds.now_seconds += DELAY / 2
    rounds.members("w1", "w2")
    done = rounds.run()
    assert (done.delay_seconds, rounds.tasks) == (DELAY / 2, [0, 4])
    rounds.now_seconds += DELAY / 2
    done = rounds.run()
    assert (done.delay_seconds, rounds.doing["w2"]) == (0, before)
    assert not any(done.revoked.values())
    assert rounds.rests()


def test_lost_work_goes_to_the_workers_that_joined_during_the_delay() -> None:
    """Follow testLostAssignmentHandlingWithMoreThanOneCandidates."""
    rounds = rounds_of("w1", "w2", "w3", configured=THREE)
    rounds.run()
    rounds.members("w1", "w3", "w4")
    rounds.run()
    rounds.now_seconds += DELAY / 2
    rounds.members("w1", "w2", "w3", "w4")
    rounds.run()
    rounds.configured["c4"] = 2
    rounds.run()
    assert rounds.tasks == [1, 1, 4, 4]
    rounds.now_seconds += DELAY / 2
    done = rounds.run()
    started = {worker: len(units) for worker, units in done.started.items()}
    assert started == {"w1": 0, "w2": 2, "w3": 0, "w4": 3}
    assert (rounds.connectors, rounds.tasks) == ([1, 1, 1, 1], [3, 3, 4, 4])


def test_a_worker_that_came_back_gets_what_is_lost_though_it_got_other_work_first() -> None:
    rounds = rounds_of("w1", "w2", "w3", configured={"c1": 6})
    rounds.run()
    before = {unit for unit in rounds.doing["w2"] if unit.is_task}
    for workers in (("w1", "w3"), ("w1", "w2", "w3")):
        rounds.members(*workers)
        rounds.run()
    rounds.configured["c2"] = 1
    rounds.run()
    rounds.run()
    rounds.now_seconds += DELAY
    rounds.run()
    assert rounds.doing["w2"] == {*before, WorkUnit("c2"), WorkUnit("c2", 0)}


def test_a_worker_that_came_back_gets_no_more_of_what_is_lost_than_its_even_part() -> None:
    rounds = rounds_of("w1", "w2", configured=TWO)
    rounds.run()
    rounds.members("w1")
    rounds.run()
    rounds.now_seconds += DELAY / 2
    rounds.members("w1", "w2")
    rounds.configured["c3"] = 2
    rounds.run()
    assert rounds.tasks == [2, 4]
    rounds.now_seconds += DELAY / 2
    rounds.members("w1", "w2", "w3")
    done = rounds.run()
    assert not any(done.revoked.values())
    assert (rounds.connectors, rounds.tasks) == ([1, 1, 1], [3, 3, 4])


def test_nothing_is_held_back_without_a_delay() -> None:
    """Follow testScheduledDelayIsDisabled."""
    rounds = rounds_of("w1", "w2", configured=TWO, delay=0.0)
    rounds.run()
    rounds.members("w1")
    assert rounds.run().delay_seconds == 0
    assert (rounds.connectors, rounds.tasks) == ([2], [8])


def test_nothing_is_held_back_if_another_leader_has_formed_a_generation() -> None:
    rounds = rounds_of("w1", "w2", configured=TWO)
    rounds.run()
    rounds.completed += 1
    rounds.members("w1")
    assert rounds.run().delay_seconds == 0
    assert (rounds.connectors, rounds.tasks) == ([2], [8])


def test_nothing_is_held_back_if_the_last_revocation_reached_no_worker() -> None:
    rounds = rounds_of("w1", "w2", configured=TWO)
    rounds.run()
    rounds.members("w1", "w2", "w3")
    rounds.assign()
    rounds.completed += 1
    rounds.members("w1", "w3")
    rounds.run()
    assert (rounds.connectors, rounds.tasks) == ([1, 1], [4, 4])


def test_the_delay_ends_when_a_worker_comes_back_with_its_work() -> None:
    rounds = rounds_of("w1", "w2", configured=TWO)
    rounds.run()
    rounds.members("w1", "w2", "w3")
    assert any(rounds.run().revoked.values())
    doing = rounds.doing["w2"]
    rounds.members("w1", "w3")
    assert rounds.run().delay_seconds == DELAY
    rounds.members("w1", "w2", "w3")
    rounds.doing["w2"] = doing
    assert rounds.run().delay_seconds == 0


def test_lost_work_goes_to_the_remaining_worker_if_its_worker_leaves_again() -> None:
    """Follow testLostAssignmentHandlingWhenWorkerBouncesBackButFinallyLeaves."""
    rounds = rounds_of("w1", "w2", configured=TWO)
    rounds.run()
    for workers in (("w1",), ("w1", "w2"), ("w1",)):
        rounds.members(*workers)
        rounds.run()
        rounds.now_seconds += DELAY / 2
    assert (rounds.connectors, rounds.tasks) == ([2], [8])


def test_a_new_leader_deals_what_is_lost_at_once() -> None:
    """Follow testTaskAssignmentWhenLeaderBounces."""
    rounds = rounds_of("w1", "w2", "w3", configured=TWO)
    rounds.run()
    assert (rounds.connectors, rounds.tasks) == ([0, 1, 1], [2, 3, 3])
    rounds.members("w2", "w3")
    rounds.new_leader()
    assert rounds.run().delay_seconds == 0
    assert (rounds.connectors, rounds.tasks) == ([1, 1], [4, 4])
    rounds.members("w1", "w2", "w3")
    rounds.run()
    assert (rounds.connectors, rounds.tasks) == ([0, 1, 1], [0, 3, 3])
    rounds.run()
    assert (rounds.connectors, rounds.tasks) == ([0, 1, 1], [2, 3, 3])


def test_a_round_that_reached_no_worker_is_dealt_again_at_once() -> None:
    """Follow testTaskAssignmentWhenFirstAssignmentAttemptFails."""
    rounds = rounds_of("w1", "w2", configured=TWO)
    rounds.assign()
    rounds.completed += 1
    assert rounds.run().delay_seconds == 0
    assert (rounds.connectors, rounds.tasks) == ([1, 1], [4, 4])


@pytest.mark.parametrize("formed", [0, 1])
def test_a_revocation_that_reached_no_worker_is_put_off_and_repeated(formed: int) -> None:
    """Follow the two of testTaskAssignmentWhenSubsequentAssignmentAttemptFails…"""
    rounds = rounds_of("w1", "w2", configured=TWO)
    rounds.run()
    rounds.members("w1", "w2", "w3")
    rounds.assign()
    rounds.completed += formed
    done = rounds.run()
    assert done.delay_seconds > 0
    assert rounds.tasks == [0, 4, 4]
    rounds.now_seconds += done.delay_seconds
    rounds.run()
    assert (rounds.connectors, rounds.tasks) == ([0, 1, 1], [0, 3, 3])
    rounds.run()
    assert (rounds.connectors, rounds.tasks) == ([0, 1, 1], [2, 3, 3])


def test_revoking_rounds_in_sequence_are_put_off_ever_longer() -> None:
    """Follow testAssignmentsWhenWorkersJoinAfterRevocations."""
    rounds = rounds_of("w1", configured=THREE)
    seen = []
    for count in range(1, 7):
        rounds.members(*(f"w{number}" for number in range(1, count + 1)))
        done = rounds.run()
        seen.append((done.delay_seconds, rounds.connectors, rounds.tasks))
        if count % 2:
            rounds.now_seconds += done.delay_seconds
    assert seen == [
        (0, [3], [12]),
        (0, [0, 2], [0, 6]),
        (pytest.approx(0.04), [0, 1, 2], [3, 3, 6]),
        (0, [0, 0, 1, 1], [0, 3, 3, 3]),
        (pytest.approx(1.6), [0, 0, 1, 1, 1], [1, 2, 3, 3, 3]),
        (0, [0, 0, 0, 1, 1, 1], [0, 1, 2, 2, 2, 2]),
    ]
    rounds.run()
    assert (rounds.connectors, rounds.tasks) == ([0, 0, 0, 1, 1, 1], [2, 2, 2, 2, 2, 2])
    rounds.run()
    assert rounds.state.delayed_rounds == 0


def test_a_revoking_round_is_put_off_by_no_more_than_the_delay() -> None:
    """Follow testSuccessiveRevocationsWhenMaxDelayIsEqualToExpBackOffInitialInterval."""
    rounds = rounds_of("w1", configured=THREE, delay=0.001)
    for workers in (("w1",), ("w1", "w2")):
        rounds.members(*workers)
        rounds.run()
    rounds.members("w1", "w2", "w3")
    assert rounds.run().delay_seconds == pytest.approx(0.001)
    assert (rounds.connectors, rounds.tasks) == ([0, 1, 2], [3, 3, 6])


def test_nothing_is_revoked_while_a_delay_is_running() -> None:
    """Follow testWorkerJoiningDuringDelayedRebalance."""
    rounds = rounds_of("w1", configured=THREE)
    seen = []
    for count in range(1, 6):
        rounds.members(*(f"w{number}" for number in range(1, count + 1)))
        done = rounds.run()
        seen.append((any(done.revoked.values()), rounds.connectors, rounds.tasks))
        rounds.now_seconds += done.delay_seconds / (2 if count == 3 else 1)
    rounds.run()
    assert seen == [
        (False, [3], [12]),
        (True, [0, 2], [0, 6]),
        (False, [0, 1, 2], [3, 3, 6]),
        (False, [0, 0, 1, 2], [0, 3, 3, 6]),
        (True, [0, 0, 0, 1, 1], [0, 0, 2, 3, 3]),
    ]
    assert (rounds.connectors, rounds.tasks) == ([0, 0, 1, 1, 1], [2, 2, 2, 3, 3])


def test_work_of_a_deleted_connector_is_revoked() -> None:
    """Follow testTaskAssignmentWhenConnectorsAreDeleted."""
    rounds = rounds_of("w1", "w2", configured=THREE)
    rounds.run()
    assert (rounds.connectors, rounds.tasks) == ([1, 2], [6, 6])
    del rounds.configured["c3"]
    assert rounds.run().delay_seconds == 0
    assert (rounds.connectors, rounds.tasks) == ([1, 1], [4, 4])


def test_a_new_leader_revokes_what_was_deleted_under_the_former_one() -> None:
    rounds = rounds_of("w1", "w2", configured=THREE)
    rounds.run()
    del rounds.configured["c3"]
    rounds.new_leader()
    rounds.run()
    assert (rounds.connectors, rounds.tasks) == ([1, 1], [4, 4])


def test_work_assigned_to_two_workers_is_revoked_from_both() -> None:
    """Follow testTaskAssignmentWhenTasksDuplicatedInWorkerAssignment."""
    rounds = rounds_of("w1", configured=TWO)
    rounds.run()
    rounds.members("w1", "w2")
    rounds.doing["w2"] = {unit for unit in rounds.doing["w1"] if unit.connector == "c1"}
    rounds.run()
    assert (rounds.connectors, rounds.tasks) == ([0, 1], [0, 4])
    assert not any(rounds.run().revoked.values())
    assert (rounds.connectors, rounds.tasks) == ([1, 1], [4, 4])
    assert rounds.rests()


def test_deleted_work_assigned_to_two_workers_is_revoked_from_both() -> None:
    """Follow testDuplicatedAssignmentHandleWhenTheDuplicatedAssignmentsDeleted."""
    rounds = rounds_of("w1", configured=TWO)
    rounds.run()
    del rounds.configured["c1"]
    rounds.members("w1", "w2")
    rounds.doing["w2"] = {unit for unit in rounds.doing["w1"] if unit.connector == "c1"}
    rounds.run()
    assert (rounds.connectors, rounds.tasks) == ([0, 1], [0, 2])
    rounds.run()
    assert (rounds.connectors, rounds.tasks) == ([0, 1], [2, 2])
    assert rounds.rests()


@given(st.randoms(use_true_random=False), st.sampled_from([0.0, 0.5, DELAY]))
def test_after_any_changes_all_work_is_soon_done_in_even_parts(
    random: Random, delay: float
) -> None:
    """Let workers and connectors come and go, leaders change, rounds fail; then nothing more."""
    rounds = rounds_of("w0", configured={}, delay=delay)
    for _ in range(random.randint(1, 12)):
        rounds.members(*random.sample([f"w{number}" for number in range(6)], random.randint(1, 6)))
        rounds.configured = {f"c{n}": random.randint(0, 4) for n in random.sample(range(4), 3)}
        random.choice([rounds.run, rounds.run, rounds.run, rounds.assign, rounds.new_leader])()
        rounds.now_seconds += random.choice([0.0, 0.0, delay / 2, delay])
    for _ in range(6):
        rounds.now_seconds += rounds.run().delay_seconds
    done = sorted(unit for units in rounds.doing.values() for unit in units)
    assert done == sorted(
        WorkUnit(name, number)
        for name, tasks in rounds.configured.items()
        for number in range(-1, tasks)
    )
    for counts in (rounds.connectors, rounds.tasks):
        assert counts[-1] - counts[0] <= 1
    assert rounds.rests()


def test_work_of_an_absent_worker_that_others_get_need_not_stop_first() -> None:
    assignor = IncrementalConnectAssignor(max_delay_seconds=0)
    configured = dict.fromkeys(("a", "b", "c", "d"), 0)
    units = [WorkUnit(name) for name in configured]
    workers = {"away": units, "new": list[WorkUnit]()}

    def assigned(*absent: str) -> ConnectAssignment:
        return assignor.assign(
            configured, workers, absent=absent, state=ConnectState(), completed=1, now_seconds=0.0
        )

    done = assigned("away")
    assert (done.started["new"], done.revoked["away"]) == (units[2:], units[2:])
    assert done.state.revoked == frozenset()
    waits = assigned()
    assert (waits.started["new"], waits.revoked["away"]) == ([], units[2:])
