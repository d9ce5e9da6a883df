"""Serial reads of targets: one at a time of each, which all callers that wait for it share.

A serial read is a round of Paxos, and rounds of one partition displace each other. If a partition
answers slowly, reads that overlap make it slower, so that more of them overlap. Renewals in the
same partition then come too late, and sessions end.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial

from kip30.driver.kit.futures import attempt, copy, failed
from kip30.driver.records import Snapshot, Target
from kip30.errors import UnavailableError

_Answers = list[Future[Snapshot]]


class SerialReads:
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
            waiting = self._waiting[target] = []
        self._begin(target, [answer], waiting)
        return answer

    def _begin(self, target: Target, answers: _Answers, waiting: _Answers) -> None:
        """Read *target* for *answers*; callers that come meanwhile append to *waiting*."""
        end = partial(self._end, target, answers, waiting)
        try:
            attempt(self._read, target).add_done_callback(end)
        except BaseException:  # an interrupt of the caller: otherwise no later one was answered
            end(failed(UnavailableError("the read was interrupted as it began: read again")))
            raise

    def _end(
        self, target: Target, answers: _Answers, waiting: _Answers, done: Future[Snapshot]
    ) -> None:
        following = self._following(target, waiting)
        if following is not None:  # before callbacks of the answers, which may take time
            self._begin(target, waiting, following)
        for answer in answers:
            copy(done, answer)

    def _following(self, target: Target, waiting: _Answers) -> _Answers | None:
        """Return the list for callers during the next read; None if none follows."""
        with self._lock:
            if self._waiting.get(target) is not waiting:  # an interrupt has ended this read before
                return None
            if not waiting:
                del self._waiting[target]
                return None
            following = self._waiting[target] = []
            return following
