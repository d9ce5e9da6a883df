"""Feeds whose processes and servers are killed again and again while programs write at both ends.

``KIP30_FEED_KILLS`` is the number of kills for each source.
"""

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from kip30 import KeyMissingError, Storage
from kip30.cli._exit_codes import Status
from kip30_conformance.polling import eventually, time_scale

from .feeding import acknowledged, storage_of
from .stores import STORES, Stores, stores_in, taking_turns

pytestmark = pytest.mark.large

KILLS = int(os.environ.get("KIP30_FEED_KILLS", "6"))
TARGETS = dict(zip(STORES, (*STORES[1:], STORES[0]), strict=True))
"""The target of each source: each store is a target once."""
CHANCE = random.Random()  # noqa: S311  when a process is killed, and what programs write
MARK = "n/mark"
WRITERS = 3


class Feed:
    """The command, which is started again whenever it has ended."""

    def __init__(self, source: Path, target: Path, out: Path) -> None:
        self._words = ["feed", str(source), str(target), "--out", str(out), "--interval", "1"]
        self._out = out
        self._stderr = out.with_name("feed.stderr")
        self.process = self._started()

    def start_if_ended(self) -> None:
        """Start the command again if it has ended, as a kill or a store without answer ends it."""
        status = self.process.poll()
        if status is not None:
            expected = {-signal.SIGKILL, Status.INCOMPLETE, Status.UNAVAILABLE}
            assert status in expected, self._stderr.read_text()[-8_000:]
            self.process = self._started()

    def once(self) -> None:
        """Apply all that there is; findings are allowed."""
        done = subprocess.run(
            self._command("--once"), check=False, capture_output=True, timeout=300 * time_scale()
        )
        assert done.returncode in {Status.OK, Status.REFUSED}, done.stderr[-4_000:]

    def kill(self) -> None:
        """Kill the command with all of its processes."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def kill_child(self, name: str) -> bool:
        """Kill a process whose name begins with *name*; false if there is none, as at the start."""
        with suppress(psutil.NoSuchProcess):
            children = psutil.Process(self.process.pid).children(recursive=True)
            for child in [one for one in children if one.name().startswith(name)][-1:]:
                child.kill()
                return True
        self.start_if_ended()
        return False

    def _started(self) -> "subprocess.Popen[bytes]":
        with self._stderr.open("ab") as stderr:
            return subprocess.Popen(
                self._command(),
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                start_new_session=True,
            )

    def _command(self, *more: str) -> list[str]:
        resume = ["--resume"] if (self._out / "manifest.json").exists() else []
        return [sys.executable, "-m", "kip30", "pipeline", *self._words, *resume, *more]


class Program:
    """A program that writes to a store, and repeats each write until it is acknowledged."""

    def __init__(self, storage: Storage[bytes]) -> None:
        self._storage = storage
        self.last: dict[str, bytes] = {}

    def set(self, key: str, value: bytes) -> None:
        acknowledged(lambda: self._storage.set(key, value))
        self.last[key] = value

    def delete(self, key: str) -> None:
        with suppress(KeyMissingError):
            acknowledged(lambda: self._storage.delete(key))


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stores]:
    with stores_in(tmp_path_factory.mktemp("stores")) as found:
        yield found


@pytest.mark.timeout(300 + 120 * KILLS)
@pytest.mark.parametrize("source", STORES)
def test_the_target_equals_the_source_in_the_end(
    stores: Stores, source: str, tmp_path: Path
) -> None:
    """What a program wrote at the target stays; all other keys are as at the source."""
    target = TARGETS[source]
    configs = stores.config(source, "from"), stores.config(target, f"from-{source}")
    feed = Feed(*configs, tmp_path / "run")
    with ExitStack() as opened:
        opened.callback(feed.kill)
        here, there = (opened.enter_context(storage_of(config)) for config in configs)
        foreign = Program(there)
        with _writing(Program(here)), _overwriting(foreign):
            for number in range(KILLS):
                if number % 2 == 0:
                    _await_mark(feed, here, there, number)
                _kill(number, feed, stores, (source, target))
            _await_mark(feed, here, there, KILLS)
        feed.kill()
        feed.once()
        expected = _contents(here) | foreign.last
        assert _contents(there) == expected


def _kill(number: int, feed: Feed, stores: Stores, ends: tuple[str, str]) -> None:
    """Kill what has its turn, a process of the feed, all or a server, at a random moment."""
    feed.start_if_ended()
    with suppress(subprocess.TimeoutExpired):
        feed.process.wait(CHANCE.uniform(0, 15))
    servers = [end for end in ends if end != "embedded"]
    kinds = [*servers, "java", "python", "driver", "all"]
    kind = kinds[number % len(kinds)]
    if kind == "all":
        feed.kill()
    elif kind in servers:
        stores.ensemble(kind).restart()
    elif kind == "driver":
        feed.process.kill()
    else:
        eventually(lambda: feed.kill_child(kind), within=60, what=f"a process {kind} is killed")


@contextmanager
def _writing(program: Program) -> Iterator[None]:
    """Write, delete and create the keys of the source."""

    def turn_of(writer: int, turn: int) -> None:
        key = f"n/k{writer}-{CHANCE.randrange(20):02}"
        if turn % 4 == 3:
            program.delete(key)
        else:
            program.set(key, CHANCE.randbytes(CHANCE.choice([8, 8, 8, 50_000])))
        program.set(f"n/shared-{CHANCE.randrange(5)}", CHANCE.randbytes(8))

    with taking_turns(WRITERS, turn_of):
        yield


@contextmanager
def _overwriting(program: Program) -> Iterator[None]:
    """Write at the target what the source has as well, and keys that it does not have."""

    def turn_of(_: int, turn: int) -> None:
        name = "shared" if turn % 2 else "own"
        program.set(f"n/{name}-{CHANCE.randrange(5)}", CHANCE.randbytes(8))

    with taking_turns(1, turn_of):
        yield


def _await_mark(feed: Feed, here: Storage[bytes], there: Storage[bytes], number: int) -> None:
    """Wait until a change that is made now has arrived."""
    mark = b"%d" % number
    acknowledged(lambda: here.set(MARK, mark))

    def has_arrived() -> bool:
        feed.start_if_ended()
        found = acknowledged(lambda: there.get(MARK))
        return found is not None and found.value == mark

    eventually(has_arrived, within=120, what=f"mark {number} has arrived")


def _contents(storage: Storage[bytes]) -> dict[str, bytes]:
    return dict(storage.fetch_many(storage.list("n")).result())
