"""One request to the store: a future that is complete when it is made."""

import sqlite3
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

from kip30.driver.kit.futures import Completed, failed
from kip30.errors import Kip30Error
from kip30_backends.embedded.errors import raised_by_program, translate

T = TypeVar("T")


class Answers:
    """Turns what a piece of work returns or raises into a future."""

    def __init__(self, file: Path) -> None:
        """Name *file* in errors."""
        self._file = file

    def give(self, work: Callable[[], T]) -> Future[T]:
        """Do *work* now and return its outcome."""
        try:
            return Completed(work())
        except (Kip30Error, sqlite3.Error, OSError) as error:
            if raised_by_program(error):
                raise
            return failed(translate(error, self._file))
