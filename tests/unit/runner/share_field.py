"""Real runners of shares with real commands in one folder, and the logs of both."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from kip30_conformance.polling import time_scale

from .field import HERE, TIMEOUT, Started, children, eventually, is_running

NO_LOOK = 1e6  # a timeout so long that a runner would first look in an hour

# Writes "generation pid time item" every 2 ms. At SIGTERM: "stubborn" goes on, "slow" notes
# "asked", and then "clean" after the number of microseconds in its second argument.
WORKER = r"""#!/bin/bash
exec 9<> <(:)
note() { echo "$1 $EPOCHREALTIME" >> "$KIP30_TEST_EVENTS"; }
tick() {
    echo "$KIP30_GENERATION $BASHPID $EPOCHREALTIME $KIP30_ITEM" >> "$KIP30_TEST_LOG"
    read -t 0.002 -u 9
}
clean_up() {
    note asked
    end=$((${EPOCHREALTIME/./} + $1))
    while [ "${EPOCHREALTIME/./}" -lt "$end" ]; do tick; done
    note clean
    exit 0
}
case "$1" in
    tree) "$0" stubborn & setsid "$0" stubborn & (setsid "$0" stubborn &) ;;
    stubborn) trap '' TERM INT HUP QUIT ;;
    slow) trap "clean_up $2" TERM ;;
esac
while :; do tick; done
"""


class Work(NamedTuple):
    generation: int
    pid: int
    time: float
    item: str = ""


class ShareField:
    """A folder with the share of one member, its runner, and the log of its commands."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log, self.events_file = folder / "log", folder / "events"
        for file in (self.log, self.events_file):
            file.touch()
        self.worker = folder / "worker"
        self.worker.write_text(WORKER)
        self.worker.chmod(0o755)
        self._started: list[Started] = []
        self.give()

    def give_each(self, *gone: str, **more: int) -> None:
        """Give the member each item of *more* in that generation, and let it lose those *gone*."""
        down, renewed = bool(more.pop("down", 0)), bool(more.pop("renewed", 1))
        self._write({"each": more, "gone": gone, "down": down, "renewed": renewed})

    def give(self, generation: int = 0, *items: str, **more: bool) -> None:
        """Give the member *items* in *generation*; see `tiny_share_runner.Given`."""
        self._write({"generation": generation, "items": items, **more})

    def _write(self, given: Mapping[str, object]) -> None:
        fresh = self.folder / "fresh"
        fresh.write_text(json.dumps(given))
        fresh.rename(self.folder / "share")

    def start(
        self,
        *command: object,
        options: tuple[str, ...] = (),
        timeout: float = TIMEOUT * time_scale(),
        through: tuple[str, ...] = (),
    ) -> Started:
        """Start a runner, by the program *through*; without *command* it runs a worker."""
        words = [str(word) for word in command or (self.worker,)]
        program = [
            *through,
            sys.executable,
            str(HERE / "tiny_share_runner.py"),
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
                "KIP30_TEST_EVENTS": str(self.events_file),
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._started.append(Started(process))
        return self._started[-1]

    def work(self) -> list[Work]:
        whole = self.log.read_text().rpartition("\n")[0]
        fields = (line.split() for line in whole.splitlines())
        return [
            Work(int(generation), int(pid), float(time), *item)
            for generation, pid, time, *item in fields
        ]

    def await_work(self, generation: int, pids: int = 1) -> list[Work]:
        """Return what *pids* processes of *generation* have written."""

        def find() -> list[Work] | None:
            work = [w for w in self.work() if w.generation == generation]
            return work if len({w.pid for w in work}) >= pids else None

        return eventually(find)

    def await_item(self, item: str, generation: int, pids: int = 1) -> set[int]:
        """Return the *pids* processes that work on *item*, got in *generation*."""

        def find() -> set[int] | None:
            found = {w.pid for w in self.work() if (w.item, w.generation) == (item, generation)}
            return found if len(found) >= pids else None

        return eventually(find)

    def times(self, word: str) -> list[float]:
        """Return when *word* was noted."""
        whole = self.events_file.read_text().rpartition("\n")[0]
        fields = (line.split() for line in whole.splitlines())
        return [float(time) for noted, time in fields if noted == word]

    def await_event(self, word: str) -> float:
        return eventually(lambda: self.times(word))[0]

    def close(self) -> None:
        for started in self._started:
            for pid in (started.pid, *children(started.pid)):
                if is_running(pid):
                    os.kill(pid, signal.SIGCONT)
        for started in self._started:
            if started.process.poll() is None:
                started.send(signal.SIGKILL)
            started.process.communicate()
