"""Two commands never overlap, despite processes that are killed, stopped or cut off.

A hundred kills and two hundred terms, with the times to the next command:
`pytest tests/unit/runner -m heavy --log-cli-level=INFO`.
"""

import errno
import logging
import os
import resource
import signal
import statistics
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import count, product
from pathlib import Path

import pytest
from typing_extensions import override

from kip30.driver.lease import Lease
from kip30.errors import UnavailableError
from kip30.runner import LOST_STATUS, Ending, Job, run
from kip30_conformance.polling import time_scale

from .field import (
    TIMEOUT,
    Field,
    Started,
    children,
    eventually,
    fail_spawns,
    is_running,
    is_waiting,
)
from .tiny_runner import CLOCK, FileContest, FileTerm

LOG = logging.getLogger(__name__)
LONG = 100 * TIMEOUT * time_scale()
HEAVY = (pytest.mark.heavy, pytest.mark.timeout(600))
Fault = Callable[[Started], None]


def kill_runner(leader: Started) -> None:
    leader.send(signal.SIGKILL)


def kill_guard(leader: Started) -> None:
    os.kill(leader.guard, signal.SIGKILL)


def stop_runner(leader: Started) -> None:
    leader.send(signal.SIGSTOP)


def stop_guard(leader: Started) -> None:
    os.kill(leader.guard, signal.SIGSTOP)


def fail_over(
    field: Field, fault: Fault, rounds: int, timeout: float = TIMEOUT * time_scale()
) -> list[float]:
    """Return the seconds from each of *rounds* faults to the first sign of the next command."""
    spent: list[float] = []
    epoch = 0
    for _ in range(2):
        stand_by(field, timeout)
    for _ in range(rounds):
        epoch = field.await_epoch(epoch + 1, pids=4)[-1].epoch
        leader, began = field.leader(), time.time()
        fault(leader)
        spent.append(field.await_epoch(epoch + 1)[0].time - began)
        if leader.process.poll() is not None:
            stand_by(field, timeout)
    return spent


def stand_by(field: Field, timeout: float) -> None:
    field.start(field.ticker, "tree", timeout=timeout).await_line("waiting to lead")


@pytest.mark.fault
@pytest.mark.case("W03")
@pytest.mark.parametrize(
    ("fault", "rounds"),
    [
        (kill_runner, 3),
        (kill_guard, 3),
        pytest.param(kill_runner, 50, marks=HEAVY),
        # Not more: a runner pauses after each guard that is killed, and each time twice as long.
        pytest.param(kill_guard, 10, marks=HEAVY),
    ],
)
def test_a_kill_leads_to_no_overlap_and_costs_no_timeout(
    field: Field, fault: Fault, rounds: int
) -> None:
    spent = fail_over(field, fault, rounds, timeout=LONG)
    assert field.overlaps() == []
    median = statistics.median(spent)
    assert median < 0.5 * time_scale()
    LOG.info("to the next command: median %.3f s, max %.3f s", median, max(spent))


@pytest.mark.fault
@pytest.mark.case("W05")
@pytest.mark.parametrize("fault", [stop_runner, stop_guard])
def test_a_stopped_process_loses_the_command_before_the_lease(field: Field, fault: Fault) -> None:
    spent = fail_over(field, fault, rounds=1)
    assert spent[0] < 2 * TIMEOUT * time_scale()
    assert field.overlaps() == []


def test_a_guard_that_is_killed_is_no_lost_leadership(field: Field) -> None:
    runner = field.start(timeout=LONG)
    field.await_epoch(1)
    kill_guard(runner)
    runner.await_line("epoch 1 is over: the command was killed with its guard")
    field.await_epoch(2)


@pytest.mark.fault
@pytest.mark.case("W05")
def test_a_woken_runner_goes_back_to_waiting(field: Field) -> None:
    sleeper = field.start()
    field.await_epoch(1)
    sleeper.send(signal.SIGSTOP)
    successor = field.start()
    field.await_epoch(2)
    sleeper.send(signal.SIGCONT)
    sleeper.await_line("leadership was lost")
    sleeper.await_line("waiting to lead")
    successor.send(signal.SIGKILL)
    field.await_epoch(3)
    assert field.leader() is sleeper
    assert field.overlaps() == []


@pytest.mark.fault
@pytest.mark.case("W05")
@pytest.mark.parametrize("numbers", list(product([signal.SIGSTOP, signal.SIGKILL], repeat=2)))
def test_when_both_are_hit_the_kernel_ends_the_process_group(
    field: Field, numbers: tuple[int, int]
) -> None:
    runner = field.start("sh", "-c", f"{field.ticker} & {field.ticker}")
    pids = {tick.pid for tick in field.await_epoch(1, pids=2)}
    guard = runner.guard
    with field.register.mutex():
        deadline = field.record.deadline
        for pid, number in zip((guard, runner.pid), numbers, strict=True):
            os.kill(pid, number)
        eventually(lambda: not any(map(is_running, pids)))
        assert CLOCK.now() < deadline


@pytest.mark.fault
@pytest.mark.case("W06")
@pytest.mark.parametrize(("manner", "farewell"), [("polite", "1 bye\n"), ("stubborn", "")])
def test_a_leader_that_is_cut_off_ends_its_command_in_time(
    field: Field, manner: str, farewell: str
) -> None:
    runner = field.start(field.ticker, manner, options=("--once",))
    pid = field.await_epoch(1)[0].pid
    with field.register.mutex():
        deadline = field.record.deadline
        eventually(lambda: not is_running(pid))
        assert deadline - TIMEOUT * time_scale() / 3 < CLOCK.now() < deadline
    assert runner.wait() == LOST_STATUS
    assert runner.output()[0] == farewell


@pytest.mark.fault
def test_a_runner_that_is_deposed_kills_at_once(field: Field) -> None:
    runner = field.start(field.ticker, "stubborn", options=("--once",), timeout=LONG)
    field.await_epoch(1)
    field.depose()
    assert runner.wait() == LOST_STATUS


@pytest.mark.fault
@pytest.mark.case("W07")
def test_a_stopped_guard_does_not_keep_the_runner_from_ending(field: Field) -> None:
    runner = field.start(field.ticker, "tree", timeout=LONG)
    pids = {tick.pid for tick in field.await_epoch(1, pids=4)}
    stop_guard(runner)
    runner.send(signal.SIGTERM)
    assert runner.wait() == 128 + signal.SIGKILL
    assert not any(map(is_running, pids))


@pytest.mark.fault
def test_a_guard_killed_while_it_waits_is_replaced(field: Field) -> None:
    first = field.start(timeout=LONG)
    field.await_epoch(1)
    second = field.start(options=("--once",), timeout=LONG)
    second.await_line("waiting to lead")
    kill_guard(second)
    second.await_line("waiting to lead")
    kill_runner(first)
    field.await_epoch(2)
    assert field.leader() is second


@pytest.mark.fault
def test_a_guard_killed_at_once_again_and_again_is_replaced_after_growing_pauses(
    field: Field,
) -> None:
    runner = field.start("sleep", "1000", timeout=LONG)
    ends = threading.Event()

    def keep_killing() -> None:
        while not ends.wait(0.001):
            for guard in children(runner.pid):
                with suppress(ProcessLookupError):
                    os.kill(guard, signal.SIGKILL)

    killer = threading.Thread(target=keep_killing)
    killer.start()
    try:
        runner.await_line("killed by SIGKILL (out of memory? see the kernel's log): retry in 0.1 s")
        runner.await_line("retry in 0.2 s")
        runner.await_line("retry in 0.4 s")
    finally:
        ends.set()
        killer.join()
    eventually(lambda: field.record.session)
    runner.send(signal.SIGTERM)
    assert runner.wait() == 128 + signal.SIGTERM


def run_to_second_term(contest: FileContest, *command: str) -> list[str]:
    """Run *command* until it leads for the second time; return the lines of progress."""
    said = list[str]()

    def say(line: str) -> None:
        said.append(line)
        if line.startswith("leading s, epoch 2"):
            os.kill(os.getpid(), signal.SIGTERM)

    outcome = run(contest, Job(service="s", candidate="c", command=command), say=say)
    assert outcome.ending is Ending.INTERRUPTED
    return said


class Unrenewed(FileContest):
    """A contest whose store accepts claims, but no renewals: terms share a lease until it ends."""

    _lease: Lease | None = None

    @override
    def _grant(self, epoch: int) -> Lease:
        granted, shared = super()._grant(epoch), self._lease
        if shared is None or not shared.is_valid():
            self._lease = granted
            return granted
        seconds = shared.timeout_seconds
        sent_at = shared.deadline - seconds
        return Lease(CLOCK, sent_at=sent_at, timeout_seconds=seconds, margin_seconds=0)

    @override
    def _renew(self, term: FileTerm) -> None:
        """Do nothing."""


@pytest.mark.fault
def test_no_command_is_started_under_a_lease_that_is_about_to_end(field: Field) -> None:
    contest = Unrenewed(field.folder, TIMEOUT * time_scale())
    said = run_to_second_term(contest, "sleep", "1000")
    assert any(line.startswith("the lease was not renewed in time: retry in") for line in said)


class RenewedLate(FileContest):
    """A contest whose lease is renewed as soon as its command was asked to end, and not before."""

    def __init__(self, folder: Path, timeout: float) -> None:
        self.asked = folder / "asked"
        self.renewed = folder / "renewed"
        super().__init__(folder, timeout)

    @override
    def _renew(self, term: FileTerm) -> None:
        while not self.asked.exists():
            time.sleep(0.01)
        super()._renew(term)
        self.renewed.touch()


@pytest.mark.fault
def test_a_lease_that_was_renewed_after_all_delays_no_command(field: Field) -> None:
    contest = RenewedLate(field.folder, 4 * TIMEOUT * time_scale())
    script = 'trap ": > $0" TERM; until [ -e "$1" ]; do sleep 0.01; done'
    said = run_to_second_term(contest, "sh", "-c", script, str(contest.asked), str(contest.renewed))
    assert not any("retry in" in line for line in said)


class Unanswered(FileContest):
    """A contest whose store does not answer once the command has succeeded."""

    @override
    def note_success(self, goes_on: Callable[[], bool]) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        while goes_on():
            time.sleep(0.01)
        raise UnavailableError("no answer")


@pytest.mark.fault
def test_a_signal_ends_the_attempts_to_note_a_success(field: Field) -> None:
    said = list[str]()
    with pytest.raises(UnavailableError, match="no answer"):
        run(
            Unanswered(field.folder, LONG),
            Job(service="s", candidate="c", command=["true"]),
            say=said.append,
        )
    assert "may run again" in said[-1]
    assert not field.record.session


@pytest.mark.fault
def test_a_signal_ends_the_pause_before_a_guard_is_replaced(field: Field) -> None:
    field.start(timeout=LONG)
    field.await_epoch(1)
    second = field.start(timeout=LONG)
    second.await_line("waiting to lead")
    kill_guard(second)
    second.await_line("retry in")
    second.send(signal.SIGTERM)
    assert second.wait() == 128 + signal.SIGTERM


@pytest.mark.fault
def test_a_guard_that_waits_ends_with_its_runner(field: Field) -> None:
    field.start(timeout=LONG)
    field.await_epoch(1)
    second = field.start(timeout=LONG)
    second.await_line("waiting to lead")
    guard = second.guard
    kill_runner(second)
    eventually(lambda: not is_running(guard))
    assert field.record.epoch == 1


@pytest.mark.fault
@pytest.mark.parametrize("room", [0, 1])
def test_a_guard_that_cannot_hold_order_and_lease_starts_nothing(field: Field, room: int) -> None:
    first = field.start(timeout=LONG)
    field.await_epoch(1)
    second = field.start(timeout=LONG)
    guard = eventually(lambda: next(filter(is_waiting, children(second.pid)), None))
    used = {int(path.name) for path in Path(f"/proc/{guard}/fd").iterdir()}
    limit = next(n for n in count() if n - len(used & {*range(n)}) == room)
    resource.prlimit(guard, resource.RLIMIT_NOFILE, (limit, limit))
    kill_runner(first)
    second.await_line("cannot start the command: Too many open files: retry in 0.1 s")
    field.await_epoch(3)
    assert {tick.epoch for tick in field.ticks()} == {1, 3}


@pytest.mark.fault
def test_a_run_for_one_term_ends_if_the_guard_has_no_descriptors(field: Field) -> None:
    field.start(timeout=LONG)
    field.await_epoch(1)
    second = field.start(timeout=LONG, options=("--once",))
    guard = eventually(lambda: next(filter(is_waiting, children(second.pid)), None))
    resource.prlimit(guard, resource.RLIMIT_NOFILE, (3, 3))
    field.leader().send(signal.SIGTERM)
    assert second.wait() == 126
    assert {tick.epoch for tick in field.ticks()} == {1}


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.ENOMEM])
def test_a_guard_that_cannot_be_started_for_a_shortage_is_retried(
    field: Field, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    said, job = list[str](), Job(service="s", candidate="c", command=["sh", "-c", "exit 7"])
    fail_spawns(monkeypatch, number, times=2)
    outcome = run(FileContest(field.folder, LONG), job, say=said.append)
    assert (outcome.ending, outcome.status) == (Ending.COMMAND_ENDED, 7)
    line = f"cannot start the command: {os.strerror(number)}: retry in"
    assert said[:2] == [f"{line} 0.1 s", f"{line} 0.2 s"]


def test_a_guard_that_cannot_be_started_for_another_reason_ends_the_run(
    field: Field, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_spawns(monkeypatch, errno.EPERM, times=1)
    with pytest.raises(PermissionError):
        run(FileContest(field.folder, LONG), Job(service="s", candidate="c", command=["true"]))


@pytest.mark.fault
@pytest.mark.case("W11", "W12")
@pytest.mark.parametrize("terms", [20, pytest.param(200, marks=HEAVY)])
def test_many_terms_leave_nothing_behind(field: Field, terms: int) -> None:
    runner = field.start(timeout=LONG)
    field.await_epoch(1)
    # The contest's own threads open and close a file now and then.
    at_start = min(belongings(runner) for _ in range(20))
    for epoch in range(2, terms + 1):
        field.depose()
        field.await_epoch(epoch)
    assert eventually(lambda: belongings(runner) == at_start)
    epochs = [tick.epoch for tick in field.ticks()]
    assert epochs == sorted(epochs)
    assert set(epochs) == set(range(1, terms + 1))


def belongings(runner: Started) -> tuple[int, int, int]:
    """Return how many descriptors, threads and children a runner has, zombies included."""
    process = Path(f"/proc/{runner.pid}")
    descriptors, threads = (len(list((process / name).iterdir())) for name in ("fd", "task"))
    return descriptors, threads, len(children(runner.pid))
