"""Records histories while they happen, in one process or in many.

A call is in the file before its operation is sent, so a process killed in the
middle leaves an operation without an answer, and not a value without an operation.
"""

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kip30.driver.records import Fence, Version
from kip30.errors import DefiniteError, UnsupportedError, UsageError
from kip30.history.operations import (
    Operation,
    Outcome,
    Value,
    from_fields,
    to_fields,
)


def outcome_of(error: BaseException) -> Outcome:
    """Return whether an operation that raised *error* was certainly not done."""
    definite = isinstance(error, DefiniteError | UsageError | UnsupportedError)
    return Outcome.FAIL if definite else Outcome.UNKNOWN


class HistoryRecorder:
    """Records the operations of one process, from any of its threads.

    Values must be JSON values.

    Attributes:
        now_ns: The clock. It must be one that all processes of the history share.
    """

    def __init__(
        self, directory: Path | None = None, *, now_ns: Callable[[], int] | None = None
    ) -> None:
        """Keep rows in memory and, with *directory*, also in a new file there.

        *now_ns* is the clock, in nanoseconds. Without it times are of CLOCK_MONOTONIC, which all
        processes of a machine share, unless one lives in a time namespace.
        """
        self.now_ns: Callable[[], int] = now_ns or _now_ns
        self._numbers = count()
        self._running: dict[int, Operation] = {}
        self._finished: list[Operation] = []
        self._file = None if directory is None else _new_file(directory).open("xb", buffering=0)

    def call(
        self, process: str, op: str, key: str, *args: Value, fence: Fence | None = None
    ) -> "Invocation":
        """Return a context in which *process* does *op* on *key* with *args*, and under *fence*."""
        begun = partial(Operation, key=key, process=process, op=op, args=args, fence=fence)
        return Invocation(self, begun)

    def rows(self) -> list[Operation]:
        """Return all operations so far; those still running as without an answer."""
        return [*self._running.copy().values(), *self._finished]

    def close(self) -> None:
        """Close the file, after the last call has ended. The rows in memory stay."""
        if self._file is not None:
            self._file.close()

    def begin(self, operation: Operation) -> int:
        """Record a call that is about to be sent, and return its number."""
        number = next(self._numbers)
        self._running[number] = operation
        self._write({"number": number, **to_fields(operation)})
        return number

    def end(self, number: int, **answer: Any) -> None:
        """Record the *answer* to a call, as fields of its operation.

        Raises:
            KeyError: It has been answered before.
        """
        operation = replace(self._running[number], **answer)
        self._finished.append(operation)
        del self._running[number]
        self._write({"number": number, **to_fields(operation)})

    def _write(self, fields: dict[str, Any]) -> None:
        if self._file is not None:
            self._file.write(f"{json.dumps(fields)}\n".encode())


class Invocation:
    """One operation being recorded. Its time runs from entering the context to the answer.

    An error that leaves the context is the answer if none was given: the kinds of
    `kip30.errors` say what it means. It is passed on.
    """

    def __init__(self, recorder: HistoryRecorder, operation: Callable[..., Operation]) -> None:
        """Use `HistoryRecorder.call` instead."""
        self._recorder = recorder
        self._operation = operation
        self._number: int | None = None

    def __enter__(self) -> Self:
        """Record the call."""
        self._number = self._recorder.begin(self._operation(called_ns=self._recorder.now_ns()))
        return self

    def ok(self, result: Value = None, *, version: Version | None = None) -> None:
        """It was done, and returned *result* or a *version*, or both."""
        self._end(Outcome.OK, returned_ns=self._recorder.now_ns(), result=result, version=version)

    def fail(self, error: str) -> None:
        """It was certainly not done, for the reason called *error*."""
        self._end(Outcome.FAIL, returned_ns=self._recorder.now_ns(), result=error)

    def unknown(self) -> None:
        """There was no answer; it may be done at any later time."""
        self._end(Outcome.UNKNOWN)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Record the error, or the lack of an answer, as the answer."""
        if self._number is None:
            return
        if error is not None and outcome_of(error) is Outcome.FAIL:
            self.fail(type(error).__name__)
        else:
            self.unknown()

    def _end(self, outcome: Outcome, **answer: Any) -> None:
        if self._number is None:
            raise UsageError("this call has an answer already, or was never entered")
        self._recorder.end(self._number, outcome=outcome, **answer)
        self._number = None


def read_rows(directory: Path) -> list[Operation]:
    """Return the operations in all files that recorders left in *directory*.

    Raises:
        ValueError: A file was not written by a recorder.
    """
    return [row for path in sorted(directory.glob("*.jsonl")) for row in _read_file(path)]


def _read_file(path: Path) -> Iterable[Operation]:
    latest = {fields["number"]: fields for fields in _lines(path)}
    return map(from_fields, latest.values())


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield complete lines: an incomplete last one was being written at the kill."""
    *whole, _torn = path.read_bytes().split(b"\n")
    return map(json.loads, whole)


def _new_file(directory: Path) -> Path:
    return directory / f"{os.getpid()}-{_now_ns()}.jsonl"


def _now_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)
