"""Every call that a client makes: how it ended, and whether it ended in time."""

import faulthandler
import threading
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from kip30 import Kip30Error
from kip30.history.operations import Outcome
from kip30.history.recorder import outcome_of
from kip30_conformance.storm.heartbeat import Heartbeat
from kip30_conformance.storm.journal import Journal

_STUCK = 3
"""A call that runs for so many times its limit is taken for one that never ends."""


class Calls:
    """Times calls, and takes down in the journal those that last too long. Thread-safe."""

    def __init__(self, journal: Journal, limit_seconds: float) -> None:
        """Expect every call to end within *limit_seconds*."""
        self._journal = journal
        self._limit = limit_seconds
        self._heartbeat = Heartbeat()
        self._running: dict[object, tuple[str, float]] = {}
        self._stuck: set[object] = set()
        self._ended: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._worst: defaultdict[str, float] = defaultdict(float)
        self._lock = threading.Lock()

    @contextmanager
    def call(self, kind: str, *, limit_seconds: float | None = None) -> Generator[None]:
        """Time what is done in the block; what it raises is counted, and an error of kip30 ends.

        Everything that is not an error of kip30 is a violation, and is taken down.
        """
        token, started = object(), time.monotonic()
        self._running[token] = (kind, started)
        outcome = Outcome.OK.value
        try:
            yield
        except Kip30Error as error:
            outcome = outcome_of(error).value
        except Exception as error:  # noqa: BLE001  kip30 must not raise it: it is to be told
            outcome = "broken"
            self._journal.write("broken", kind=kind, text="".join(_lines(error)))
        finally:
            del self._running[token]
            self._take_down(kind, outcome, started, limit_seconds or self._limit)

    def count(self, kind: str, outcome: Outcome) -> None:
        """Count an outcome that was seen elsewhere."""
        with self._lock:
            self._ended[kind][outcome.value] += 1

    def look(self) -> None:
        """Take down what runs for too long, once, and all counts so far."""
        now = time.monotonic()
        for token, (kind, started) in list(self._running.items()):
            seconds = now - started - self._heartbeat.missed(started)
            if seconds > _STUCK * self._limit and token not in self._stuck:
                self._stuck.add(token)
                self._journal.write("stuck", kind=kind, seconds=seconds, text="")
                faulthandler.dump_traceback()  # into the log of this client
        self._journal.write("calls", **self.counted())

    def counted(self) -> dict[str, Any]:
        """Return how many calls of each kind ended how, and how long the longest one took."""
        with self._lock:
            ended = {kind: dict(counts) for kind, counts in self._ended.items()}
            return {"ended": ended, "worst": dict(self._worst), "running": len(self._running)}

    def _take_down(self, kind: str, outcome: str, started: float, limit: float) -> None:
        seconds = time.monotonic() - started
        stalled = self._heartbeat.missed(started)
        with self._lock:
            self._ended[kind][outcome] += 1
            self._worst[kind] = max(self._worst[kind], seconds - stalled)
        if seconds > limit:
            self._journal.write(
                "slow", kind=kind, seconds=seconds, stalled=stalled, limit=limit, outcome=outcome
            )


def _lines(error: BaseException) -> list[str]:
    return traceback.format_exception(error)[-6:]
