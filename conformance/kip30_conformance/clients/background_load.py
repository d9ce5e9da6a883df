"""Clients that keep working in the background, and whether their events add up."""

import itertools
import random
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import TracebackType
from typing import Self

from kip30 import Storage
from kip30.history.linearizability import check
from kip30.history.operations import Operation
from kip30.history.recorder import HistoryRecorder
from kip30.history.storage_register import StorageRegister
from kip30.history.vacuity import missing_evidence
from kip30.history.verdict import Verdict
from kip30_conformance.clients.random_calls import Worker
from kip30_conformance.evidence import NoEvidenceError
from kip30_conformance.polling import eventually

_KEYS = ["load/a", "load/b"]
_PACE_SECONDS = 0.02
_NANO = 1e9


class Load:
    """One worker for each storage, from entering the context to its end."""

    def __init__(self, storages: Sequence[Storage[str]]) -> None:
        """Prepare to work on a few keys of *storages*, which are one store."""
        self._recorder = HistoryRecorder()
        self._workers = {
            name: Worker(storage, self._recorder, name, _KEYS, random.getrandbits(32))
            for name, storage in ((f"worker {n}", one) for n, one in enumerate(storages))
        }
        self._stopping = threading.Event()
        self._pool = ThreadPoolExecutor(len(storages), "load")

    def __enter__(self) -> Self:
        """Start."""
        self._working = [self._pool.submit(self._work, one) for one in self._workers.values()]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop the workers, and raise any unexpected exception of theirs."""
        self._stopping.set()
        self._pool.shutdown()
        for working in self._working:
            working.result()

    def rows(self) -> list[Operation]:
        """Return the calls made so far."""
        return self._recorder.rows()

    def has_progressed(self, since: float) -> bool:
        """Return whether every worker had a write acknowledged that it started after *since*."""
        return self._workers.keys() == {
            row.process for row in _writes(self.rows()) if row.called_ns > since * _NANO
        }

    def await_progress(self, *, within: float = 10.0) -> None:
        """Wait until every worker has had a write acknowledged that begins from now on."""
        now = time.monotonic()
        eventually(lambda: self.has_progressed(now), within=within, what="all workers write")

    def await_evidence(self, *, within: float = 5.0) -> None:
        """Wait until the calls can prove something; how they overlap is up to chance.

        Does nothing about calls that prove nothing in time: `expect_linearizable` reports them.
        """
        model = StorageRegister()
        with suppress(AssertionError):
            eventually(lambda: not missing_evidence(self.rows(), model), within=within)

    def expect_linearizable(self, faults: int | None = None) -> None:
        """Require one order of all calls to explain every answer, key by key."""
        expect_linearizable(self.rows(), faults)

    def silences(self) -> list[tuple[float, float]]:
        """Return the periods in which no write was acknowledged, the longest first."""
        ends = sorted(row.ends_ns / _NANO for row in _writes(self.rows()))
        return sorted(itertools.pairwise(ends), key=lambda gap: gap[0] - gap[1])

    def _work(self, worker: Worker) -> None:
        while not self._stopping.wait(_until_next_beat()):
            worker.work(1)


def _until_next_beat() -> float:
    """Return the delay after which all workers make their next call, so that calls overlap."""
    return _PACE_SECONDS - time.monotonic() % _PACE_SECONDS


def expect_linearizable(rows: Sequence[Operation], faults: int | None = None) -> None:
    """Require one order of all operations in *rows* to explain every answer, key by key.

    Raises:
        NoEvidenceError: They prove nothing.
    """
    model = StorageRegister()
    reasons = missing_evidence(rows, model, faults=faults)
    if reasons:
        raise NoEvidenceError("; ".join(reasons))
    report = check(rows, model)
    assert report.verdict is Verdict.OK, str(report)


def _writes(rows: Sequence[Operation]) -> list[Operation]:
    """Return the writes that were acknowledged."""
    return [row for row in rows if row.acknowledged and row.op != "get"]
