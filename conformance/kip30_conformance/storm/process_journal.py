"""The journal of a process of the storm, beside its operations; a kill -9 loses no row."""

import json
import threading
import time
from pathlib import Path
from typing import Any

from typing_extensions import override

from kip30.driver.closeable import Closeable

Row = dict[str, Any]


class ProcessJournal(Closeable):
    """Rows of one process, in a file named after it. Thread-safe.

    Each row has ``what`` happened ``at`` which second of CLOCK_MONOTONIC, and the details.
    """

    def __init__(self, folder: Path, process: str) -> None:
        """Write to a new file in *folder*."""
        self.process = process
        self._file = (folder / f"{process}.jsonl").open("xb", buffering=0)
        self._lock = threading.Lock()

    def write(self, what: str, **more: Any) -> None:
        """Record that *what* has just happened."""
        row = {"what": what, "at": time.monotonic(), **more}
        with self._lock:
            self._file.write(f"{json.dumps(row)}\n".encode())

    @override
    def close(self) -> None:
        """Close the file; nothing may be written any more. Idempotent."""
        self._file.close()


def read_journals(folder: Path) -> dict[str, list[Row]]:
    """Return the rows of each process that left a journal in *folder*."""
    return {path.stem: read_journal(path) for path in sorted(folder.glob("*.jsonl"))}


def read_journal(path: Path) -> list[Row]:
    """Return the whole rows: a last one without an end was being written at the kill."""
    *whole, _torn = path.read_bytes().split(b"\n") if path.exists() else [b""]
    return [json.loads(line) for line in whole]
