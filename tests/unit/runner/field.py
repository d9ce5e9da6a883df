"""Real runners with real commands in one folder, and what their commands wrote down."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest

from kip30.runner import guard_handle
from kip30_conformance.polling import time_scale

from .tiny_runner import Record, Register

TIMEOUT = 1.0
PATIENCE = 20
HERE = Path(__file__).parent

# Writes "epoch pid time" every 2 ms without starting a process.
TICKER = r"""#!/bin/bash
exec 9<> <(:)
case "$1" in
    tree) "$0" & setsid "$0" & (setsid "$0" &) ;;
    stubborn) trap '' TERM INT HUP QUIT ;;
    polite) trap 'echo "$KIP30_EPOCH bye"; exit 7' TERM INT HUP QUIT ;;
esac
while :; do
    echo "$KIP30_EPOCH $BASHPID $EPOCHREALTIME" >> "$KIP30_TEST_LOG"
    read -t 0.002 -u 9
done
"""

# Ticks until SIGTERM, then for as many more microseconds as its argument says. Notes "up" when it
# can be signalled, "asked" at the signal, and "clean" when it has ended in its own time.
CLEANER = r"""#!/bin/bash
exec 9<> <(:)
note() { echo "$1 $BASHPID" >> "$KIP30_TEST_NOTES"; }
tick() { echo "$KIP30_EPOCH $BASHPID $EPOCHREALTIME" >> "$KIP30_TEST_LOG"; read -t 0.002 -u 9; }
clean_up() {
    note asked
    end=$((${EPOCHREALTIME/./} + $1))
    while [ "${EPOCHREALTIME/./}" -lt "$end" ]; do tick; done
    note clean
    exit 0
}
for name in ${2:-TERM}; do trap "clean_up $1" "$name"; done
note up
while :; do tick; done
"""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Tick:
    epoch: int
    pid: int
    time: float


def eventually(find: Callable[[], T | None]) -> T:
    seconds = PATIENCE * time_scale()  # by now: a machine may have become busy
    end = time.monotonic() + seconds
    while not (found := find()):
        assert time.monotonic() < end, f"not within {seconds} s: {find}"
        time.sleep(0.002)
    return found


def stat(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return ["gone", "0"]


def is_running(pid: int) -> bool:
    return stat(pid)[0] not in {"gone", "Z", "X"}


def parent(pid: int) -> int:
    return int(stat(pid)[1])


def children(pid: int) -> list[int]:
    """Return the children of a process."""
    pids = (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit())
    return [one for one in pids if parent(one) == pid]


class Started:
    """A runner that was started."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.pid = process.pid

    @property
    def guard(self) -> int:
        return eventually(lambda: next(iter(children(self.pid)), None))

    def await_line(self, text: str) -> None:
        """Read progress up to a line with *text* in it."""
        assert self.process.stderr
        assert any(text in line for line in self.process.stderr), f"ended without {text!r}"

    def send(self, number: int) -> None:
        self.process.send_signal(number)

    def wait(self) -> int:
        return self.process.wait(PATIENCE * time_scale())

    def output(self) -> tuple[str, str]:
        return self.process.communicate(timeout=PATIENCE * time_scale())


class Field:
    """A folder with a contest, its runners and the log of their commands."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.register = Register(folder)
        self.log = folder / "log"
        self.log.touch()
        self.notes_file = folder / "notes"
        self.notes_file.touch()
        self.ticker = self.program("ticker", TICKER)
        self.cleaner = self.program("cleaner", CLEANER)
        self._started: list[Started] = []

    def program(self, name: str, text: str) -> Path:
        """Write an executable file."""
        path = self.folder / name
        path.write_text(text)
        path.chmod(0o755)
        return path

    def start(
        self,
        *command: object,
        options: tuple[str, ...] = (),
        timeout: float = TIMEOUT * time_scale(),
        descriptors: tuple[int, ...] = (),
        through: tuple[str, ...] = (),
    ) -> Started:
        """Start a runner that inherits *descriptors*; without *command* it runs a ticker.

        *through* is a program that starts it.
        """
        words = [str(word) for word in command or (self.ticker,)]
        program = [
            *through,
            sys.executable,
            str(HERE / "tiny_runner.py"),
            *options,
            str(self.folder),
        ]
        process = subprocess.Popen(
            [*program, str(timeout), "--", *words],
            env={
                **os.environ,
                "LC_ALL": "C",
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                "KIP30_TEST_LOG": str(self.log),
                "KIP30_TEST_NOTES": str(self.notes_file),
            },
            pass_fds=descriptors,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._started.append(Started(process))
        return self._started[-1]

    def notes(self, word: str) -> list[int]:
        """Return the processes that have noted *word*, in order."""
        whole = self.notes_file.read_text().rpartition("\n")[0]
        fields = (line.split() for line in whole.splitlines())
        return [int(pid) for noted, pid in fields if noted == word]

    def await_notes(self, word: str, count: int = 1) -> list[int]:
        return eventually(lambda: found if len(found := self.notes(word)) >= count else None)

    def ticks(self) -> list[Tick]:
        whole = self.log.read_text().rpartition("\n")[0]
        fields = (line.split() for line in whole.splitlines())
        return [Tick(int(epoch), int(pid), float(moment)) for epoch, pid, moment in fields]

    def await_epoch(self, epoch: int, pids: int = 1) -> list[Tick]:
        """Return the ticks of the first term from *epoch* on in which *pids* processes tick."""

        def find() -> list[Tick] | None:
            ticks = [t for t in self.ticks() if t.epoch >= epoch]
            return ticks if len({t.pid for t in ticks}) >= pids else None

        return eventually(find)

    @property
    def record(self) -> Record:
        return self.register.read()

    def leader(self) -> Started:
        pid = int(self.record.session.removeprefix("session-"))
        return next(started for started in self._started if started.pid == pid)

    def depose(self) -> None:
        """Take leadership away from outside, as an operator at the store may."""
        with self.register.mutex():
            self.register.write(self.record.epoch, "", 0.0)

    @contextmanager
    def down(self) -> Generator[None]:
        """Let the store refuse all that contest."""
        (self.folder / "down").touch()
        yield
        (self.folder / "down").unlink()

    def overlaps(self) -> list[tuple[Tick, Tick]]:
        """Return each first tick of a term that came before the last one of the term before."""
        by_epoch: dict[int, list[Tick]] = {}
        for tick in self.ticks():
            by_epoch.setdefault(tick.epoch, []).append(tick)
        last: Tick | None = None
        found: list[tuple[Tick, Tick]] = []
        for _epoch, ticks in sorted(by_epoch.items()):
            first = min(ticks, key=lambda t: t.time)
            if last and first.time <= last.time:
                found.append((last, first))
            last = max(ticks, key=lambda t: t.time)
        return found

    def close(self) -> None:
        for started in self._started:
            for pid in (started.pid, *children(started.pid)):
                if is_running(pid):
                    os.kill(pid, signal.SIGCONT)
        for started in self._started:
            if started.process.poll() is None:
                started.send(signal.SIGKILL)
            started.process.communicate()


def spare_of(runner: Started, used: int) -> int:
    """Return the guard of *runner* that waits, besides the one at work."""
    return eventually(lambda: next(iter({*children(runner.pid)} - {used}), None))


def fail_spawns(monkeypatch: pytest.MonkeyPatch, number: int, times: int) -> None:
    """Let the next starts of a guard fail with this errno."""
    errors = [OSError(number, os.strerror(number))] * times
    real = guard_handle._spawn

    def spawn(passed: Sequence[int], descriptors: Sequence[int]) -> "subprocess.Popen[bytes]":
        if errors:
            raise errors.pop()
        return real(passed, descriptors)

    monkeypatch.setattr(guard_handle, "_spawn", spawn)


def is_waiting(guard: int) -> bool:
    """Return whether a guard has everything that it opens before the order to start."""
    descriptors = Path(f"/proc/{guard}/fd").iterdir()
    try:
        return any(str(one.readlink()) == "anon_inode:[pidfd]" for one in descriptors)
    except FileNotFoundError:  # it has closed one meanwhile
        return False
