"""Futures that the embedded store answers with: complete when they are made."""

import sqlite3
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

from kip30.driver.kit.futures import Completed, failed
from kip30.errors import Kip30Error
from kip30_backends.embedded.errors import raised_by_program, translate
from kip30_backends.embedded.faults import Faults

T = TypeVar("T")


class Answers:
    """Turns what a piece of work returns or raises into a future, faults included."""

    def __init__(self, file: Path, faults: Faults) -> None:
        """Name *file* in errors, and ask *faults* first."""
        self._file = file
        self.faults = faults

    def give(self, operation: str, subject: str, work: Callable[[], T]) -> Future[T]:
        """Do *work* now and return its outcome; *operation* and *subject* are for the faults."""
        if self.faults.armed:
            return self.faults.apply(operation, subject, lambda: self._attempt(work))
        return self._attempt(work)

    def _attempt(self, work: Callable[[], T]) -> Future[T]:
        try:
            return Completed(work())
        except (Kip30Error, sqlite3.Error, OSError) as error:
            if raised_by_program(error):
                raise
            return failed(translate(error, self._file))
