"""Waiting in suites: by polling with a deadline, all of them scaled by one factor."""

import os
import select
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

TIME_SCALE = float(os.environ.get("KIP30_TIME_SCALE", "1"))
"""Multiplies every deadline of the suite; raise it on a slow or busy machine."""

_PAUSE = 0.005


def eventually(probe: Callable[[], T | None], *, within: float = 10.0, what: str = "") -> T:
    """Return the first true answer of *probe*, asked again and again for *within* seconds.

    Raises:
        AssertionError: It never was true; the last answer is in the message.
    """
    until = time.monotonic() + within * TIME_SCALE
    while not (answer := probe()):
        if time.monotonic() > until:
            raise AssertionError(f"not within {within:g} s: {what or probe}: {answer!r}")
        time.sleep(_PAUSE)
    return answer


def is_readable(descriptor: int, seconds: float) -> bool:
    """Wait until *descriptor* can be read, and say whether it can within *seconds*.

    Unlike `select.select` this takes descriptors from 1,024 on.
    """
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def throughout(probe: Callable[[], bool], *, seconds: float, what: str = "") -> None:
    """Require *probe* to be true whenever it is asked for *seconds*.

    Raises:
        AssertionError: It was not, once.
    """
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        assert probe(), f"did not hold throughout {seconds:g} s: {what or probe}"
        time.sleep(_PAUSE)
