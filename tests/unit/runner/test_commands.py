"""Everything that a command gets, its end, and signals to its runner."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from kip30.cli._exit_codes import Status
from kip30.runner import LOST_STATUS, WAITED_STATUS
from kip30.runner.guard_handle import GuardHandle
from kip30_conformance.polling import time_scale

from .field import PATIENCE, TIMEOUT, Field, eventually, is_running, parent

SH = ("sh", "-c")
LONG = 100 * TIMEOUT * time_scale()
CLEANING = round(400_000 * time_scale())  # microseconds
# Notes each signal of the name that is its argument.
TOLD = r"""#!/bin/bash
exec 9<> <(:)
trap 'echo "told $$" >> "$KIP30_TEST_NOTES"' "$1"
echo "up $$" >> "$KIP30_TEST_NOTES"
while :; do read -t 0.01 -u 9; done
"""
SIGNALS = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT]


@pytest.mark.case("W01")
def test_a_command_finds_its_term_in_the_environment(field: Field) -> None:
    for epoch in (1, 2):
        runner = field.start(*SH, 'echo "$KIP30_SERVICE $KIP30_CANDIDATE $KIP30_EPOCH"')
        assert runner.output()[0] == f"the-service candidate-{runner.pid} {epoch}\n"


@pytest.mark.case("W01")
@pytest.mark.parametrize(
    ("script", "status"), [("exit 0", 0), ("exit 3", 3), ("kill -9 $$", 137), ("kill $$", 143)]
)
def test_the_status_of_a_command_is_passed_on(field: Field, script: str, status: int) -> None:
    assert field.start(*SH, script).wait() == status


@pytest.mark.case("W01")
@pytest.mark.parametrize(
    ("mode", "status"), [(None, 127), (0o644, 126)], ids=["missing", "not executable"]
)
def test_a_program_that_cannot_be_executed_takes_no_term(
    field: Field, mode: int | None, status: int
) -> None:
    program = field.folder / "program"
    if mode is not None:
        program.write_text("#!/bin/sh\n")
        program.chmod(mode)
    assert field.start(program).wait() == status
    assert field.record.epoch == 0


@pytest.mark.case("W01")
@pytest.mark.parametrize(
    ("content", "status"), [("#!/no/such/interpreter\n", 127), ("no program", 126)]
)
def test_a_program_that_fails_to_execute_takes_one_term_only(
    field: Field, content: str, status: int
) -> None:
    program = field.folder / "program"
    program.write_text(content)
    program.chmod(0o755)
    assert field.start(program).wait() == status
    assert field.record.epoch == 1


def test_a_command_gets_the_standard_streams_and_nothing_else(field: Field) -> None:
    runner = field.start(*SH, "cat; ls /proc/self/fd; echo said >&2")
    output, errors = runner.process.communicate("heard ", timeout=PATIENCE * time_scale())
    assert output.split() == ["heard", "0", "1", "2", "3"]  # 3 is the folder that ls reads
    assert "said\n" in errors


@pytest.mark.case("W19")
def test_a_command_gets_the_descriptors_its_runner_was_given(field: Field) -> None:
    reading, writing = os.pipe()
    held = os.dup(0)  # not inheritable, so not given
    script = f"echo heard >&{writing}; ls /proc/self/fd"
    runner = field.start("bash", "-c", script, descriptors=(writing,))
    os.close(writing)
    assert sorted(map(int, runner.output()[0].split())) == [0, 1, 2, 3, writing]
    assert os.read(reading, 100) == b"heard\n"
    assert os.read(reading, 100) == b""
    for descriptor in (reading, held):
        os.close(descriptor)


@pytest.mark.case("W19")
@pytest.mark.parametrize("receiver", ["$$", "1"], ids=["the runner", "another process"])
def test_sockets_of_the_runner_are_the_commands(field: Field, receiver: str) -> None:
    show = 'echo "$LISTEN_PID $$ $LISTEN_FDS $LISTEN_PIDFDID"'
    program = Path(__file__).with_name("tiny_runner.py")
    script = f"exec env LISTEN_PID={receiver} LISTEN_FDS=1 LISTEN_PIDFDID=5 {sys.executable} "
    script += f"{program} {field.folder} 9 -- sh -c '{show}'"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    result = subprocess.run(["sh", "-c", script], env=environment, check=True, capture_output=True)
    listening, own, *rest = result.stdout.decode().split()
    assert (listening == own, rest) == ((True, ["1"]) if receiver == "$$" else (False, ["1", "5"]))


@pytest.mark.parametrize("ignored", [(), (signal.SIGHUP,), (signal.SIGUSR1,)])
def test_a_command_ignores_what_its_runner_was_started_to_ignore(
    field: Field, ignored: tuple[signal.Signals, ...]
) -> None:
    before = [(number, signal.signal(number, signal.SIG_IGN)) for number in ignored]
    runner = field.start("grep", "SigIgn", "/proc/self/status")
    for number, handler in before:
        signal.signal(number, handler)
    mask = int(runner.output()[0].split()[1], 16)
    touched = [*SIGNALS, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGUSR1, signal.SIGUSR2]
    assert tuple(n for n in touched if mask & 1 << (n - 1)) == ignored


@pytest.mark.parametrize("number", SIGNALS)
def test_a_blocked_signal_of_the_runners_parent_ends_runner_and_command(
    field: Field, number: signal.Signals
) -> None:
    everything = signal.valid_signals() - {signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, everything)
    try:
        runner = field.start(field.ticker, "polite", timeout=LONG)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    field.await_epoch(1)
    runner.send(number)
    assert runner.wait() == 7


def test_a_command_begins_with_no_signal_blocked(field: Field) -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1, signal.SIGPIPE})
    try:
        runner = field.start("grep", "SigBlk", "/proc/self/status")
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    assert int(runner.output()[0].split()[1], 16) == 0


def test_a_status_survives_a_runner_started_to_ignore_dead_children(field: Field) -> None:
    program = Path(__file__).with_name("tiny_runner.py")
    script = f"trap '' CHLD; exec {sys.executable} {program} {field.folder} 9 -- sh -c 'exit 4'"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    assert subprocess.run(["sh", "-c", script], env=environment, check=False).returncode == 4


@pytest.mark.case("W02")
def test_the_next_command_waits_for_the_end_of_the_first(field: Field) -> None:
    first = field.start(*SH, "read line", timeout=LONG)
    eventually(lambda: field.record.session)
    second = field.start("cat", "/proc/uptime", timeout=LONG)
    second.await_line("waiting to lead")
    assert second.process.poll() is None
    first.process.communicate("go\n", timeout=PATIENCE * time_scale())
    assert second.wait() == 0
    assert field.record.epoch == 2


@pytest.mark.case("W07")
@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_is_passed_on_and_the_service_resigned(
    field: Field, number: signal.Signals
) -> None:
    runner = field.start(field.ticker, "polite", timeout=LONG)
    field.await_epoch(1)
    runner.send(number)
    assert runner.wait() == 7
    assert runner.output()[0] == "1 bye\n"
    assert field.record.session == ""


@pytest.mark.case("W07")
@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_while_waiting_ends_the_runner(field: Field, number: signal.Signals) -> None:
    field.start(timeout=LONG)
    field.await_epoch(1)
    second = field.start(timeout=LONG)
    second.await_line("waiting to lead")
    second.send(number)
    assert second.wait() == 128 + number
    assert {tick.epoch for tick in field.ticks()} == {1}


@pytest.mark.parametrize("name", ["USR1", "USR2", "WINCH", "CONT"])
def test_a_signal_that_asks_for_no_end_reaches_the_command_alone(field: Field, name: str) -> None:
    program = field.program("told", TOLD)
    runner = field.start(program, name, timeout=LONG)
    (pid,) = field.await_notes("up")
    runner.send(signal.Signals[f"SIG{name}"])
    assert field.await_notes("told") == [pid]
    runner.send(signal.SIGTERM)
    assert runner.wait() == 128 + signal.SIGTERM


def test_sigusr1_leaves_the_processes_of_a_command_alone(field: Field) -> None:
    program = field.program("told", TOLD)
    runner = field.start("bash", "-c", f"{program} TERM & exec {program} USR1", timeout=LONG)
    both = set(field.await_notes("up", 2))
    runner.send(signal.SIGUSR1)
    (told,) = field.await_notes("told")
    (other,) = both - {told}
    assert is_running(other)
    assert field.notes("told") == [told]


def test_a_runner_that_waits_keeps_waiting_at_a_signal_for_its_command(field: Field) -> None:
    first = field.start(*SH, "read line", timeout=LONG)
    eventually(lambda: field.record.session)
    second = field.start("true", timeout=LONG)
    second.await_line("waiting to lead")
    for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH):
        second.send(number)
    first.process.communicate("go\n", timeout=PATIENCE * time_scale())
    assert second.wait() == 0


@pytest.mark.parametrize("name", ["USR1", "USR2"])
def test_a_signal_for_the_command_that_also_its_guard_gets_ends_nothing(
    field: Field, name: str
) -> None:
    program = field.program("told", TOLD)
    runner = field.start(program, name, timeout=LONG)
    (pid,) = field.await_notes("up")
    for one in (parent(pid), runner.pid):
        os.kill(one, signal.Signals[f"SIG{name}"])
    assert field.await_notes("told") == [pid]
    runner.send(signal.SIGTERM)
    assert runner.wait() == 128 + signal.SIGTERM


@pytest.mark.parametrize("name", ["USR1", "USR2", "TERM"])
def test_a_guard_that_starts_ends_at_no_signal_of_others(name: str) -> None:
    with GuardHandle(()) as guard:
        os.kill(guard.pid, signal.Signals[f"SIG{name}"])
        eventually(lambda: "pidfd" in descriptors_of(guard.pid))
        assert guard.is_alive()


def descriptors_of(pid: int) -> str:
    """Return the names of what the process has opened, in one text."""
    with suppress(FileNotFoundError):
        return " ".join(str(one.readlink()) for one in Path(f"/proc/{pid}/fd").iterdir())
    return ""


@pytest.mark.case("W08")
def test_a_stubborn_command_is_killed_after_the_grace(field: Field) -> None:
    grace = 0.5 * time_scale()
    runner = field.start(field.ticker, "stubborn", options=("--grace", str(grace)), timeout=LONG)
    field.await_epoch(1)
    asked = time.time()
    runner.send(signal.SIGTERM)
    assert runner.wait() == 137
    assert field.ticks()[-1].time - asked > 0.9 * grace


@pytest.mark.case("W08")
def test_a_second_signal_kills_at_once(field: Field) -> None:
    runner = field.start(field.ticker, "stubborn", options=("--grace", str(LONG)), timeout=LONG)
    field.await_epoch(1)
    runner.send(signal.SIGTERM)
    runner.send(signal.SIGINT)
    assert runner.wait() == 137


@pytest.mark.case("W16")
@pytest.mark.parametrize(
    "numbers",
    [
        (signal.SIGHUP, signal.SIGHUP),
        (signal.SIGTERM, signal.SIGHUP),
        (signal.SIGTERM, signal.SIGTERM),
        (signal.SIGINT, signal.SIGINT),
    ],
    ids=lambda numbers: "-".join(number.name for number in numbers),
)
def test_the_echo_of_a_signal_takes_no_grace_away(
    field: Field, numbers: tuple[signal.Signals, ...]
) -> None:
    runner = field.start(field.cleaner, CLEANING, numbers[0].name, timeout=LONG)
    field.await_notes("up")
    for number in numbers:
        runner.send(number)
        field.await_notes("asked")
    assert runner.wait() == 0
    assert len(field.notes("asked")) == len(field.notes("clean")) == 1


@pytest.mark.case("W16")
def test_a_request_after_a_hangup_is_passed_on_too(field: Field) -> None:
    runner = field.start("sh", "-c", f"trap '' HUP; exec {field.cleaner} {CLEANING}", timeout=LONG)
    field.await_notes("up")
    runner.send(signal.SIGHUP)
    runner.send(signal.SIGTERM)
    assert runner.wait() == 0
    assert field.notes("clean")


@pytest.mark.case("W09")
def test_daemons_end_with_a_command_that_is_terminated(field: Field) -> None:
    runner = field.start(field.ticker, "tree", timeout=LONG)
    pids = {tick.pid for tick in field.await_epoch(1, pids=4)}
    runner.send(signal.SIGTERM)
    assert runner.wait() == 143
    assert not any(map(is_running, pids))


@pytest.mark.case("W09")
def test_daemons_end_with_a_command_that_ends_by_itself(field: Field) -> None:
    daemon = f"(setsid {field.ticker} &) ; until [ -s {field.log} ]; do :; done; exit 5"
    runner = field.start(*SH, daemon, timeout=LONG)
    assert runner.wait() == 5
    ticks = field.ticks()
    assert not is_running(ticks[0].pid)


@pytest.mark.case("W10")
def test_a_store_that_is_down_is_waited_for(field: Field) -> None:
    with field.down():
        runner = field.start("true")
        runner.await_line("waiting for the store: it is down")
    assert runner.wait() == 0


@pytest.mark.case("W10")
def test_waiting_is_bounded_on_demand(field: Field) -> None:
    field.start(timeout=LONG)
    field.await_epoch(1)
    assert field.start(options=("--wait", "0.1"), timeout=LONG).wait() == WAITED_STATUS
    assert field.start("true", options=("--wait", "0"), timeout=LONG).wait() == WAITED_STATUS


def test_a_stopped_command_can_be_ended(field: Field) -> None:
    runner = field.start(field.ticker, "polite", timeout=LONG)
    os.kill(field.await_epoch(1)[0].pid, signal.SIGSTOP)
    runner.send(signal.SIGTERM)
    assert runner.wait() == 7


def test_a_command_sees_the_folder_its_runner_was_started_in(field: Field) -> None:
    assert Path(field.start("pwd").output()[0].strip()) == Path.cwd()


def test_the_command_line_documents_the_runners_own_statuses() -> None:
    assert (Status.NOT_ELECTED, Status.LOST) == (WAITED_STATUS, LOST_STATUS)


# Forwards a signal, as a user who may not signal the process that is the argument.
FORWARD = """
import os, signal, sys
from kip30.runner.guard.command import Command
os.setresuid(65534, 65534, 65534)
Command(int(sys.argv[1]), None).forward(signal.SIGUSR1)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may take another user id")
def test_a_signal_for_a_command_of_another_user_is_dropped(field: Field) -> None:
    """As for a command that has changed its user by a program that may do that."""
    runner = field.start(*SH, "read line", timeout=LONG)
    words = [sys.executable, "-c", FORWARD, str(runner.pid)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    result = subprocess.run(words, capture_output=True, check=False, env=environment)
    assert (result.returncode, result.stderr) == (0, b"")
