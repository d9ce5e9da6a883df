"""A limited amount of work at a time, from any thread, whenever the work ends."""

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

from kip30.driver.kit.futures import Completed
from kip30_backends.cassandra.partition_queue import ConcurrencyLimit

MOST = 4
CALLERS = 8
EACH = 100
SECONDS = 30


class Works:
    """Counts the work under way; another thread ends each piece."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self.under_way = self.peak = 0
        self._pool = pool
        self._lock = threading.Lock()

    def begin(self, number: int) -> Future[int]:
        with self._lock:
            self.under_way += 1
            self.peak = max(self.peak, self.under_way)
        return self._pool.submit(self._end, number)

    def _end(self, number: int) -> int:
        with self._lock:
            self.under_way -= 1
        return number


def test_many_threads_and_never_more_than_so_much() -> None:
    limiter = ConcurrencyLimit(MOST)
    with ThreadPoolExecutor(2 * MOST) as ending, ThreadPoolExecutor(CALLERS) as calling:
        works = Works(ending)

        def call(first: int) -> list[Future[int]]:
            numbers = range(first, first + EACH)
            return [limiter.do(partial(works.begin, number)) for number in numbers]

        begun = list(calling.map(call, range(0, CALLERS * EACH, EACH)))
        results = [one.result(SECONDS) for some in begun for one in some]
    assert results == list(range(CALLERS * EACH))
    assert works.peak <= MOST
    assert works.under_way == 0


def test_work_that_completes_at_once_takes_no_deep_stack() -> None:
    limiter = ConcurrencyLimit(1)
    first: Future[int] = Future()
    held = limiter.do(lambda: first)
    waiting = [limiter.do(lambda: Completed(1)) for _ in range(10_000)]
    assert not any(one.done() for one in waiting)
    first.set_result(0)
    assert held.result() == 0
    assert sum(one.result(SECONDS) for one in waiting) == 10_000
