"""Batches items into requests: few requests are in flight at a time, and new items wait."""

import threading
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class BatchQueue(Generic[T]):
    """Items that wait for a request to carry them. Thread-safe.

    So a single item is sent at once, and under load each request carries many.
    """

    def __init__(self, *, most: int, under_way: int) -> None:
        """Allow *under_way* requests in flight at a time, of at most *most* items each."""
        self._most = most
        self._limit = under_way
        # Both are written under the lock.
        self._waiting: deque[T] = deque()
        self._under_way = 0
        self._lock = threading.Lock()

    def add(self, item: T) -> bool:
        """Queue *item*; return whether the caller must send a request, with what `take` returns."""
        with self._lock:
            self._waiting.append(item)
            if self._under_way == self._limit:
                return False
            self._under_way += 1
            return True

    def take(self) -> list[T]:
        """Return the items of the next request.

        The sender calls this again after each of its requests, until nothing is returned: then it
        no longer has one in flight.
        """
        with self._lock:
            count = min(self._most, len(self._waiting))
            items = [self._waiting.popleft() for _ in range(count)]
            # Under the same lock as the check, so that no item is left without a request.
            self._under_way -= not items
            return items
