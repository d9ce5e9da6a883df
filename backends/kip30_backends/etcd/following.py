"""One future after another: what is asked next, once an answer is there."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

from kip30.futures import Completed, failed

T = TypeVar("T")
U = TypeVar("U")


def then(source: Future[T], step: Callable[[T], Future[U]]) -> Future[U]:
    """Return what becomes of *step* applied to the result of *source*; an error is passed on."""
    return whatever(source, lambda done: step(done.result()))


def otherwise(
    source: Future[T], refusal: type[Exception], step: Callable[[], Future[T]]
) -> Future[T]:
    """Return *source*, or what becomes of *step* if that fails with *refusal*."""
    return whatever(source, lambda done: step() if _is(done, refusal) else done)


def whatever(source: Future[T], step: Callable[[Future[T]], Future[U]]) -> Future[U]:
    """Return what becomes of *step* once *source* is done."""
    if source.done():
        return attempt(step, source)
    target: Future[U] = Future()

    def go_on(done: Future[T]) -> None:
        attempt(step, done).add_done_callback(lambda last: copy(last, target))

    source.add_done_callback(go_on)
    return target


def gathered(sources: Sequence[Future[T]]) -> Future[list[T]]:
    """Return the results of all *sources*, in their order, or the first error of them."""
    for source in sources:
        source.done()  # which has it sent
    found: Future[list[T]] = Completed([])
    for source in sources:
        found = then(found, partial(_with_next, source))
    return found


def attempt(step: Callable[..., Future[U]], *arguments: Any) -> Future[U]:
    """Return what *step* returns; what it raises is the future's."""
    try:
        return step(*arguments)
    except Exception as error:  # noqa: BLE001  a future carries whatever it is
        return failed(error)


def copy(done: Future[T], target: Future[T]) -> None:
    """Give *target*, unless nobody wants it any more, what *done* has."""
    if not target.set_running_or_notify_cancel():
        return
    error = done.exception()
    if error is None:
        target.set_result(done.result())
    else:
        target.set_exception(error)


def _with_next(source: Future[T], so_far: list[T]) -> Future[list[T]]:
    return then(source, lambda one: Completed([*so_far, one]))


def _is(done: Future[Any], refusal: type[Exception]) -> bool:
    return isinstance(done.exception(), refusal)
