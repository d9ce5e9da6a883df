"""What the threads of a client do all the time."""

import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from typing_extensions import override

from kip30 import KeyMissingError, Kip30Error, PluginLocator
from kip30.history.recorder import Recorder
from kip30_conformance.clients.random_calls import Worker
from kip30_conformance.storm.calls import Calls
from kip30_conformance.storm.journal import Journal
from kip30_conformance.storm.names import FENCED_KEY, KEY_SET_KEYS, TOLD_KEY, registers
from kip30_conformance.storm.recording import Rolling, Slices
from kip30_conformance.storm.validity import Validity

_PAUSE_SECONDS = 0.06
_WRITE_SECONDS = 0.35


@dataclass(frozen=True, slots=True, kw_only=True)
class Post:
    """What a duty needs: who does it, on which client, and where it is taken down."""

    process: str
    locator: PluginLocator
    calls: Calls
    journal: Journal
    history: Path
    slices: Slices

    def rolling(self, kind: str) -> Rolling:
        """Return recorders for one duty."""
        return Rolling(self.history, self.calls, kind, self.slices)


class Duty(ABC):
    """Something to do over and over, on a thread of its own, with pauses of random length."""

    def __init__(self, post: Post, name: str, pause_seconds: float) -> None:
        """Do it as *name*, which no other duty of this process has."""
        self.name = name
        self._post = post
        self._pause = pause_seconds
        self._random = random.Random(f"{post.process} {name}")  # noqa: S311  to be repeated
        self._values = 0

    def run(self, stop: threading.Event) -> None:
        """Do it until *stop*."""
        while not stop.wait(self._random.uniform(0, 2 * self._pause)):
            with self._post.calls.call(self.name.rstrip("0123456789")):
                self.act()
        self.end()

    @abstractmethod
    def act(self) -> None:
        """Do it once. An error of kip30 may escape, and is counted."""

    def end(self) -> None:  # noqa: B027  most take nothing
        """Give back what it has taken."""

    @property
    def _who(self) -> str:
        return f"{self._post.process} {self.name}"

    def _new_value(self, head: str = "") -> str:
        self._values += 1
        return f"{head}{self._who} {self._values}"


class Work(Duty):
    """Random calls to the registers of the moment."""

    def __init__(self, post: Post, number: int) -> None:
        """Be one of several that do the same."""
        super().__init__(post, f"work{number}", _PAUSE_SECONDS)
        self._rolling = post.rolling("storage")
        self._slice = -1
        self._worker: Worker | None = None

    @override
    def act(self) -> None:
        number, recorder = self._rolling.recorder()
        if self._worker is None or number != self._slice:
            self._slice, self._worker = number, self._new_worker(number, recorder)
        self._worker.work(1)

    @override
    def end(self) -> None:
        self._rolling.close()

    def _new_worker(self, number: int, recorder: Recorder) -> Worker:
        seed = self._random.getrandbits(32)
        storage = self._post.locator.storage()
        return Worker(storage, recorder, self._who, registers(number), seed)


class Writing(Duty):
    """Writes that others are notified of, or that are fenced; each is recorded."""

    def __init__(self, post: Post, name: str) -> None:
        """Write as *name*."""
        super().__init__(post, name, _WRITE_SECONDS)
        self._rolling = post.rolling(name)
        self._storage = post.locator.storage()

    @override
    def end(self) -> None:
        self._rolling.close()

    def _recorder(self) -> Recorder:
        return self._rolling.recorder()[1]


class Tell(Writing):
    """Updates of the value that all clients listen to."""

    @override
    def act(self) -> None:
        value = self._new_value()
        with self._recorder().call(self._who, "update", TOLD_KEY, value) as call:
            call.ok(version=self._storage.update(TOLD_KEY, value))


class Shuffle(Writing):
    """Keys that come and go in the set that all clients listen to."""

    def __init__(self, post: Post, name: str) -> None:
        """Begin with a deletion."""
        super().__init__(post, name)
        self._absent: str | None = None

    @override
    def act(self) -> None:
        """Delete a key, or put one that was not there to be deleted: one call at a time."""
        absent, self._absent = self._absent, None
        if absent is None:
            self._delete(self._random.choice(KEY_SET_KEYS))
        else:
            self._put(absent)

    def _delete(self, key: str) -> None:
        try:
            with self._recorder().call(self._who, "delete", key) as call:
                self._storage.delete(key)
                call.ok()
        except KeyMissingError:
            self._absent = key

    def _put(self, key: str) -> None:
        value = self._new_value()
        with self._recorder().call(self._who, "put", key, value) as call:
            call.ok(version=self._storage.put(key, value))


class Fenced(Writing):
    """Writes under the epoch of the newest term, and a few more after it has ended."""

    _AFTERWARDS = 5

    def __init__(self, post: Post, validity: Validity) -> None:
        """Fence with the newest term that *validity* knows."""
        super().__init__(post, "fenced")
        self._validity = validity
        self._refused: dict[int, int] = {}

    @override
    def act(self) -> None:
        term = self._validity.term
        if term is None or self._refused.get(term.epoch, 0) >= self._AFTERWARDS:
            return
        if not term.is_valid():
            self._refused[term.epoch] = self._refused.get(term.epoch, 0) + 1
        value = self._new_value(f"{term.epoch} ")
        with self._recorder().call(self._who, "update", FENCED_KEY, value) as call:
            call.ok(version=self._storage.update(FENCED_KEY, value, fence=term))


class Look(Duty):
    """Reads of who is in the group and who leads."""

    def __init__(self, post: Post, name: str, read: Callable[[], object]) -> None:
        """Take down what *read* returns."""
        super().__init__(post, name, _WRITE_SECONDS)
        self._read = read

    @override
    def act(self) -> None:
        called = time.monotonic()
        try:
            seen = self._read()
        except Kip30Error as error:
            self._post.journal.write("unread", of=self.name, error=type(error).__name__)
            raise
        self._post.journal.write(f"read {self.name}", called=called, seen=seen)


class Take(Duty):
    """Takes what may be lost, and takes it again: a membership, the leadership, a listener."""

    def __init__(self, post: Post, name: str, take: Callable[[], object]) -> None:
        """Call *take* again and again; it does nothing while nothing is to be done."""
        super().__init__(post, name, _WRITE_SECONDS)
        self._take = take

    @override
    def act(self) -> None:
        self._take()
