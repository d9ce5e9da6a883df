"""Doing only a few things at a time, so that what somebody waits for gets through in between."""

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

from kip30.driver.kit.following import attempt, copy

T = TypeVar("T")

_Job = tuple[Callable[[], Future[Any]], Future[Any]]


class Few:
    """Begins work in the order in which it came, so much at a time. Thread-safe."""

    def __init__(self, most: int) -> None:
        """Have up to *most* pieces of work under way."""
        self._free = most
        self._waiting: deque[_Job] = deque()
        self._lock = threading.Lock()

    def do(self, work: Callable[[], Future[T]]) -> Future[T]:
        """Return what becomes of *work*, which may have to wait."""
        answer: Future[T] = Future()
        with self._lock:
            self._waiting.append((work, answer))
        self._go_on()
        return answer

    def _go_on(self) -> None:
        while (job := self._next()) is not None:
            work, answer = job
            done = attempt(work)
            if done.done():
                self._finish(answer, done)
            else:
                done.add_done_callback(partial(self._finish_and_go_on, answer))

    def _next(self) -> _Job | None:
        with self._lock:
            if not self._free or not self._waiting:
                return None
            self._free -= 1
            return self._waiting.popleft()

    def _finish(self, answer: Future[Any], done: Future[Any]) -> None:
        with self._lock:
            self._free += 1
        copy(done, answer)

    def _finish_and_go_on(self, answer: Future[Any], done: Future[Any]) -> None:
        self._finish(answer, done)
        self._go_on()
