"""Decisions that need no process: limits, refusals, outcomes."""

import errno
import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kip30.errors import InvalidNameError, UnsupportedError, UsageError
from kip30.runner import Ending, Job, RunOutcome, exit_status
from kip30.runner.guard import deadlines, messages, shared_memory
from kip30.runner.guard.shared_memory import SharedMemory
from kip30.runner.guard_handle import require_guard
from kip30.runner.interrupts import Interrupt, Response, response
from kip30.runner.job import LONGEST_GRACE_SECONDS

KERNEL = "kip30.runner.guard.kernel"
SECOND = 1_000_000_000
RENEWALS = 3
MARGIN_PART = 10
COPY_PART = 20


@pytest.fixture
def shared() -> SharedMemory:
    descriptor = shared_memory.create()
    shared = SharedMemory(descriptor)
    os.close(descriptor)
    return shared


@pytest.mark.parametrize("timeout", [0.3, 1.0, 10.0, 3600.0])
def test_one_lost_renewal_ends_nothing_and_two_do(shared: SharedMemory, timeout: float) -> None:
    shared.timeout = int(timeout * SECOND)
    sent = shared_memory.now()
    shared.deadline = sent + shared.timeout - shared.timeout // MARGIN_PART
    late = shared.timeout // COPY_PART
    assert sent + 2 * shared.timeout // RENEWALS + late < deadlines.term_at(shared)
    assert sent + 3 * shared.timeout // RENEWALS > deadlines.kill_at(shared)


@pytest.mark.parametrize("timeout", [0.3, 1.0, 10.0, 3600.0])
def test_the_steps_of_an_end_come_in_order(shared: SharedMemory, timeout: float) -> None:
    shared.timeout, shared.deadline = int(timeout * SECOND), shared_memory.now()
    steps = [deadlines.term_at(shared), deadlines.kill_at(shared), deadlines.switch_at(shared)]
    assert [*steps, shared.deadline] == sorted({*steps, shared.deadline})
    assert deadlines.beat_period(shared) < deadlines.beat_limit(shared)


def test_both_sides_see_one_page() -> None:
    descriptor = shared_memory.create()
    runner, guard = SharedMemory(descriptor), SharedMemory(descriptor)
    runner.deadline, guard.beat = 2**62, 17
    assert (guard.deadline, runner.beat, runner.command) == (2**62, 17, 0)
    os.close(descriptor)


def test_a_packet_decodes_to_the_encoded_message() -> None:
    packet = messages.encode(messages.STOP, 15)
    assert messages.decode(packet) == (messages.STOP, 15)
    assert len(packet) <= messages.MAX_BYTES


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("sh", 0),
        ("/bin/sh", 0),
        ("no-such-program", errno.ENOENT),
        ("/no/such", errno.ENOENT),
        ("/", errno.EACCES),
    ],
)
def test_a_command_that_cannot_be_executed_is_refused(name: str, number: int) -> None:
    assert exit_status.refusal(name) == number


@pytest.mark.parametrize(("number", "status"), [(errno.ENOENT, 127), (errno.EACCES, 126)])
def test_failures_are_a_shells(number: int, status: int) -> None:
    assert exit_status.failure_status(number) == status


@pytest.mark.parametrize(("wait_status", "status"), [(0, 0), (3 << 8, 3), (9, 137)])
def test_an_outcome_exits_as_its_command_did(wait_status: int, status: int) -> None:
    outcome = RunOutcome.of_command(Ending.COMMAND_ENDED, wait_status)
    assert outcome == RunOutcome(Ending.COMMAND_ENDED, status)


def test_a_job_needs_a_command() -> None:
    with pytest.raises(UsageError):
        Job(service="s", candidate="c", command=[])


@pytest.mark.parametrize("grace", [-1.0, math.inf, math.nan, 1e10])
def test_a_job_needs_a_grace_that_ends(grace: float) -> None:
    with pytest.raises(UsageError):
        Job(service="s", candidate="c", command=["true"], grace_seconds=grace)


def test_the_longest_grace_fits_the_page(shared: SharedMemory) -> None:
    Job(service="s", candidate="c", command=["true"], grace_seconds=LONGEST_GRACE_SECONDS)
    shared.grace = int(LONGEST_GRACE_SECONDS * SECOND)
    assert shared.grace == LONGEST_GRACE_SECONDS * SECOND


TERM, INT, HUP, QUIT = signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT


@pytest.mark.parametrize(
    ("earlier", "latest", "due"),
    [
        ([], (HUP, 0.0), Response.PASS_ON),
        ([], (TERM, 0.0), Response.PASS_ON),
        ([(HUP, 0.0)], (HUP, 60.0), Response.NOTHING),
        ([(TERM, 0.0)], (HUP, 60.0), Response.NOTHING),
        ([(HUP, 0.0)], (TERM, 0.0), Response.PASS_ON),
        ([(HUP, 0.0), (TERM, 0.0)], (INT, 0.0), Response.KILL),
        ([(TERM, 0.0)], (INT, 0.0), Response.KILL),
        ([(INT, 0.0)], (QUIT, 0.0), Response.KILL),
        ([(TERM, 5.0)], (TERM, 5.4), Response.NOTHING),
        ([(TERM, 5.0)], (TERM, 5.6), Response.KILL),
        ([(INT, 5.0), (INT, 5.3)], (INT, 5.6), Response.KILL),
    ],
)
def test_the_second_request_kills_and_an_echo_does_not(
    earlier: list[tuple[int, float]], latest: tuple[int, float], due: Response
) -> None:
    assert response([Interrupt(*one) for one in earlier], Interrupt(*latest)) is due


def test_a_job_needs_names_that_fit_an_environment() -> None:
    with pytest.raises(InvalidNameError):
        Job(service="s\0", candidate="c", command=["true"])


@pytest.mark.parametrize("refusal", [errno.ENOSYS, errno.EPERM])
def test_a_system_that_refuses_pidfd_open_is_unsupported(
    monkeypatch: pytest.MonkeyPatch, refusal: int
) -> None:
    _let_pidfd_open_fail(monkeypatch, refusal)
    with pytest.raises(UnsupportedError, match=r"pidfd_open .* seccomp profile"):
        require_guard()


def test_each_call_that_a_guard_needs_is_named_where_it_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_arguments: object) -> int:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    for name, call in (("os.memfd_create", "memfd_create"), (f"{KERNEL}._timers", "timer_create")):
        with monkeypatch.context() as patched:
            patched.setattr(name, fail)
            with pytest.raises(UnsupportedError, match=f"{call} .* seccomp profile"):
                require_guard()


def test_a_lack_of_descriptors_is_no_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    _let_pidfd_open_fail(monkeypatch, errno.EMFILE)
    with pytest.raises(OSError, match=os.strerror(errno.EMFILE)):
        require_guard()


def _let_pidfd_open_fail(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def fail(_pid: int) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("os.pidfd_open", fail)


# Prints why each command cannot be executed, for another user. The first argument is the path.
REFUSALS = """
import os, sys
from kip30.runner.exit_status import refusal
os.environ["PATH"] = sys.argv[1]
os.setresuid(65534, 65534, 65534)
print(*map(refusal, sys.argv[2:]))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may take another user id")
def test_a_command_in_a_folder_that_may_not_be_searched(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "program").touch(mode=0o755)
    folder.chmod(0o700)
    names = ("program", f"{folder}/program", "/no/such/program", "x/" * 5000)
    words = [sys.executable, "-c", REFUSALS, f"{folder}:/usr/bin:/bin", *names]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    result = subprocess.run(words, capture_output=True, check=False, env=environment)
    refusals = (errno.ENOENT, errno.EACCES, errno.ENOENT, errno.ENOENT)
    assert result.stdout.decode().split() == [str(one) for one in refusals], result.stderr
