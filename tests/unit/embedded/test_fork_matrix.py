"""Forks of a process that has the store open, by its activity and by the process that ends first.

No acknowledged write may be lost, no two processes may have fenced writes acknowledged at the same
time, no process may hang, and the file must stay sound.
"""

import itertools
import logging
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from kip30_conformance.polling import time_scale

pytestmark = pytest.mark.large

_log = logging.getLogger(__name__)

SCRIPT = Path(__file__).with_name("fork_actors.py")

ACTIVITIES = ("idle", "reading", "writing", "leading", "startup")
ENDINGS = ("parent exits", "parent closes", "child ends", "both are killed")
THIRDS = ("nothing", "get", "put", "sibling")

Combination = tuple[str, str, str]
ALL: Sequence[Combination] = tuple(itertools.product(ACTIVITIES, ENDINGS, THIRDS))
BRIEF: Sequence[Combination] = ALL[::7]
_ENOUGH = 5
_ROUNDS = 200


class Fenced(NamedTuple):
    """An acknowledged fenced write; times in monotonic nanoseconds."""

    epoch: int
    began: int
    ended: int


class Round:
    """The processes of one round, and their output so far."""

    def __init__(self, directory: Path, activity: str, ending: str) -> None:
        self.directory = directory
        self.lines: list[list[str]] = []
        self._readers: list[threading.Thread] = []
        way = "exit" if ending == "parent exits" else "close"
        self._parent = self._start(str(directory), activity, way)

    def _start(self, *words: str) -> "subprocess.Popen[str]":
        command = [sys.executable, "-W", "ignore", str(SCRIPT), *words]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._readers.append(threading.Thread(target=self._read, args=(process,)))
        self._readers[-1].start()
        return process

    def _read(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            self.lines.extend(line.split() for line in lines)

    def said(self, actor: str, word: str) -> bool:
        return [actor, word] in self.lines

    def acknowledged(self, actor: str) -> int:
        return sum(line[0] == actor and line[1].startswith(f"{actor}-") for line in self.lines)

    def pid(self, actor: str) -> int:
        (pid,) = [line[1] for line in self.lines if line[0] == actor and "pid=" in line[1]]
        return int(pid.removeprefix("pid="))

    def touch(self, file: str) -> None:
        (self.directory / file).touch()

    def wait(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + 20 * time_scale()
        while not condition():
            assert time.monotonic() < deadline, f"hangs: {self.lines[-20:]}"
            time.sleep(0.002)

    def writes_more(self, actor: str) -> None:
        enough = self.acknowledged(actor) + _ENOUGH
        self.wait(lambda: self.acknowledged(actor) >= enough)

    def end_first(self, ending: str) -> Sequence[str]:
        """End the processes that end first; return those that go on."""
        match ending:
            case "parent exits":
                self.touch("P.end")
                self.wait(lambda: self._parent.poll() is not None)
                return "C"
            case "parent closes":
                self.touch("P.end")
                self.wait(lambda: self.said("P", "done"))
                return "C"
            case "child ends":
                self.touch("C.end")
                self.wait(lambda: self.said("C", "done"))
                return "P"
        for actor in "PC":
            os.kill(self.pid(actor), signal.SIGKILL)
        return ""

    def let_third(self, what: str) -> None:
        if what == "sibling":
            self.touch("S.go")
            self.wait(lambda: self.said("S", "done"))
        elif what != "nothing":
            third = self._start(str(self.directory), "third", what)
            self.wait(lambda: third.poll() is not None)
            self.wait(lambda: self.said("Q", "done"))

    def finish(self) -> None:
        """End all processes, and wait until the last one has."""
        self.touch("all.end")
        self.wait(lambda: not any(map(_is_running, self.pids())))
        self._parent.wait()

    def pids(self) -> list[int]:
        return [self.pid(actor) for actor in "PCS"]

    def kill(self) -> None:
        for line in self.lines:
            if line[1].startswith("pid="):
                with suppress(ProcessLookupError):
                    os.kill(int(line[1].removeprefix("pid=")), signal.SIGKILL)
        self._parent.kill()
        self._parent.wait()
        for reader in self._readers:
            reader.join()


def _is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


@contextmanager
def begun(directory: Path, activity: str, ending: str) -> Generator[Round]:
    directory.mkdir()
    processes = Round(directory, activity, ending)
    try:
        yield processes
    finally:
        processes.kill()


def play(directory: Path, combination: Combination) -> None:
    activity, ending, third = combination
    with begun(directory, activity, ending) as processes:
        for actor in "PC":
            processes.writes_more(actor)
        processes.wait(lambda: any(line[0] == "S" for line in processes.lines))
        going_on = processes.end_first(ending)
        processes.let_third(third)
        for actor in going_on:
            processes.writes_more(actor)
        processes.finish()
    judge(directory, processes.lines)


def judge(directory: Path, lines: list[list[str]]) -> None:
    assert not [line for line in lines if line[1] == "failed"]
    with closing(sqlite3.connect(directory / "state" / "kip30.db")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        found = {name.decode() for (name,) in connection.execute("SELECT name FROM kv")}
    acknowledged = {line[1] for line in lines if line[1].startswith(f"{line[0]}-")}
    assert acknowledged - found == set()
    fenced = [Fenced(*map(int, line[2:])) for line in lines if len(line) == 5 and line[0] != "T"]
    assert fenced
    assert overlapping(fenced) == []


def overlapping(fenced: list[Fenced]) -> list[tuple[Fenced, Fenced]]:
    """Return the pairs in which a write began after one of a later epoch was acknowledged."""
    return [
        (old, new)
        for old, new in itertools.product(fenced, fenced)
        if old.epoch < new.epoch and old.began > new.ended
    ]


def test_overlapping_leaders_would_be_found() -> None:
    old, new = Fenced(1, 30, 40), Fenced(2, 10, 20)
    assert overlapping([old, new]) == [(old, new)]
    assert overlapping([Fenced(1, 5, 40), new]) == []


@pytest.mark.parametrize("combination", BRIEF, ids=" - ".join)
def test_a_round_of_forks_loses_nothing(tmp_path: Path, combination: Combination) -> None:
    play(tmp_path / "round", combination)


@pytest.mark.heavy
@pytest.mark.timeout(0)
def test_two_hundred_rounds_of_forks_lose_nothing(tmp_path: Path) -> None:
    for number, combination in zip(range(_ROUNDS), itertools.cycle(ALL), strict=False):
        _log.info("round %d: %s", number, " - ".join(combination))
        play(tmp_path / str(number), combination)
