"""The steps of a recipe, for a thread or an event loop: one protocol, two ways to wait.

A recipe is a generator of steps. It does no waiting itself: it yields what to call or what to wait
for, and continues with the outcome. If it is closed while it waits, because the caller was
interrupted or cancelled, it releases what it has acquired, without waiting.
"""

import math
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any, NamedTuple, TypeAlias, TypeVar

from kip30.driver.clock import Clock
from kip30.errors import Kip30Error

T = TypeVar("T")

_LONGEST_WAIT = 1.0


class Call(NamedTuple):
    """Call *function*, which may take up to the operation timeout. Answered by what it returns."""

    function: Callable[[], object]


class Await(NamedTuple):
    """Wait until one of *futures* is done, or the clock reaches *until*. Answered by None."""

    futures: Sequence[Future[Any]]
    until: float = math.inf


Steps: TypeAlias = Generator[Call | Await, Any, T]


def run(steps: Steps[T], clock: Clock) -> T:
    """Run *steps* in this thread, and return their result."""
    answer: object = None
    error: Kip30Error | None = None
    try:
        while True:
            step = steps.throw(error) if error is not None else steps.send(answer)
            answer, error = None, None
            if isinstance(step, Await):
                _wait(step, clock)
                continue
            try:
                answer = step.function()
            except Kip30Error as raised:
                error = raised
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        steps.close()


def _wait(step: Await, clock: Clock) -> None:
    """Wait in pieces: a future's own timeout is paused while the system is suspended."""
    while (left := step.until - clock.now()) > 0:
        seconds = min(left, _LONGEST_WAIT)
        if not step.futures:
            time.sleep(seconds)
        elif wait(step.futures, seconds, FIRST_COMPLETED).done:
            return
