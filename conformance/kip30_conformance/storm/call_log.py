"""All calls that a client makes: their outcomes, and whether they ended in time."""

import faulthandler
import threading
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from typing_extensions import override

from kip30 import Kip30Error
from kip30.driver.closeable import Closeable
from kip30.history.operations import Outcome
from kip30.history.recorder import outcome_of
from kip30_conformance.stall_detector import StallDetector
from kip30_conformance.storm.process_journal import ProcessJournal

_STUCK = 3
"""A call that runs for this many times its limit is considered never to end."""


class CallTimer(Closeable):
    """Times calls, and records in the journal those that last too long. Thread-safe.

    Attributes:
        limit: The seconds within which a call must end, unless it has a limit of its own.
    """

    def __init__(self, journal: ProcessJournal, limit_seconds: float) -> None:
        """Expect every call to end within *limit_seconds*."""
        self._journal = journal
        self.limit = limit_seconds
        self._stalls = StallDetector()
        self._running: dict[object, tuple[str, float, float]] = {}
        self._stuck: set[object] = set()
        self._ended: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._worst: defaultdict[str, float] = defaultdict(float)
        self._lock = threading.Lock()

    @contextmanager
    def call(self, kind: str, *, limit_seconds: float | None = None) -> Generator[None]:
        """Time the block; its error is counted, and an error of kip30 is suppressed.

        Any other error is a violation, and is recorded.
        """
        token, started, limit = object(), time.monotonic(), limit_seconds or self.limit
        self._running[token] = (kind, started, limit)
        outcome = Outcome.OK.value
        try:
            yield
        except Kip30Error as error:
            outcome = outcome_of(error).value
        except Exception as error:  # noqa: BLE001  kip30 must not raise it: it is a finding
            outcome = "broken"
            self.record_broken(kind, error)
        finally:
            del self._running[token]
            self._take_down(kind, outcome, started, limit)

    def record_broken(self, kind: str, error: BaseException) -> None:
        """Record an error that is not one of kip30's, which has ended a call or a thread."""
        self._journal.write("broken", kind=kind, text="".join(_lines(error)))

    @override
    def close(self) -> None:
        """Stop the detector of stalls. Idempotent."""
        self._stalls.close()

    def count(self, kind: str, outcome: Outcome) -> None:
        """Count an outcome that was seen elsewhere."""
        with self._lock:
            self._ended[kind][outcome.value] += 1

    def look(self) -> None:
        """Record each call that runs for too long, once, and all counts so far."""
        now = time.monotonic()
        for token, (kind, started, limit) in list(self._running.items()):
            seconds = now - started - self._stalls.stalled_seconds(started)
            if seconds > _STUCK * limit and token not in self._stuck:
                self._stuck.add(token)
                self._journal.write("stuck", kind=kind, seconds=seconds, text="")
                faulthandler.dump_traceback()  # into the log of this client
        self._journal.write("calls", **self.counted())

    def counted(self) -> dict[str, Any]:
        """Return the number of calls of each kind by outcome, and the longest duration of each."""
        with self._lock:
            ended = {kind: dict(counts) for kind, counts in self._ended.items()}
            return {"ended": ended, "worst": dict(self._worst), "running": len(self._running)}

    def _take_down(self, kind: str, outcome: str, started: float, limit: float) -> None:
        seconds = time.monotonic() - started
        stalled = self._stalls.stalled_seconds(started)
        with self._lock:
            self._ended[kind][outcome] += 1
            self._worst[kind] = max(self._worst[kind], seconds - stalled)
        if seconds > limit:
            self._journal.write(
                "slow", kind=kind, seconds=seconds, stalled=stalled, limit=limit, outcome=outcome
            )


def _lines(error: BaseException) -> list[str]:
    return traceback.format_exception(error)[-6:]
