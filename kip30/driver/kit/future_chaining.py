"""Chains futures: the next request is made once an answer is there."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

from kip30.driver.kit.futures import Completed, fail, failed, succeed
from kip30.errors import OutcomeUnknownError

T = TypeVar("T")
U = TypeVar("U")


def then(source: Future[T], step: Callable[[T], Future[U]]) -> Future[U]:
    """Return the outcome of *step* applied to the result of *source*; an error is passed on."""
    return when_done(source, lambda done: step(done.result()))


def otherwise(
    source: Future[T], refusal: type[Exception], step: Callable[[], Future[T]]
) -> Future[T]:
    """Return *source*, or the outcome of *step* if *source* fails with *refusal*."""
    return when_done(source, lambda done: step() if _is(done, refusal) else done)


def when_done(source: Future[T], step: Callable[[Future[T]], Future[U]]) -> Future[U]:
    """Return the outcome of *step* once *source* is done."""
    if source.done():
        return attempt(step, source)
    target: Future[U] = Future()

    def go_on(done: Future[T]) -> None:
        attempt(step, done).add_done_callback(lambda last: copy(last, target))

    source.add_done_callback(go_on)
    return target


def or_unknown(look: Future[T]) -> Future[T]:
    """Return *look*, which settles a write; if it fails, the outcome of the write is unknown."""
    return when_done(look, _or_unknown)


def gathered(sources: Sequence[Future[T]]) -> Future[list[T]]:
    """Return the results of all *sources*, in their order, or the first error in that order."""
    return then(all_of(sources), lambda _: Completed([source.result() for source in sources]))


def all_of(sources: Sequence[Future[Any]]) -> Future[None]:
    """Return what is done once all *sources* are, however they ended.

    For any number: futures that each wait for the next one would nest as deeply.
    """
    target: Future[None] = Future()
    lock = threading.Lock()
    # One more than there are: the target is not done before all callbacks are added.
    left = len(sources) + 1

    def count(_: object) -> None:
        nonlocal left
        with lock:
            left -= 1
            last = not left
        if last:
            target.set_result(None)

    for source in sources:
        source.add_done_callback(count)
    count(None)
    return target


def attempt(step: Callable[..., Future[U]], *arguments: Any) -> Future[U]:
    """Return what *step* returns; what it raises is the future's."""
    try:
        return step(*arguments)
    except Exception as error:  # noqa: BLE001  a future carries any error
        return failed(error)


def copy(done: Future[T], target: Future[T]) -> None:
    """Complete *target* as *done* was, unless it is done already."""
    error = CancelledError() if done.cancelled() else done.exception()
    if error is None:
        succeed(target, done.result())
    else:
        fail(target, error)


def _or_unknown(look: Future[T]) -> Future[T]:
    error = look.exception()
    if error is None:
        return look
    raise OutcomeUnknownError(
        f"an answer was lost, and reading the record failed, too: {error}"
    ) from error


def _is(done: Future[Any], refusal: type[Exception]) -> bool:
    return isinstance(done.exception(), refusal)
