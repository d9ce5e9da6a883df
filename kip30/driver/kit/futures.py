"""Futures that are complete when created; results that one future passes to another, or many."""

import logging
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future, InvalidStateError
from typing import Any, TypeVar

from typing_extensions import override

from kip30.errors import LifecycleError

T = TypeVar("T")
U = TypeVar("U")

_log = logging.getLogger(__name__)


class _LazyAttribute:
    """An attribute that each object creates when it is first asked for it.

    `functools.cached_property` has one lock for all objects before Python 3.12, and a class that
    defines `__getattr__` is slower in every other attribute.
    """

    def __init__(self, make: Callable[[], object]) -> None:
        """Create the value by *make*."""
        self._make = make

    def __set_name__(self, owner: type, name: str) -> None:
        """Note the attribute's name."""
        self._name = name

    def __get__(self, instance: object, owner: type) -> Any:
        """Create the value and store it in *instance*; later uses find it there."""
        if instance is None:
            return self
        # Two threads may get here at once: `setdefault` gives both the same object.
        return instance.__dict__.setdefault(self._name, self._make())


class Completed(Future[T]):
    """A future that is created with its result, at a tenth of the cost of completing one.

    Its state never changes, so nothing here needs a lock: a process that forks while another
    thread uses such a future leaves no locked lock to its child. `concurrent.futures.wait` and
    `as_completed` want a condition and a list of waiters; each future creates them on first use.
    """

    _state = "FINISHED"
    _exception = None
    _condition: Any = _LazyAttribute(threading.Condition)
    _waiters: Any = _LazyAttribute(list)
    _done_callbacks: Any = _LazyAttribute(list)

    def __init__(self, result: T) -> None:
        """Create a future that is done, with *result*."""
        self._result = self._value = result

    @override
    def cancel(self) -> bool:
        return False

    @override
    def cancelled(self) -> bool:
        return False

    @override
    def running(self) -> bool:
        return False

    @override
    def done(self) -> bool:
        return True

    @override
    def result(self, timeout: float | None = None) -> T:
        return self._value

    @override
    def exception(self, timeout: float | None = None) -> None:
        return None

    @override
    def add_done_callback(self, fn: Callable[[Future[T]], object]) -> None:
        """Call *fn* with this future, here and now; an exception it raises is logged."""
        try:
            fn(self)
        except Exception:  # noqa: BLE001  as `Future` has it: a callback cannot fail its future
            _log.exception("a callback of %r raised", self)


class ForwardingFuture(Future[T]):
    """A future that calls nothing on the thread that completes it.

    In a forked child no thread would complete it, so waiting for it there is an error.
    """

    def __init__(self, call: Callable[[Callable[[], object]], None]) -> None:
        """Let *call* run the callbacks."""
        super().__init__()
        self._call = call
        self._pid = os.getpid()

    @override
    def result(self, timeout: float | None = None) -> T:
        """Return the result.

        Raises:
            LifecycleError: The parent of this process requested it, and gets the answer.
        """
        self._check_process()
        return super().result(timeout)

    @override
    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the error, or None.

        Raises:
            LifecycleError: The parent of this process requested it, and gets the answer.
        """
        self._check_process()
        return super().exception(timeout)

    @override
    def add_done_callback(self, fn: Callable[[Future[T]], object]) -> None:
        """Call *fn* with this future once it is done; if it already is, call it here and now."""
        if self.done():
            super().add_done_callback(fn)
        else:
            super().add_done_callback(lambda done: self._call(lambda: fn(done)))

    def _check_process(self) -> None:
        if os.getpid() != self._pid and not self.done():
            raise LifecycleError("requested before a fork: start a locator in the child")


def succeed(future: Future[T], result: T) -> bool:
    """Complete *future* with *result*; false if it is done, perhaps by another thread just now."""
    try:
        future.set_result(result)
    except InvalidStateError:
        return False
    return True


def fail(future: Future[Any], error: BaseException) -> bool:
    """Fail *future* with *error*; false if it is done, perhaps by another thread just now."""
    try:
        future.set_exception(error)
    except InvalidStateError:
        return False
    return True


def failed(error: BaseException) -> Future[Any]:
    """Return a future that has failed with *error* already."""
    future: Future[Any] = Future()
    future.set_exception(error)
    return future


def each(done: Future[list[T | Exception]], count: int) -> list[Future[T]]:
    """Return a future of each of the *count* outcomes of *done*, or all with its error.

    One callback for all costs half of one for each.
    """
    if isinstance(done, Completed):
        return [_completed(outcome) for outcome in done.result()]
    answers: list[Future[T]] = [Future() for _ in range(count)]

    def deal(done: Future[list[T | Exception]]) -> None:
        error = CancelledError() if done.cancelled() else done.exception()
        outcomes = [error] * count if error is not None else done.result()
        for answer, outcome in zip(answers, outcomes, strict=True):
            if not answer.set_running_or_notify_cancel():
                continue
            if isinstance(outcome, BaseException):
                answer.set_exception(outcome)
            else:
                answer.set_result(outcome)

    done.add_done_callback(deal)
    return answers


def _completed(outcome: T | Exception) -> Future[T]:
    return failed(outcome) if isinstance(outcome, Exception) else Completed(outcome)


def mapped(
    source: Future[T],
    function: Callable[[T], U],
    made: Callable[[], Future[U]] = Future,
) -> Future[U]:
    """Return a future, *made* if need be, of *function* applied to the result of *source*.

    *function* runs on the thread that completes *source*, so it must be quick.
    """
    if isinstance(source, Completed):
        try:
            return Completed(function(source.result()))
        except Exception as error:  # noqa: BLE001  a future carries any error
            return failed(error)
    target = made()

    def copy(done: Future[T]) -> None:
        if not target.set_running_or_notify_cancel():
            return
        try:
            target.set_result(function(done.result()))
        except BaseException as error:  # noqa: BLE001  any error belongs to the target
            target.set_exception(error)

    source.add_done_callback(copy)
    return target


def gathered(sources: Sequence[Future[T]]) -> Future[list[T]]:
    """Return the results of all *sources*, in their order, or the first error in that order."""
    return mapped(all_of(sources), lambda _: [source.result() for source in sources])


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
