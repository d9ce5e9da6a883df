"""Serial reads of targets: one at a time of each, which all callers that wait for it share.

A serial read is a round of Paxos, and rounds of one partition displace each other. If a partition
answers slowly, reads that overlap make it slower, so that more of them overlap. Renewals in the
same partition then come too late, and sessions end.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial

from kip30.driver.kit.future_chaining import attempt, copy
from kip30.driver.records import Snapshot, Target

_Answers = list[Future[Snapshot]]


class TargetReads:
    """Reads targets with one function. Thread-safe."""

    def __init__(self, read: Callable[[Target], Future[Snapshot]]) -> None:
        """Read with *read*."""
        self._read = read
        # Of each target that is being read: the answers to callers that came after that read began,
        # so that they need the next one. Written under the lock.
        self._waiting: dict[Target, _Answers] = {}
        self._lock = threading.Lock()

    def read(self, target: Target) -> Future[Snapshot]:
        """Return the state of *target* from a read that begins now, or when the present one ends.

        Its time counts from its beginning: a caller that waits for it may give up earlier.
        """
        answer: Future[Snapshot] = Future()
        with self._lock:
            waiting = self._waiting.get(target)
            if waiting is not None:
                waiting.append(answer)
                return answer
            self._waiting[target] = []
        self._begin(target, [answer])
        return answer

    def _begin(self, target: Target, answers: _Answers) -> None:
        reading = attempt(self._read, target)
        reading.add_done_callback(partial(self._end, target, answers))

    def _end(self, target: Target, answers: _Answers, done: Future[Snapshot]) -> None:
        with self._lock:
            waiting = self._waiting[target]
            if waiting:
                self._waiting[target] = []
            else:
                del self._waiting[target]
        if waiting:
            self._begin(target, waiting)  # before callbacks of the answers, which may take time
        for answer in answers:
            copy(done, answer)
