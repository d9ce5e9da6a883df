"""The use of storage by a process: random calls, and writes under the fence of its leadership."""

import random
from collections.abc import Callable
from contextlib import suppress

from kip30 import (
    DefiniteError,
    Leadership,
    OutcomeUnknownError,
    Storage,
    UnsupportedError,
)
from kip30.driver.records import check_fence
from kip30.history.recorder import HistoryRecorder
from kip30.history.terms import Term
from kip30_conformance.clients.random_calls import Worker
from kip30_conformance.simulation.item_program import GuardedWrite
from kip30_conformance.simulation.present import simulation

KEYS = ["n/a", "n/b"]
_FENCED_KEY = KEYS[0]
_SECONDS_BETWEEN_CALLS = 3.0


class CallHistory:
    """The calls of all processes to storage, and the fences and guards of some of them."""

    def __init__(self, now: Callable[[], float]) -> None:
        """Take the times of *now*, in seconds: the clocks of the processes differ."""
        self.recorder = HistoryRecorder(now_ns=lambda: int(now() * 1e9))
        self.terms: list[Term] = []
        self.guarded_writes: list[GuardedWrite] = []


class StorageProgram:
    """The storage of one process."""

    def __init__(self, name: str, storage: Storage[str], history: CallHistory) -> None:
        """Record in *history* the calls of the process *name* to *storage*."""
        self._name = name
        self._storage = storage
        self._history = history
        self._chance = random.Random(f"storage {name}")  # noqa: S311  it repeats itself
        self._written = 0

    def work(self, is_over: Callable[[], bool]) -> None:
        """Make random calls until *is_over* returns true."""
        seed = self._chance.getrandbits(32)
        worker = Worker(self._storage, self._history.recorder, f"{self._name} any", KEYS, seed)
        while not is_over():
            simulation().park(self._chance.expovariate(1 / _SECONDS_BETWEEN_CALLS))
            worker.work(1)

    def write_under(self, leadership: Leadership, seconds: float) -> None:
        """Write under *leadership* at the beginning and the end of *seconds*."""
        recorder = self._history.recorder
        begun_ns = recorder.now_ns()
        self._write(leadership)
        simulation().park(seconds)
        self._write(leadership)
        held_ns = recorder.now_ns()
        if leadership.is_valid():
            self._history.terms.append(
                Term(leadership.service, leadership.epoch, begun_ns, held_ns)
            )

    def write_late(self, leadership: Leadership) -> None:
        """Write under *leadership* after it was resigned."""
        self._write(leadership)

    def _write(self, leadership: Leadership) -> None:
        fence = check_fence(leadership)
        self._written += 1
        value = f"{self._name} {fence.epoch} {self._written}"
        with (
            suppress(DefiniteError, OutcomeUnknownError, UnsupportedError),
            self._history.recorder.call(
                f"{self._name} leader", "set", _FENCED_KEY, value, fence=fence
            ) as call,
        ):
            call.ok(version=self._storage.set(_FENCED_KEY, value, fence=fence))
