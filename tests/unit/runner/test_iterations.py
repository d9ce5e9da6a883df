"""The loop of a runner marks each iteration, whatever it waits for."""

import errno
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from typing_extensions import override

from kip30.runner import Ending, Job, RunOutcome, run, runner
from kip30_conformance.polling import time_scale

from .field import TIMEOUT, Field, fail_spawns
from .tiny_runner import FileContest

LONG = 100 * TIMEOUT * time_scale()
ENOUGH = 5


class Iterations:
    """Counts iterations since the last line of progress.

    After enough of them it creates *go* if the runner leads, and else may end the run.
    """

    def __init__(self, go: Path) -> None:
        self.go = go
        self.ends_wait = False
        self.by_line: list[tuple[str, int]] = [("", 0)]

    def say(self, line: str) -> None:
        self.by_line.append((line, 0))

    def note(self) -> None:
        line, number = self.by_line[-1]
        self.by_line[-1] = line, number + 1
        if number < ENOUGH:
            return
        if line.startswith("leading"):
            self.go.touch()
        elif self.ends_wait:
            os.kill(os.getpid(), signal.SIGTERM)

    def after(self, beginning: str) -> int:
        return max(number for line, number in self.by_line if line.startswith(beginning))


@pytest.fixture
def iterations(field: Field) -> Iterations:
    return Iterations(field.folder / "go")


def run_until_enough(contest: FileContest, iterations: Iterations) -> RunOutcome:
    script = 'until [ -e "$0" ]; do sleep 0.01; done'
    job = Job(service="s", candidate="c", command=["sh", "-c", script, str(iterations.go)])
    return run(contest, job, say=iterations.say, mark_alive=iterations.note)


def test_while_a_command_runs(field: Field, iterations: Iterations) -> None:
    outcome = run_until_enough(FileContest(field.folder, LONG), iterations)
    assert outcome.ending is Ending.COMMAND_ENDED
    assert iterations.after("leading") > ENOUGH


def test_while_another_leads(field: Field, iterations: Iterations) -> None:
    field.start(timeout=LONG)
    field.await_epoch(1)
    iterations.ends_wait = True
    outcome = run_until_enough(FileContest(field.folder, LONG), iterations)
    assert outcome.ending is Ending.INTERRUPTED
    assert iterations.after("waiting to lead") > ENOUGH


def test_in_a_pause(field: Field, iterations: Iterations, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "_LONGEST_ITERATION_SECONDS", 0.01)
    fail_spawns(monkeypatch, errno.EAGAIN, times=3)
    run_until_enough(FileContest(field.folder, LONG), iterations)
    assert iterations.after("cannot start the command") > ENOUGH


class SlowToNote(FileContest):
    """A contest whose store answers only when it has been asked a few times."""

    @override
    def note_success(self, goes_on: Callable[[], bool]) -> None:
        assert all(goes_on() for _ in range(ENOUGH + 1))


def test_while_a_success_is_noted(field: Field, iterations: Iterations) -> None:
    run_until_enough(SlowToNote(field.folder, LONG), iterations)
    assert iterations.after("epoch 1 is over") > ENOUGH
