"""Trying again, as often as others are in the way."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from kip30.driver.kit.following import attempt
from kip30.driver.kit.futures import fail, succeed

T = TypeVar("T")


def insist(once: Callable[[], Future[T | None]]) -> Future[T]:
    """Return the first result of *once* that is not None; until then it is called again.

    However often: futures that each wait for the next one would nest as deep.
    """
    target: Future[T] = Future()

    def go_on(done: Future[T | None]) -> None:
        if not _has_ended(done, target):
            try_()

    def try_() -> None:
        while (done := attempt(once)).done():
            if _has_ended(done, target):
                return
        done.add_done_callback(go_on)

    try_()
    return target


def _has_ended(done: Future[T | None], target: Future[T]) -> bool:
    """Give *target* what *done* has, if that is anything."""
    error = done.exception()
    if error is not None:
        fail(target, error)
        return True
    result = done.result()
    if result is None:
        return False
    succeed(target, result)
    return True
