"""Commands for shares: their environment, and their end with their share."""

import errno
import os
import resource
import signal
from collections.abc import Generator
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from kip30.errors import InvalidNameError, UsageError
from kip30.runner import WAITED_STATUS, Ending, ShareJob, run_shares
from kip30.runner.pauses import GuardPauses, Pauses
from kip30.runner.share_job import MAX_SHARE_BYTES
from kip30.runner.spare_guard import SpareGuard
from kip30_conformance.polling import time_scale

from .field import (
    TIMEOUT,
    Started,
    children,
    eventually,
    fail_spawns,
    is_running,
    is_waiting,
    parent,
    spare_of,
)
from .share_field import NO_LOOK, ShareField, Work
from .tiny_share_runner import FileWorkshare, ShareFile

SH = ("sh", "-c")
CLEANING = round(300_000 * time_scale())  # microseconds
LONG = 100 * TIMEOUT * time_scale()
SHOW = """
echo "$KIP30_GROUP,$KIP30_MEMBER,$KIP30_GENERATION,$KIP30_GUARD,${KIP30_EPOCH-none}"
echo "${KIP30_SHARE-none}"
cat "$KIP30_SHARE_FILE"
"""


@pytest.fixture
def field(tmp_path: Path) -> Generator[ShareField]:
    field = ShareField(tmp_path)
    yield field
    field.close()


def test_a_command_finds_its_share_in_the_environment(
    field: ShareField, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KIP30_EPOCH", raising=False)
    field.give(7, "a", "b:c", "ü")
    output = field.start(*SH, SHOW).output()[0].splitlines()
    assert output[0] == "a group,the member,7,a=20group:the=3Akey:the=20member:7,none"
    assert output[1:] == ["a b:c ü", "a", "b:c", "ü"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may take another user id")
@pytest.mark.parametrize("file", ["-", "/dev/stdin"])
def test_a_command_that_changes_its_user_reads_its_share_from_stdin(
    field: ShareField, file: str
) -> None:
    field.give(1, "a b", "c")
    other = f"setpriv --reuid 65534 --clear-groups cat {file}"
    runner = field.start(*SH, f'exec {other} < "$KIP30_SHARE_FILE"')
    assert runner.output()[0].splitlines() == ["a b", "c"]
    assert runner.wait() == 0


@pytest.mark.parametrize(
    "items",
    [["a b", "c"], ["a\tb"], ["x" * 99] * 700],
    ids=["blank", "tab", "too long"],
)
def test_a_share_that_fits_no_variable_is_in_the_file(
    field: ShareField, monkeypatch: pytest.MonkeyPatch, items: list[str]
) -> None:
    monkeypatch.setenv("KIP30_SHARE", "of an outer runner")
    field.give(1, *items)
    assert field.start(*SH, SHOW).output()[0].splitlines()[1:] == ["none", *items]


def test_a_share_of_the_longest_variable_is_in_it(field: ShareField) -> None:
    items = ["x" * 1023] * 64
    assert len(" ".join(items)) == MAX_SHARE_BYTES - 1
    field.give(1, *items)
    assert field.start(*SH, 'echo "$KIP30_SHARE"').output()[0].split() == items


@pytest.mark.parametrize("item", ["", "a\nb", "a\0b"])
def test_an_item_that_is_no_line_is_refused(field: ShareField, item: str) -> None:
    field.give(1, "a", item)
    runner = field.start(*SH, "exit 0")
    assert "an item must be one line" in runner.output()[1]
    assert field.times("gave-up-1")
    assert field.times("left")
    assert not field.work()


def test_the_file_cannot_be_changed(field: ShareField) -> None:
    field.give(1, "a")
    script = 'echo b > "$KIP30_SHARE_FILE"; echo b >> "$KIP30_SHARE_FILE"; cat "$KIP30_SHARE_FILE"'
    assert field.start(*SH, script).output()[0] == "a\n"


@pytest.mark.parametrize(("script", "status"), [("exit 0", 0), ("exit 3", 3), ("kill -9 $$", 137)])
def test_the_end_of_the_command_is_the_end_of_the_run(
    field: ShareField, script: str, status: int
) -> None:
    field.give(1, "a")
    assert field.start(*SH, script).wait() == status
    assert field.times("gave-up-1") < field.times("left")


def test_a_changed_share_is_given_up_after_the_grace_and_before_the_next(
    field: ShareField,
) -> None:
    runner = field.start(field.worker, "slow", CLEANING)
    field.give(1, "a", "b")
    field.await_work(1)
    field.give(2, "a")
    field.await_work(2)
    steps = [field.await_event(word) for word in ("asked", "clean", "gave-up-1")]
    work = field.work()
    last, first = last_of(work, 1), first_of(work, 2)
    assert steps[0] < last.time <= steps[2] < first.time
    assert steps == sorted(steps)
    assert is_running(runner.pid)


def test_all_descendants_are_gone_before_a_share_is_given_up(field: ShareField) -> None:
    field.give(1, "a", "b")
    field.start(field.worker, "tree", options=("--grace=0.2",))
    pids = {work.pid for work in field.await_work(1, 4)}
    field.give(2, "b")
    given_up = field.await_event("gave-up-1")
    assert not any(is_running(pid) for pid in pids)
    field.await_work(2)
    assert last_of(field.work(), 1).time < given_up < first_of(field.work(), 2).time


def test_a_member_without_a_share_runs_nothing(field: ShareField) -> None:
    field.give(1, "a")
    runner = field.start()
    field.await_work(1)
    field.give(2)
    field.await_event("gave-up-1")
    runner.await_line("waiting for a share")
    count = len(field.work())
    field.give(3, "a")
    field.await_work(3)
    assert {work.generation for work in field.work()[count:]} == {3}


def test_a_share_that_stays_leaves_its_command_alone(field: ShareField) -> None:
    field.give(1, "a")
    field.start()
    pid = field.await_work(1)[0].pid
    for renewed in (True, False, True):
        field.give(1, "a", renewed=renewed)
        wanted = len(field.work()) + 50
        eventually(partial(has_done, field, wanted))
    assert {work.pid for work in field.work()} == {pid}
    assert not field.times("gave-up-1")


def test_a_lost_share_ends_its_command_without_any_grace(field: ShareField) -> None:
    field.give(1, "a")
    runner = field.start(field.worker, "slow", 100 * CLEANING)
    pid = field.await_work(1)[0].pid
    field.give(1, "a", lost=True)
    runner.await_line("the share was lost")
    assert not is_running(pid)
    field.await_event("gave-up-1")
    assert not field.times("clean")
    field.give(2, "a")
    field.await_work(2)


def test_a_share_that_is_not_renewed_ends_its_command_in_time(field: ShareField) -> None:
    field.give(1, "a", renewed=False)
    field.start(field.worker, "tree")
    begin = field.await_work(1, 4)[0].time
    field.await_event("gave-up-1")
    assert last_of(field.work(), 1).time < begin + TIMEOUT * time_scale()


def test_a_stopped_runner_s_command_ends_in_time(field: ShareField) -> None:
    field.give(1, "a")
    runner = field.start(field.worker, "tree")
    pids = {work.pid for work in field.await_work(1, 4)}
    runner.send(signal.SIGSTOP)
    eventually(lambda: not any(is_running(pid) for pid in pids))
    field.give(2, "a")
    runner.send(signal.SIGCONT)
    field.await_work(2)
    assert last_of(field.work(), 1).time < field.await_event("gave-up-1")


def test_a_killed_runner_s_command_is_gone(field: ShareField) -> None:
    field.give(1, "a")
    runner = field.start(field.worker, "tree")
    pids = {work.pid for work in field.await_work(1, 4)}
    runner.send(signal.SIGKILL)
    eventually(lambda: not any(is_running(pid) for pid in pids))


def test_a_killed_guard_s_command_runs_again_for_the_same_share(field: ShareField) -> None:
    field.give(1, "a")
    runner = field.start(field.worker, "tree")
    pids = {work.pid for work in field.await_work(1, 4)}
    os.kill(runner.guard, signal.SIGKILL)
    runner.await_line("killed with its guard")
    assert not any(is_running(pid) for pid in pids)
    eventually(lambda: len({work.pid for work in field.work()} - pids) == 4)
    assert not field.times("gave-up-1")


def test_a_share_that_is_not_renewed_has_no_killed_guard(field: ShareField) -> None:
    field.give(1, "a")
    runner = field.start()
    field.await_work(1)
    field.give(1, "a", renewed=False)
    assert runner.process.stderr
    line = next(one for one in runner.process.stderr if one.startswith("generation 1: "))
    # The guard ends the command some time before the lease ends.
    assert line in {
        "generation 1: the lease was not renewed in time\n",
        "generation 1: the share was lost\n",
    }


def test_a_command_ends_by_notice_that_its_share_is_wanted_back(field: ShareField) -> None:
    field.give(1, "a")
    field.start(options=("--look=3600",), timeout=NO_LOOK)
    field.await_work(1)
    field.give(2, "a")
    field.await_work(2)


def test_a_command_ends_by_notice_that_its_share_is_lost(field: ShareField) -> None:
    field.give(1, "a")
    runner = field.start(options=("--look=3600",), timeout=NO_LOOK)
    field.await_work(1)
    field.give(1, "a", lost=True)
    runner.await_line("the share was lost")


def test_a_guard_is_there_before_the_share(field: ShareField) -> None:
    runner = field.start()
    guard = runner.guard
    field.give(1, "a")
    assert parent(field.await_work(1)[0].pid) == guard


def test_the_next_guard_is_there_while_the_command_runs(field: ShareField) -> None:
    runner = field.start()
    for generation in (1, 2, 3):
        field.give(generation, "a")
        spare = spare_of(runner, parent(field.await_work(generation)[0].pid))
        field.give(generation + 1, "a")
        assert parent(field.await_work(generation + 1)[0].pid) == spare


@pytest.mark.parametrize("is_working", [False, True], ids=["waiting", "running"])
def test_a_spare_guard_that_is_killed_is_replaced(field: ShareField, *, is_working: bool) -> None:
    runner = field.start()
    used = 0
    if is_working:
        field.give(1, "a")
        used = parent(field.await_work(1)[0].pid)
    killed = spare_of(runner, used)
    os.kill(killed, signal.SIGKILL)
    replacement = eventually(lambda: next(iter({*children(runner.pid)} - {used, killed}), None))
    field.give(2, "a")
    assert parent(field.await_work(2)[0].pid) == replacement
    assert len({work.pid for work in field.work() if work.generation == 1}) == int(is_working)


def test_a_killed_guard_at_work_leaves_the_spare_one_alone(field: ShareField) -> None:
    field.give(1, "a")
    runner = field.start()
    killed = field.await_work(1)[0].pid
    guard = parent(killed)
    spare = spare_of(runner, guard)
    os.kill(guard, signal.SIGKILL)
    (again,) = eventually(lambda: {work.pid for work in field.work()} - {killed})
    assert parent(again) == spare


@pytest.mark.parametrize("is_working", [False, True], ids=["waiting", "running"])
def test_a_spare_guard_ends_with_its_runner(field: ShareField, *, is_working: bool) -> None:
    runner = field.start()
    used = 0
    if is_working:
        field.give(1, "a")
        used = parent(field.await_work(1)[0].pid)
    spare = spare_of(runner, used)
    runner.send(signal.SIGKILL)
    eventually(lambda: not is_running(spare))


def test_a_spare_guard_ends_with_the_run(field: ShareField) -> None:
    runner = field.start()
    spare = runner.guard
    runner.send(signal.SIGTERM)
    assert runner.wait() == 128 + signal.SIGTERM
    assert not is_running(spare)


def test_a_spare_guard_that_cannot_be_started_fails_only_when_it_is_needed() -> None:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    with SpareGuard(()) as spare:
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, limit[1]))
        try:
            spare.provide()
            assert spare.pids == ()
            with pytest.raises(OSError, match="Too many open files"):
                spare.take()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limit)
        with spare.take() as guard:
            assert guard.is_alive()


def test_a_command_is_run_again_after_growing_pauses(field: ShareField) -> None:
    field.give(1, "a")
    script = 'echo "1 $$ $(date +%s.%N)" >> "$KIP30_TEST_LOG"; exit 3'
    runner = field.start(*SH, script, options=("--restart",))
    runs = field.await_work(1, 3)
    assert [round(b.time - a.time) for a, b in pairwise(runs[:3])] >= [1, 2]
    assert not field.times("gave-up-1")
    assert is_running(runner.pid)


@pytest.mark.parametrize("options", [(), ("--restart",)])
def test_a_command_that_cannot_be_started_for_a_shortage_is_retried_with_its_share(
    field: ShareField, options: tuple[str, ...]
) -> None:
    runner = field.start(options=options)
    resource.prlimit(awaited_guard(runner), resource.RLIMIT_NOFILE, (3, 3))
    field.give(1, "a")
    runner.await_line("cannot start the command: Too many open files")
    runner.await_line("running the command again in 1 s")
    field.await_work(1)
    assert not field.times("gave-up-1")


def awaited_guard(runner: Started) -> int:
    """Return the guard of *runner*, once it awaits the order to start."""
    return eventually(lambda: next(filter(is_waiting, children(runner.pid)), None))


def test_a_guard_that_cannot_be_started_for_a_shortage_is_retried_with_its_share(
    field: ShareField, monkeypatch: pytest.MonkeyPatch
) -> None:
    field.give(1, "a")
    said, job = list[str](), ShareJob(group="g", command=["sh", "-c", "exit 7"])
    fail_spawns(monkeypatch, errno.EAGAIN, times=2)  # that of the spare guard, and the next one
    share = FileWorkshare(ShareFile(field.folder), LONG)
    outcome = run_shares(share, job, say=said.append)
    assert (outcome.ending, outcome.status) == (Ending.COMMAND_ENDED, 7)
    assert said[2:4] == [
        f"cannot start the command: {os.strerror(errno.EAGAIN)}",
        "running the command again in 1 s",
    ]


def test_a_share_is_given_up_in_the_pause(field: ShareField) -> None:
    field.give(1, "a")
    runner = field.start(*SH, "exit 3", options=("--restart",))
    runner.await_line("again in 1 s")
    runner.await_line("again in 2 s")
    runner.await_line("again in 4 s")
    field.give(2, "a")
    runner.await_line("generation 2")
    runner.await_line("again in 1 s")
    assert field.times("gave-up-1")


def test_pauses_double_up_to_a_minute_and_restart_after_a_long_run() -> None:
    pauses = Pauses()
    assert [pauses.after(1.0) for _ in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert pauses.after(61.0) == 1
    assert pauses.after(59.0) == 2


def test_a_guard_is_replaced_soon_unless_it_is_killed_at_once_again_and_again() -> None:
    pauses = GuardPauses()
    assert [pauses.after(0.05) for _ in range(11)] == [
        *(0.1 * 2**nth for nth in range(10)),
        60,
    ]
    assert pauses.after(59.0) == 60
    assert pauses.after(61.0) == pytest.approx(0.1)
    assert pauses.after(0.3) == pytest.approx(0.1)


@pytest.mark.parametrize("is_paused", [False, True], ids=["running", "paused"])
def test_a_signal_ends_the_run(field: ShareField, *, is_paused: bool) -> None:
    field.give(1, "a")
    command = (*SH, "exit 3") if is_paused else (field.worker, "slow", CLEANING)
    runner = field.start(*command, options=("--restart",))
    if is_paused:
        runner.await_line("again in 4 s")
    else:
        field.await_work(1)
    runner.send(signal.SIGTERM)
    assert runner.wait() == (128 + signal.SIGTERM if is_paused else 0)
    assert field.times("gave-up-1") < field.times("left")
    assert bool(field.times("clean")) is not is_paused


def test_a_second_signal_ends_the_grace_of_a_share_that_is_wanted_back(field: ShareField) -> None:
    field.give(1, "a")
    runner = field.start(field.worker, "slow", 100 * CLEANING, timeout=LONG)
    pid = field.await_work(1)[0].pid
    field.give(2, "b")
    field.await_event("asked")
    runner.send(signal.SIGINT)
    runner.send(signal.SIGTERM)
    runner.wait()
    assert not is_running(pid)
    assert not field.times("clean")


def test_the_wait_for_a_share_is_bounded(field: ShareField) -> None:
    assert field.start(options=("--wait=0.2",)).wait() == WAITED_STATUS
    assert field.times("left")


def test_an_outage_is_reported_once_and_does_not_end_the_runner(field: ShareField) -> None:
    field.give(0, down=True)
    runner = field.start(*SH, "exit 4")
    runner.await_line("waiting for the store: it is down")
    field.give(1, "a")
    _, rest = runner.output()
    assert "waiting for the store" not in rest
    assert runner.wait() == 4


@pytest.mark.parametrize(("program", "status"), [("no-such-program", 127), ("/", 126)])
def test_a_program_that_cannot_be_executed_takes_no_share(
    field: ShareField, program: str, status: int
) -> None:
    field.give(1, "a")
    assert field.start(program).wait() == status
    assert not field.times("gave-up-1")


def test_a_job_of_shares_is_checked() -> None:
    with pytest.raises(UsageError, match="no command"):
        ShareJob(group="g", command=[])
    with pytest.raises(UsageError, match="cannot contain a NUL"):
        ShareJob(group="g", command=["echo", "a\0b"])
    with pytest.raises(UsageError, match="grace"):
        ShareJob(group="g", command=["true"], grace_seconds=-1)
    with pytest.raises(InvalidNameError):
        ShareJob(group="g\0", command=["true"])


def has_done(field: ShareField, wanted: int) -> bool:
    return len(field.work()) >= wanted


def first_of(work: list[Work], generation: int) -> Work:
    return min((one for one in work if one.generation == generation), key=lambda one: one.time)


def last_of(work: list[Work], generation: int) -> Work:
    return max((one for one in work if one.generation == generation), key=lambda one: one.time)


def test_a_signal_that_asks_for_no_end_reaches_the_command(field: ShareField) -> None:
    field.give(1, "a")
    script = "trap 'echo told; exit 4' USR1; echo up; while :; do sleep 0.01; done"
    runner = field.start(*SH, script, timeout=LONG)
    assert runner.process.stdout
    assert runner.process.stdout.readline() == "up\n"
    runner.send(signal.SIGUSR1)
    assert runner.output()[0] == "told\n"
    assert runner.process.returncode == 4
