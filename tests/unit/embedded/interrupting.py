"""Raising wherever a signal handler can raise in the main thread."""

import itertools
import signal
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from types import FrameType


class Interrupted(BaseException):
    """Error that the handler raises, like KeyboardInterrupt."""


def points(
    work: Callable[[], object], *, prepare: Callable[[], object] = lambda: None
) -> Iterator[int]:
    """Do *work* again and again, interrupted one point later each time, until it comes through.

    *prepare* is called before each *work*, and not interrupted.

    CPython runs signal handlers where a function begins, after a call, and at the end of a round of
    a loop, which for a loop without a call is no other state. The interpreter reports the first two
    to a profile function, unless the callable is an object other than a function; and what that
    raises comes from the same instruction. It is not raised in finalisers, where the interpreter
    would swallow it.
    """
    for point in itertools.count():
        prepare()
        if not _reached(point, work):
            return
        yield point


def _reached(point: int, work: Callable[[], object]) -> bool:
    """Do *work* and raise at *point*; return whether there is such a point."""
    seen = -1

    def profile(frame: FrameType, event: str, _arg: object) -> None:
        nonlocal seen
        if event in {"call", "c_return"} and not _is_in_finaliser(frame):
            seen += 1
            if seen == point:
                raise Interrupted

    try:
        sys.setprofile(profile)
        work()
    except Interrupted:
        pass
    finally:
        sys.setprofile(None)
    return seen >= point


def _is_in_finaliser(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code is not _reached.__code__:
        if frame.f_code.co_name == "__del__":
            return True
        frame = frame.f_back
    return False


@contextmanager
def time_limit(seconds: float, error: type[BaseException] = Interrupted) -> Generator[None]:
    """End the block by *error*, raised by the handler of a real alarm."""

    def end(*_: object) -> None:
        raise error

    before = signal.signal(signal.SIGALRM, end)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def interrupted_for(seconds: float, work: Callable[[], object], limit: Callable[[], float]) -> int:
    """Repeat *work* under time limits of ``limit()`` seconds each; return how many there were."""
    number = 0
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        number += 1
        with suppress(Interrupted), time_limit(limit()):
            for _ in range(1000):  # an alarm within a finaliser ends nothing
                work()
    return number
