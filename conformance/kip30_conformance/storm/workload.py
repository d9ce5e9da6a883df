"""The work of the threads of a client."""

import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from typing_extensions import override

from kip30 import KeyMissingError, Kip30Error, PluginLocator
from kip30.history.recorder import HistoryRecorder
from kip30_conformance.clients.random_calls import Worker
from kip30_conformance.storm.believed_terms import Validity
from kip30_conformance.storm.call_log import CallTimer
from kip30_conformance.storm.history_files import Rolling, Slices
from kip30_conformance.storm.names import FENCED_KEY, KEY_SET_KEYS, OBSERVED_KEY, registers
from kip30_conformance.storm.process_journal import ProcessJournal

_PAUSE_SECONDS = 0.06
_WRITE_SECONDS = 0.35


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionContext:
    """The needs of a action: its name, its client, and its recorders.

    Attributes:
        members: How many members of the group that divides items this process has.
        clients: How many clients the storm has.
        pause_factor: As for `Timing`.
    """

    process: str
    locator: PluginLocator
    calls: CallTimer
    journal: ProcessJournal
    history: Path
    slices: Slices
    members: int = 0
    clients: int = 0
    pause_factor: float = 1.0

    def rolling(self, kind: str) -> Rolling:
        """Return recorders for one action."""
        return Rolling(self.history, self.calls, kind, self.slices)


class RepeatedAction(ABC):
    """A repeated action, on a thread of its own, with pauses of random length.

    Attributes:
        name: Its name, which no other action of this process has.
        limit_seconds: How long it may take, once.
    """

    def __init__(
        self,
        context: ActionContext,
        name: str,
        pause_seconds: float,
        *,
        limit_seconds: float | None = None,
    ) -> None:
        """Run as *name*; *limit_seconds* is None for the limit of every call."""
        self.name = name
        self.limit_seconds = limit_seconds or context.calls.limit
        self._context = context
        self._pause = pause_seconds * context.pause_factor
        self._random = random.Random(f"{context.process} {name}")  # noqa: S311  to be repeated
        self._values = 0

    def run(self, stop: threading.Event) -> None:
        """Repeat it until *stop*."""
        while not stop.wait(self._random.uniform(0, 2 * self._pause)):
            kind = self.name.rstrip("0123456789")
            with self._context.calls.call(kind, limit_seconds=self.limit_seconds):
                self.act()
        self.end()

    @abstractmethod
    def act(self) -> None:
        """Do it once. An error of kip30 may escape, and is counted."""

    def end(self) -> None:  # noqa: B027  most take nothing
        """Release everything that it has acquired."""

    @property
    def _who(self) -> str:
        return f"{self._context.process} {self.name}"

    def _new_value(self, head: str = "") -> str:
        self._values += 1
        return f"{head}{self._who} {self._values}"


class Work(RepeatedAction):
    """Random calls to the registers of the moment."""

    def __init__(self, context: ActionContext, number: int) -> None:
        """Prepare one of several that do the same."""
        super().__init__(context, f"work{number}", _PAUSE_SECONDS)
        self._rolling = context.rolling("storage")
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

    def _new_worker(self, number: int, recorder: HistoryRecorder) -> Worker:
        seed = self._random.getrandbits(32)
        storage = self._context.locator.storage()
        return Worker(storage, recorder, self._who, registers(number), seed)


class Writing(RepeatedAction):
    """Writes that others are notified of, or that are fenced; each is recorded."""

    def __init__(
        self,
        context: ActionContext,
        name: str,
        *,
        kind: str = "",
        pause_seconds: float = _WRITE_SECONDS,
        limit_seconds: float | None = None,
    ) -> None:
        """Write as *name*; the outcomes count as those of *kind*, by default *name*."""
        super().__init__(context, name, pause_seconds, limit_seconds=limit_seconds)
        self._rolling = context.rolling(kind or name)
        self._storage = context.locator.storage()

    @override
    def end(self) -> None:
        self._rolling.close()

    def _recorder(self) -> HistoryRecorder:
        return self._rolling.recorder()[1]


class UpdateValue(Writing):
    """Updates of the value that all clients listen to."""

    @override
    def act(self) -> None:
        value = self._new_value()
        with self._recorder().call(self._who, "update", OBSERVED_KEY, value) as call:
            call.ok(version=self._storage.update(OBSERVED_KEY, value))


class ReplaceKeys(Writing):
    """Keys that are created and deleted in the set that all clients listen to."""

    def __init__(self, context: ActionContext, name: str) -> None:
        """Start with a deletion."""
        super().__init__(context, name)
        self._absent: str | None = None

    @override
    def act(self) -> None:
        """Delete a key, or put one that was absent: one call at a time."""
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

    def __init__(self, context: ActionContext, validity: Validity) -> None:
        """Fence with the newest term that *validity* knows."""
        super().__init__(context, "fenced")
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


class Look(RepeatedAction):
    """Reads of the members of the group and of the leader."""

    def __init__(
        self, context: ActionContext, name: str, read: Callable[[], object], *, requests: int = 1
    ) -> None:
        """Record the results of *read*, which makes *requests* requests one after the other."""
        limit = requests * context.calls.limit
        super().__init__(context, name, _WRITE_SECONDS, limit_seconds=limit)
        self._read = read

    @override
    def act(self) -> None:
        called = time.monotonic()
        try:
            seen = self._read()
        except Kip30Error as error:
            self._context.journal.write("unread", of=self.name, error=type(error).__name__)
            raise
        self._context.journal.write(f"read {self.name}", called=called, seen=seen)


class Take(RepeatedAction):
    """Takes a claim or listener that may be lost, and takes it again when it is."""

    def __init__(self, context: ActionContext, name: str, take: Callable[[], object]) -> None:
        """Call *take* repeatedly; it does nothing while there is nothing to take."""
        super().__init__(context, name, _WRITE_SECONDS)
        self._take = take

    @override
    def act(self) -> None:
        self._take()
