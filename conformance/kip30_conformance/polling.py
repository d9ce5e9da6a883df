"""Waiting in suites: by polling with a deadline, all of them scaled by one factor."""

import logging
import math
import os
import select
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Literal, TypeVar

from typing_extensions import override

from kip30 import UnavailableError

T = TypeVar("T")

_VARIABLE = "KIP30_TIME_SCALE"
_PAUSE = 0.005


def time_scale() -> float:
    """Return the factor that multiplies every deadline of the suite: ``$KIP30_TIME_SCALE``, else 1.

    Raise it on a slow or busy machine.
    """
    return float(os.environ.get(_VARIABLE, "1"))


def raise_time_scale(least: float) -> None:
    """Make the factor *least*, rounded up to tenths, if it is smaller.

    In this process, and in those that it starts from now on.
    """
    os.environ[_VARIABLE] = f"{max(math.ceil(least * 10) / 10, time_scale()):g}"


@contextmanager
def scaled_by(factor: float) -> Generator[None]:
    """Let the factor be *factor* for the duration of a block."""
    before = os.environ.get(_VARIABLE)
    os.environ[_VARIABLE] = f"{factor:g}"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_VARIABLE]
        else:
            os.environ[_VARIABLE] = before


def eventually(probe: Callable[[], T | None], *, within: float = 10.0, what: str = "") -> T:
    """Return the first true result of *probe*, called repeatedly for *within* seconds.

    It is called once more after that time: this process may have stood still until then. One that
    raises UnavailableError is called again: on a busy machine a store may not answer in time, and
    proves nothing by that.

    Raises:
        AssertionError: It never was true. The message has the last result, and the last log record
            of kip30 or a backend of it in that time, if that level is enabled.
    """
    until = time.monotonic() + within * time_scale()
    with _listening_to_log() as log:
        while True:
            is_over = time.monotonic() > until
            if answer := _answer(probe):
                return answer
            if is_over:
                raise AssertionError(f"not within {within:g} s: {what or probe}: {answer!r}{log}")
            time.sleep(_PAUSE)


class _NoAnswer:
    """The store did not answer a probe."""

    def __init__(self, error: UnavailableError) -> None:
        self._error = error

    def __bool__(self) -> Literal[False]:
        return False

    @override
    def __repr__(self) -> str:
        return repr(self._error)


def _answer(probe: Callable[[], T | None]) -> T | _NoAnswer | None:
    try:
        return probe()
    except UnavailableError as error:
        return _NoAnswer(error)


class _LastRecord(logging.Handler):
    """Keeps the last record of kip30, and of packages whose names begin with its name."""

    def __init__(self) -> None:
        super().__init__()
        self._last: logging.LogRecord | None = None

    @override
    def emit(self, record: logging.LogRecord) -> None:
        if record.name.startswith("kip30"):
            self._last = record

    @override
    def __str__(self) -> str:
        """Return the end of a message; "" if nothing was logged."""
        last = self._last
        return f"; last logged by {last.name}: {last.getMessage()}" if last else ""


@contextmanager
def _listening_to_log() -> Generator[_LastRecord]:
    handler, root = _LastRecord(), logging.getLogger()
    root.addHandler(handler)
    try:
        yield handler
    finally:
        root.removeHandler(handler)


def is_readable(descriptor: int, seconds: float) -> bool:
    """Wait until *descriptor* can be read, and return whether it can within *seconds*.

    Unlike `select.select` this takes descriptors from 1,024 on.
    """
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def throughout(probe: Callable[[], bool], *, seconds: float, what: str = "") -> None:
    """Require *probe* to be true at every call for *seconds*, and at one call at least.

    Raises:
        AssertionError: It was not, once.
    """
    until = time.monotonic() + seconds
    while True:
        assert probe(), f"did not hold throughout {seconds:g} s: {what or probe}"
        time.sleep(_PAUSE)
        if time.monotonic() >= until:
            return
