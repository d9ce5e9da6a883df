"""Embedded stores of the tests' own: they declare less, take times down, or end their process."""

import os
import time
from collections.abc import Sequence
from concurrent.futures import Future, wait
from pathlib import Path

from kip30.driver import Capability, Context
from kip30.driver.records import Version, Write
from kip30_backends.embedded import EmbeddedBackend, EmbeddedSettings

TIMES = "times"
"""A folder beside that of the store."""


class WithoutCompareAndSet(EmbeddedBackend):
    """Writes over what is there, or creates what is not."""

    capabilities = EmbeddedBackend.capabilities - {Capability.COMPARE_AND_SET}


class Timed(EmbeddedBackend):
    """Writes down when each write was sent, by the clock that all processes share."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(context, settings)
        folder = settings.directory.parent / TIMES
        folder.mkdir(exist_ok=True)
        self._file = folder / str(os.getpid())
        self._write_many = self.storage.write_many
        vars(self.storage).update(write_many=self._noted)

    def _noted(self, writes: Sequence[Write]) -> list[Future[Version]]:
        with self._file.open("a") as file:
            file.write(f"{time.monotonic()}\n" * len(writes))
        return self._write_many(writes)


class EndsOnce(EmbeddedBackend):
    """Ends its process after the first writes, once for all processes."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(context, settings)
        self._mark = settings.directory.parent / "ended"
        self._write_many = self.storage.write_many
        vars(self.storage).update(write_many=self._ending)

    def _ending(self, writes: Sequence[Write]) -> list[Future[Version]]:
        futures = self._write_many(writes)
        if not self._mark.exists():
            wait(futures)
            self._mark.touch()
            os._exit(9)
        return futures


def times_beside(directory: Path) -> list[float]:
    """Return when all writes into the store in *directory* were sent, in order."""
    files = (directory.parent / TIMES).iterdir()
    return sorted(float(line) for file in files for line in file.read_text().splitlines())
