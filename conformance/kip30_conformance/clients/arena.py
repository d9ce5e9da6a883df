"""Real `kip30 run` processes that compete for one service, and what their commands wrote down."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import psutil

from kip30.config import Written
from kip30_conformance.clients import ticker
from kip30_conformance.polling import TIME_SCALE, eventually
from kip30_conformance.private_settings import PrivateSettings

SERVICE = "s"
TREE = 4
"""How many processes tick under a ``tree``."""

_END_SECONDS = 30.0


class Tick(NamedTuple):
    """One line that a command wrote."""

    at: float
    epoch: int
    candidate: str
    pid: int
    what: str


class Runner:
    """A `kip30 run` that was started."""

    def __init__(
        self,
        command: list[str],
        told: Path,
        settings: PrivateSettings,
        descriptors: Sequence[int],
    ) -> None:
        """Start it with *settings* and *descriptors* to inherit; its messages go to *told*."""
        self._told = told
        with told.open("wb") as stderr:
            self._process = psutil.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stderr=stderr,
                pass_fds=[settings.descriptor, *descriptors],
            )

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def said(self) -> str:
        """What it has printed for its operator so far."""
        return self._told.read_text()

    def holds(self) -> tuple[int, int]:
        """Return how many descriptors and how many threads it has."""
        return self._process.num_fds(), self._process.num_threads()

    def send(self, number: int) -> None:
        """Send it a signal; a stop is waited for."""
        self._process.send_signal(number)
        if number == signal.SIGSTOP:
            os.waitid(os.P_PID, self.pid, os.WSTOPPED)

    def wait(self) -> int:
        """Wait until it has ended and return its exit status."""
        return self._process.wait(_END_SECONDS * TIME_SCALE)

    def kill_guard(self) -> int:
        """Kill its guard, and return the process id that had."""
        guard = eventually(self._process.children)[0]
        guard.kill()
        return guard.pid

    def end(self) -> None:
        """Kill it, if it has not ended, and wait until it is gone."""
        with contextlib.suppress(psutil.NoSuchProcess):
            self._process.kill()
        self._process.wait()


class Arena:
    """A folder with a log that the commands of all runners write to.

    Attributes:
        own_descriptors: What every runner inherits, and its command with it.
    """

    def __init__(self, folder: Path, properties: Mapping[str, Written]) -> None:
        """Have runners compete in the store of *properties*."""
        self._folder = folder
        self._settings = PrivateSettings(properties)
        self.own_descriptors = {0, 1, 2, self._settings.descriptor}
        self._runners: dict[str, Runner] = {}
        self.log = folder / "ticks"
        self.log.touch()
        self._ticks: list[Tick] = []
        self._position = 0

    def start(
        self,
        *command: str,
        options: tuple[str, ...] = (),
        through: tuple[str, ...] = (),
        descriptors: tuple[int, ...] = (),
    ) -> Runner:
        """Start a runner of *command*, as a candidate of its own.

        It is started by the program *through*, which executes its arguments, if there is one.
        """
        candidate = f"c{len(self._runners)}"
        words = [sys.executable, "-m", "kip30", "run", "--service", SERVICE, "--id", candidate]
        config = f"--config={self._settings.path}"
        runner = Runner(
            [*through, *words, config, *options, "--", *command],
            self._folder / candidate,
            self._settings,
            descriptors,
        )
        self._runners[candidate] = runner
        return runner

    def ticker(self, *words: str) -> tuple[str, ...]:
        """Return the command that is a `kip30_conformance.clients.ticker`."""
        return (sys.executable, "-I", "-S", ticker.__file__, str(self.log), *words)

    def ticks(self) -> list[Tick]:
        """Return what was written so far, but for an unfinished line."""
        with self.log.open("rb") as log:
            log.seek(self._position)
            whole, newline, _ = log.read().rpartition(b"\n")
        self._position += len(whole) + len(newline)
        self._ticks += [_parsed(line) for line in whole.decode().splitlines()]
        return list(self._ticks)

    def await_term(self, after: int = 0, *, processes: int = 1) -> list[Tick]:
        """Return what was written in the first term *after* that epoch.

        Waits until so many *processes* have ticked in it.
        """

        def find() -> list[Tick]:
            later = [tick for tick in self.ticks() if tick.epoch > after]
            term = [tick for tick in later if tick.epoch == later[0].epoch]
            return term if len({tick.pid for tick in term}) >= processes else []

        return eventually(find, within=30, what=f"a term after {after}")

    def term(self, epoch: int) -> list[Tick]:
        """Return what was written in one term."""
        return [tick for tick in self.ticks() if tick.epoch == epoch]

    def noted(self, what: str) -> set[int]:
        """Return the processes that have noted *what*."""
        return {tick.pid for tick in self.ticks() if tick.what == what}

    def is_silent(self, seconds: float) -> bool:
        """Say whether nothing was written for so long."""
        return time.monotonic() - max(self.ticks()).at > seconds

    def runner_of(self, tick: Tick) -> Runner:
        """Return the runner under which *tick* was written."""
        return self._runners[tick.candidate]

    def expect_no_overlap(self) -> None:
        """Require every term's last tick to have come before the next term's first one."""
        terms = [self.term(epoch) for epoch in sorted({tick.epoch for tick in self.ticks()})]
        for earlier, later in pairwise(terms):
            assert max(earlier).at < min(later).at

    def close(self) -> None:
        """End all runners, and those of their commands that outlived them."""
        for runner in self._runners.values():
            runner.end()
        for process in self._leftovers():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self._settings.close()

    def _leftovers(self) -> Iterator[psutil.Process]:
        for pid in {tick.pid for tick in self.ticks()}:
            with contextlib.suppress(psutil.NoSuchProcess):
                process = psutil.Process(pid)
                if str(self.log) in process.cmdline():
                    yield process


def _parsed(line: str) -> Tick:
    at, epoch, candidate, pid, what = line.split()
    return Tick(float(at), int(epoch), candidate, int(pid), what)
