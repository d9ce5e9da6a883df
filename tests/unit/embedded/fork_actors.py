"""The processes of one round of the fork matrix: fork_actors.py DIRECTORY ACTIVITY ENDING.

The parent P keeps ACTIVITY going while it forks the child C and a sibling S. ENDING is what P does
when the file ``P.end`` appears: ``exit`` or ``close``. C ends on ``C.end``, S begins on ``S.go``,
all end on ``all.end``. ``fork_actors.py DIRECTORY third get|put`` is a third process.

Each line of output is an acknowledged write, ``ACTOR key`` or ``ACTOR key EPOCH BEGAN ENDED`` (of a
fenced one, in monotonic nanoseconds), or ``ACTOR pid=N``, or ``ACTOR done``.
"""

import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from kip30 import FencedError, LeaderElection, PluginLocator, Storage, UnavailableError

PAUSE = 0.002


class Actor:
    """One process with a locator of its own."""

    def __init__(self, name: str, directory: Path) -> None:
        self.name = name
        self.directory = directory
        self.locator = start(directory / "state")
        self.storage: Storage[str] = self.locator.storage()
        self.election: LeaderElection[str] = self.locator.leader_election("svc")

    def put(self, key: str) -> None:
        self.storage.put(f"{self.name}-{key}", "x")
        say(f"{self.name} {self.name}-{key}")

    def put_fenced(self, key: str) -> None:
        leadership = self.election.leadership(self.name)
        if leadership is None:
            return
        began = time.monotonic_ns()
        try:
            self.storage.put(f"{self.name}-f{key}", "x", fence=leadership)
        except FencedError:
            return
        times = f"{leadership.epoch} {began} {time.monotonic_ns()}"
        say(f"{self.name} {self.name}-f{key} {times}")

    def write_until(self, ended: Callable[[], bool]) -> None:
        number = 0
        while not ended():
            self.put(str(number))
            self.put_fenced(str(number))
            number += 1
            time.sleep(PAUSE)

    def has(self, *files: str) -> bool:
        return any((self.directory / file).exists() for file in files)

    def close(self) -> None:
        self.locator.close()
        say(f"{self.name} done")


def start(directory: Path) -> PluginLocator:
    settings = {"plugin.backend": "embedded", "plugin.embedded.directory": str(directory)}
    return PluginLocator().startup(settings)


def say(line: str) -> None:
    os.write(1, line.encode() + b"\n")


def fork(name: str, work: Callable[[], None]) -> None:
    pid = os.fork()
    if pid == 0:
        try:
            say(f"{name} pid={os.getpid()}")
            work()
        except BaseException as error:  # noqa: BLE001  the test judges by what is said
            say(f"{name} failed {error!r}")
        os._exit(0)


def be_child(directory: Path) -> None:
    actor = Actor("C", directory)
    actor.election.nominate("C", "")
    actor.write_until(lambda: actor.has("C.end", "all.end"))
    actor.close()


def be_sibling(directory: Path) -> None:
    while not (directory / "S.go").exists():
        if (directory / "all.end").exists():
            return
        time.sleep(PAUSE)
    be_brief("S", directory)


def be_brief(name: str, directory: Path) -> None:
    actor = Actor(name, directory)
    actor.election.nominate(name, "")
    for number in range(10):
        actor.put(str(number))
        actor.put_fenced(str(number))
    actor.close()


def read_on(actor: Actor) -> None:
    while True:
        actor.storage.get("P-0")


def write_on(actor: Actor, thread: int) -> None:
    number = 0
    while True:
        number += 1
        try:
            actor.put(f"w{thread}-{number}")
        except UnavailableError:
            continue
        time.sleep(PAUSE)


def start_others_on(actor: Actor) -> None:
    number = 0
    while True:
        number += 1
        start(actor.directory / "state").close()
        start(actor.directory / f"other{number % 5}").close()


def keep_busy(actor: Actor, activity: str) -> None:
    works: dict[str, list[Callable[[], None]]] = {
        "idle": [],
        "reading": [lambda: read_on(actor)] * 2,
        "writing": [lambda: write_on(actor, 0), lambda: write_on(actor, 1)],
        "leading": [],
        "startup": [lambda: start_others_on(actor)],
    }
    for work in works[activity]:
        threading.Thread(target=quietly, args=(work,), daemon=True).start()
    if activity == "leading":
        actor.election.nominate("P", "")


def quietly(work: Callable[[], None]) -> None:
    try:
        work()
    except Exception as error:  # noqa: BLE001  closing the locator ends the threads so
        say(f"T {error!r}")


def be_parent(directory: Path, activity: str, ending: str) -> None:
    actor = Actor("P", directory)
    say(f"P pid={os.getpid()}")
    actor.put("first")
    keep_busy(actor, activity)
    fork("C", lambda: be_child(directory))
    fork("S", lambda: be_sibling(directory))
    actor.write_until(lambda: actor.has("P.end", "all.end"))
    if ending == "exit" and actor.has("P.end"):
        os._exit(0)
    actor.close()
    while not actor.has("all.end"):
        time.sleep(PAUSE)
    os._exit(0)


def be_third(directory: Path, what: str) -> None:
    if what == "put":
        be_brief("Q", directory)
        return
    locator = start(directory / "state")
    locator.storage().get("P-first")
    locator.close()
    say("Q done")


def main() -> None:
    directory, *words = sys.argv[1:]
    if words[0] == "third":
        be_third(Path(directory), words[1])
    else:
        be_parent(Path(directory), *words)


if __name__ == "__main__":
    main()
