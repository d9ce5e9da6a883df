"""Real `kip30 run` processes that compete for one service, and the lines of their commands."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import psutil

from kip30.config import Written
from kip30_conformance.clients import ends_with_parent, ticker
from kip30_conformance.clients.process_stop import ProcessStop
from kip30_conformance.polling import eventually, time_scale
from kip30_conformance.settings_memfd import PrivateSettings

SERVICE = "s"
TREE = 4
"""Number of processes that tick under a ``tree``."""

_END_SECONDS = 30.0


class Tick(NamedTuple):
    """One line that a command wrote.

    Attributes:
        run: When the command was started, in nanoseconds; the same in all its descendants.
    """

    at: float
    epoch: int
    candidate: str
    pid: int
    run: int
    what: str


class Runner:
    """A `kip30 run` that was started."""

    def __init__(
        self,
        command: list[str],
        messages: Path,
        settings: PrivateSettings,
        descriptors: Sequence[int],
        stop: ProcessStop,
    ) -> None:
        """Start it with *settings* and *descriptors* to inherit; its messages go to *messages*.

        It is killed when this process ends, or the calling thread.
        """
        self._messages = messages
        self._stop = stop
        tie = [sys.executable, "-I", "-S", ends_with_parent.__file__, str(os.getpid())]
        with messages.open("wb") as stderr:
            self._process = psutil.Popen(
                [*tie, *command],
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
        """Its messages for the operator so far."""
        return self._messages.read_text()

    def holds(self) -> tuple[int, int]:
        """Return how many descriptors and how many threads it has."""
        return self._process.num_fds(), self._process.num_threads()

    def guards(self) -> int:
        """Return how many guards it has."""
        return len(self._process.children())

    def send(self, number: int) -> None:
        """Send it a signal; after a stop, wait until it has stopped, in no write."""
        self._stop.send(self._process, number)

    def wait(self) -> int:
        """Wait until it has ended and return its exit status."""
        return self._process.wait(_END_SECONDS * time_scale())

    def kill_guard(self) -> int:
        """Kill the guard at work, else one that waits; return its process id.

        If it ends meanwhile, the next one.
        """

        def kill() -> int:
            with contextlib.suppress(psutil.NoSuchProcess):
                guards = self._process.children()
                for guard in sorted(guards, key=lambda one: not one.children())[:1]:
                    guard.kill()
                    return guard.pid
            return 0

        return eventually(kill, what="its guard is killed")

    def kill_guard_of(self, pid: int) -> int:
        """Kill the guard of the process *pid*, which works below it; return the guard's id."""
        above = [one for one in psutil.Process(pid).parents() if one.ppid() == self.pid]
        above[0].kill()
        return above[0].pid

    def end(self) -> None:
        """Kill it, if it has not ended, and wait until it is gone."""
        with contextlib.suppress(psutil.NoSuchProcess):
            self._process.kill()
        self._process.wait()


class Arena:
    """A folder with a log that the commands of all runners write to.

    Attributes:
        own_descriptors: Inherited by every runner, and its command.
        runners: All that were started, by their id.
        words: The kip30 command to run, and its options.
    """

    words: Sequence[str] = ("run", "--service", SERVICE)

    def __init__(self, folder: Path, properties: Mapping[str, Written]) -> None:
        """Let runners compete in the store of *properties*."""
        self._folder = folder
        self._settings = PrivateSettings(properties)
        self._stop = ProcessStop(properties)
        self.own_descriptors = {0, 1, 2, self._settings.descriptor}
        self.runners: dict[str, Runner] = {}
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
        candidate = f"c{len(self.runners)}"
        program = (sys.executable, "-m", "kip30", *self.words)
        config = f"--config={self._settings.path}"
        runner = Runner(
            [*through, *program, "--id", candidate, config, *options, "--", *command],
            self._folder / candidate,
            self._settings,
            descriptors,
            self._stop,
        )
        self.runners[candidate] = runner
        return runner

    def ticker(self, *words: str) -> tuple[str, ...]:
        """Return the command that is a `kip30_conformance.clients.ticker`."""
        return (sys.executable, "-I", "-S", ticker.__file__, str(self.log), *words)

    def ticks(self) -> list[Tick]:
        """Return all lines so far, without unfinished ones: a kill may cut a line short."""
        with self.log.open("rb") as log:
            log.seek(self._position)
            whole, newline, _ = log.read().rpartition(b"\n")
        self._position += len(whole) + len(newline)
        lines = (line.split() for line in whole.decode().splitlines())
        self._ticks += [_tick_of(words) for words in lines if len(words) == len(Tick._fields)]
        return list(self._ticks)

    def await_term(self, after: int = 0, *, processes: int = 1) -> list[Tick]:
        """Return the lines of the first term *after* that epoch.

        Waits until *processes* of them have ticked in it.
        """

        def find() -> list[Tick]:
            later = [tick for tick in self.ticks() if tick.epoch > after]
            term = [tick for tick in later if tick.epoch == later[0].epoch]
            return term if len({tick.pid for tick in term}) >= processes else []

        return eventually(find, within=30, what=f"a term after {after}")

    def term(self, epoch: int) -> list[Tick]:
        """Return the lines of one term."""
        return [tick for tick in self.ticks() if tick.epoch == epoch]

    def noted(self, what: str) -> set[int]:
        """Return the processes that have noted *what*."""
        return {tick.pid for tick in self.ticks() if tick.what == what}

    def is_silent(self, seconds: float) -> bool:
        """Return whether no line was written for that long."""
        return time.monotonic() - max(self.ticks()).at > seconds

    def runner_of(self, tick: Tick) -> Runner:
        """Return the runner under which *tick* was written."""
        return self.runners[tick.candidate]

    def expect_no_overlap(self) -> None:
        """Require every term's last tick to have come before the next term's first one."""
        terms = [self.term(epoch) for epoch in sorted({tick.epoch for tick in self.ticks()})]
        for earlier, later in pairwise(terms):
            assert max(earlier).at < min(later).at

    def close(self) -> None:
        """End all runners, and those of their commands that outlived them."""
        for runner in self.runners.values():
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


def _tick_of(words: Sequence[str]) -> Tick:
    at, epoch, candidate, pid, run, what = words
    return Tick(float(at), int(epoch), candidate, int(pid), int(run), what)
