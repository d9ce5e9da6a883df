"""Doing things at the same time: threads that start together, and the result of each."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from kip30 import Kip30Error

T = TypeVar("T")


def together(works: Sequence[Callable[[], T]]) -> list[T]:
    """Do all *works* at the same time, each on its own thread, and return their results.

    An error of one of them is raised here, after all have ended.
    """
    barrier = threading.Barrier(len(works))

    def do(work: Callable[[], T]) -> T:
        barrier.wait()
        return work()

    with ThreadPoolExecutor(len(works)) as pool:
        return list(pool.map(do, works))


def at_once(works: Sequence[Callable[[], T]]) -> list[T | Kip30Error]:
    """Do all *works* together, and return for each its result or the kip30 error it raised."""

    def outcome(work: Callable[[], T]) -> T | Kip30Error:
        try:
            return work()
        except Kip30Error as error:
            return error

    return together([partial(outcome, work) for work in works])
