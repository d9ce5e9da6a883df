"""The grace of a command's descendants: when it begins, who gets it, and what cuts it short."""

import os
import signal
import time
from collections.abc import Callable

import pytest

from kip30.runner import LOST_STATUS
from kip30_conformance.polling import time_scale

from .field import TIMEOUT, Field, Started, eventually, is_running
from .tiny_runner import CLOCK

SH = ("sh", "-c")
LONG = 100 * TIMEOUT * time_scale()
CLEANING = round(400_000 * time_scale())  # microseconds
FOR_EVER = 3_600_000_000
NEVER_KILL = ("--grace", "3600")
MANY = 150

# Asked to end, it starts a helper and waits for it, as a wrapper does that calls a database's stop.
HELPED = """#!/bin/bash
note() { echo "$1 $BASHPID" >> "$KIP30_TEST_NOTES"; }
clean_up() {
    setsid bash -c 'trap "echo struck $$ >> $KIP30_TEST_NOTES" TERM; sleep 0.3; sleep 0.3'
    note clean
    exit 0
}
trap clean_up TERM
note up
while :; do sleep 0.01; done
"""
# Asked to end, it leaves a daemon behind and ends.
LEAVING = """#!/bin/bash
note() { echo "$1 $BASHPID" >> "$KIP30_TEST_NOTES"; }
trap 'setsid sleep 1000 > /dev/null 2>&1 & echo "left $!" >> "$KIP30_TEST_NOTES"; exit 0' TERM
note up
while :; do sleep 0.01; done
"""
# Asked to end, it starts itself again and ends.
RESTARTING = """#!/bin/bash
trap 'echo "again $$" >> "$KIP30_TEST_NOTES"; (setsid "$0" > /dev/null 2>&1 &); exit 0' TERM
echo "up $$" >> "$KIP30_TEST_NOTES"
while :; do sleep 0.01; done
"""
# Does next to nothing, so that there can be many.
QUIET = """#!/bin/bash
exec 9<> <(:)
trap 'echo "clean $$" >> "$KIP30_TEST_NOTES"; exit 0' TERM
echo "up $$" >> "$KIP30_TEST_NOTES"
while :; do read -u 9; done
"""


@pytest.mark.case("W14")
@pytest.mark.parametrize(
    "start",
    [
        "{cleaner} {us} & wait",
        "setsid {cleaner} {us} & wait",
        "(setsid {cleaner} {us} &); exec sleep 1000",
        "{cleaner} {us}; true",
    ],
    ids=["in the group", "in another session", "adopted", "in the foreground"],
)
def test_descendants_keep_the_grace_when_the_first_process_ends(field: Field, start: str) -> None:
    script = start.format(cleaner=field.cleaner, us=CLEANING)
    runner = field.start(*SH, script, timeout=LONG)
    field.await_notes("up")
    field.start(timeout=LONG)
    runner.send(signal.SIGTERM)
    assert runner.wait() == 128 + signal.SIGTERM
    assert len(field.notes("asked")) == len(field.notes("clean")) == 1
    field.await_epoch(2)
    assert field.overlaps() == []


@pytest.mark.case("W15")
@pytest.mark.parametrize("start", ["{} {} &", "(setsid {} {} &)"], ids=["child", "daemon"])
def test_processes_left_behind_are_asked_to_end(field: Field, start: str) -> None:
    left = start.format(field.cleaner, CLEANING)
    script = f"{left}\nuntil [ -s {field.notes_file} ]; do sleep 0.01; done; exit 5"
    runner = field.start(*SH, script, timeout=LONG)
    field.await_notes("up")
    field.start(timeout=LONG)
    assert runner.wait() == 5
    assert len(field.notes("asked")) == len(field.notes("clean")) == 1
    field.await_epoch(2)
    assert field.overlaps() == []


@pytest.mark.case("W14", "W15")
@pytest.mark.parametrize("ends_itself", [False, True])
def test_a_descendant_that_ignores_the_signal_is_killed_after_the_grace(
    field: Field, *, ends_itself: bool
) -> None:
    grace = 0.5 * time_scale()
    first = f"until [ -s {field.log} ]; do sleep 0.01; done; exit 5" if ends_itself else "wait"
    script = f"{field.ticker} stubborn &\n{first}"
    runner = field.start(*SH, script, options=("--grace", str(grace)), timeout=LONG)
    field.await_epoch(1)
    asked = time.time()
    runner.send(0 if ends_itself else signal.SIGTERM)
    assert runner.wait() == (5 if ends_itself else 128 + signal.SIGTERM)
    assert 0.8 * grace < field.ticks()[-1].time - asked
    assert not is_running(field.ticks()[-1].pid)


@pytest.mark.case("W14")
def test_a_stopped_descendant_takes_notice(field: Field) -> None:
    runner = field.start(*SH, f"{field.cleaner} {CLEANING} & wait", timeout=LONG)
    os.kill(field.await_notes("up")[0], signal.SIGSTOP)
    runner.send(signal.SIGTERM)
    assert runner.wait() == 128 + signal.SIGTERM
    assert field.notes("clean")


@pytest.mark.case("W14")
def test_many_descendants_all_keep_the_grace(field: Field) -> None:
    quiet = field.program("quiet", QUIET)
    script = f"for i in $(seq {MANY}); do setsid {quiet} & done; wait"
    runner = field.start(*SH, script, timeout=LONG)
    up = field.await_notes("up", MANY)
    runner.send(signal.SIGTERM)
    assert runner.wait() == 128 + signal.SIGTERM
    assert sorted(field.notes("clean")) == sorted(up)


@pytest.mark.case("W14")
def test_a_helper_started_for_cleaning_up_is_left_alone(field: Field) -> None:
    helped = field.program("helped", HELPED)
    runner = field.start(*SH, f"{helped} & wait", timeout=LONG)
    field.await_notes("up")
    runner.send(signal.SIGTERM)
    assert runner.wait() == 128 + signal.SIGTERM
    assert field.notes("clean")
    assert field.notes("struck") == []


@pytest.mark.case("W14")
def test_a_daemon_started_during_the_grace_is_asked_too(field: Field) -> None:
    leaving = field.program("leaving", LEAVING)
    runner = field.start(*SH, f"{leaving} & wait", options=NEVER_KILL, timeout=LONG)
    field.await_notes("up")
    runner.send(signal.SIGTERM)
    assert runner.wait() == 128 + signal.SIGTERM
    assert not is_running(*field.notes("left"))


@pytest.mark.case("W14")
def test_a_process_that_restarts_itself_ends_with_the_grace(field: Field) -> None:
    restarting = field.program("restarting", RESTARTING)
    grace = str(1.0 * time_scale())
    runner = field.start(*SH, f"{restarting} & wait", options=("--grace", grace), timeout=LONG)
    field.await_notes("up")
    runner.send(signal.SIGTERM)
    assert runner.wait() == 128 + signal.SIGTERM
    assert field.notes("again")
    assert not any(map(is_running, field.notes("up")))


@pytest.mark.case("W14")
def test_zombies_hold_nothing_up(field: Field) -> None:
    runner = field.start("bash", "-c", f"true & echo up $$ >> {field.notes_file}; exec sleep 1000")
    field.await_notes("up")
    runner.send(signal.SIGTERM)
    assert runner.wait() == 128 + signal.SIGTERM


@pytest.mark.case("W14")
def test_a_descendant_that_ignores_sigint_gets_sigterm_after_the_first_process(
    field: Field,
) -> None:
    # A shell starts what runs in the background with SIGINT ignored.
    runner = field.start(*SH, f"{field.cleaner} {CLEANING} & wait", timeout=LONG)
    field.await_notes("up")
    runner.send(signal.SIGINT)
    assert runner.wait() == 128 + signal.SIGINT
    assert field.notes("clean")


@pytest.mark.case("W14")
def test_a_descendant_that_heeds_sigint_gets_no_sigterm(field: Field) -> None:
    runner = field.start(*SH, f"setsid {field.cleaner} {CLEANING} INT; true", timeout=LONG)
    field.await_notes("up")
    runner.send(signal.SIGINT)
    assert runner.wait() == 128 + signal.SIGINT
    assert field.notes("clean")


@pytest.mark.fault
@pytest.mark.case("W14")
def test_a_leadership_that_is_taken_away_ends_the_grace(field: Field) -> None:
    script = f"{field.cleaner} {FOR_EVER} & wait"
    runner = field.start(*SH, script, options=NEVER_KILL, timeout=LONG)
    field.await_notes("up")
    runner.send(signal.SIGTERM)
    field.await_notes("asked")
    field.depose()
    assert runner.wait() == 128 + signal.SIGTERM
    assert field.notes("clean") == []


@pytest.mark.fault
@pytest.mark.case("W14", "W15")
@pytest.mark.parametrize("ends_itself", [False, True])
def test_the_lease_ends_the_grace(field: Field, *, ends_itself: bool) -> None:
    first = f"until [ -s {field.notes_file} ]; do sleep 0.01; done; exit 5"
    script = f"{field.cleaner} {FOR_EVER} &\n{first if ends_itself else 'wait'}"
    runner = field.start(*SH, script, options=("--once", *NEVER_KILL))
    pid = field.await_notes("up")[0]
    runner.send(0 if ends_itself else signal.SIGTERM)
    field.await_notes("asked")
    with field.register.mutex():
        deadline = field.record.deadline
        eventually(lambda: not is_running(pid))
        assert CLOCK.now() < deadline
    assert runner.wait() == (5 if ends_itself else 128 + signal.SIGTERM)


@pytest.mark.fault
def test_a_lost_leadership_gives_descendants_what_the_lease_leaves(field: Field) -> None:
    runner = field.start(*SH, f"{field.cleaner} 0 & wait", options=("--once",))
    field.await_notes("up")
    with field.register.mutex():
        field.await_notes("clean")
    assert runner.wait() == LOST_STATUS


@pytest.mark.fault
@pytest.mark.case("W14")
def test_a_runner_killed_in_the_grace_takes_nothing_of_it_away(field: Field) -> None:
    runner = field.start(*SH, f"{field.cleaner} {CLEANING} & wait", timeout=LONG)
    field.await_notes("up")
    field.start(timeout=LONG)
    runner.send(signal.SIGTERM)
    field.await_notes("asked")
    runner.send(signal.SIGKILL)
    field.await_epoch(2)
    assert len(field.notes("clean")) == 1
    assert field.overlaps() == []


def both_killed(runner: Started, guard: int) -> None:
    runner.send(signal.SIGKILL)
    runner.wait()
    os.kill(guard, signal.SIGKILL)


def runner_killed_guard_stopped(runner: Started, guard: int) -> None:
    os.kill(guard, signal.SIGSTOP)
    runner.send(signal.SIGKILL)


def guard_killed(_runner: Started, guard: int) -> None:
    os.kill(guard, signal.SIGKILL)


@pytest.mark.fault
@pytest.mark.case("W05", "W14")
@pytest.mark.parametrize("strike", [both_killed, runner_killed_guard_stopped, guard_killed])
def test_the_kernel_ends_the_group_in_the_grace_too(
    field: Field, strike: Callable[[Started, int], None]
) -> None:
    runner = field.start(*SH, f"{field.cleaner} {FOR_EVER} & wait", options=NEVER_KILL)
    pid = field.await_notes("up")[0]
    guard = runner.guard
    runner.send(signal.SIGTERM)
    field.await_notes("asked")
    strike(runner, guard)
    eventually(lambda: not is_running(pid))
    field.start()
    field.await_epoch(2)
    assert field.overlaps() == []
