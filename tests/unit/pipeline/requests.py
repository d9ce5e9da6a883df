"""Taking down what an applier asks of a store, and what happens in between."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from kip30.driver import StorageDriver
from kip30.driver.records import Entry, Version, Write
from kip30.names import Key

Answers = list[Future[Version]]


class Requests:
    """The requests to one driver, which does what it always does.

    Attributes:
        reads: How many keys each read was about.
        writes: How many writes were in each request.
        times: When each single write was sent, in seconds.
        before_write: Called before each request that writes.
        after_write: Called after it; may return other answers.
    """

    def __init__(self, driver: StorageDriver) -> None:
        self.reads: list[int] = []
        self.writes: list[int] = []
        self.times: list[float] = []
        self.before_write: Callable[[], object] = lambda: None
        self.after_write: Callable[[Answers], Answers] = lambda answers: answers
        self._read, self._write_many = driver.read, driver.write_many
        vars(driver).update(read=self.read, write_many=self.write_many)

    def read(self, keys: Sequence[Key]) -> Future[list[Entry | None]]:
        self.reads.append(len(keys))
        return self._read(keys)

    def write_many(self, writes: Sequence[Write]) -> Answers:
        self.before_write()
        self.writes.append(len(writes))
        self.times += [time.monotonic()] * len(writes)
        return self.after_write(self._write_many(writes))

    def counted(self) -> tuple[list[int], list[int]]:
        """Return the sizes of all reads and writes since the last call, and forget them."""
        told = (self.reads[:], self.writes[:])
        self.reads.clear()
        self.writes.clear()
        return told
