"""The pages of a scan of the embedded store by sqlite3 alone."""

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from typing_extensions import override

from benchmarks.pipeline.replay import RawScan
from kip30_backends.embedded import scanning
from kip30_backends.embedded.scanning import open_copy

_PAGE_BEGINS = "SELECT CAST"


class EmbeddedScan(RawScan):
    """The same statements, on a connection of its own to the same copy, which stays open."""

    def __init__(self) -> None:
        self._statements: list[tuple[str, Any]] = []
        self._connection = sqlite3.connect(":memory:")

    @override
    @contextmanager
    def recording(self) -> Generator[None]:
        def opened(copy: Path) -> Any:
            self._connection = open_copy(copy)
            return _Noting(open_copy(copy), self._statements)

        with patch.object(scanning, "open_copy", opened):
            yield

    @override
    def read(self) -> int:
        pages = (self._connection.execute(*one).fetchall() for one in self._statements)
        return sum(map(len, pages))

    @override
    def close(self) -> None:
        self._connection.close()


class _Noting:
    """A connection that notes the statements that read pages."""

    def __init__(self, connection: sqlite3.Connection, noted: list[tuple[str, Any]]) -> None:
        self._connection = connection
        self._noted = noted

    def execute(self, sql: str, values: Any) -> sqlite3.Cursor:
        if sql.strip().startswith(_PAGE_BEGINS):
            self._noted.append((sql, values))
        return self._connection.execute(sql, values)

    def close(self) -> None:
        self._connection.close()
