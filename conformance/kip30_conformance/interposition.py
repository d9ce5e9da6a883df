"""Faults between the library and a store's driver, the same for all stores.

They are put in place by wrapping the driver methods of one backend object, so that a write whose
answer is lost is really done by the real store.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any

from kip30 import ClosedError, OutcomeUnknownError, UnavailableError
from kip30.driver import Backend
from kip30.driver.kit.futures import failed

_MANY = "storage.write_many"


class _Effect(Enum):
    FAIL = "nothing is done"
    LOSE_ANSWER = "it is done, and the answer is lost"
    DELAY = "it begins late"


@dataclass(frozen=True, slots=True)
class _Fault:
    effect: _Effect
    seconds: float = 0.0


class Interposition:
    """What lies between one client and its backend. Thread-safe.

    Operations are named ``<driver>.<method>``, such as ``storage.write``. Each fault happens to
    one call, in the order in which they were asked for; every later call goes through.
    """

    def __init__(self, backend: Backend) -> None:
        """Lie before *backend*, at first without any trouble."""
        self._backend = backend
        self._lock = threading.Lock()
        self._waiting: dict[str, deque[_Fault]] = {}
        self._struck = 0
        self._closing = threading.Event()
        _wrap(backend, "close", self._close)

    def lose_answers(self, operation: str, *, times: int = 1) -> None:
        """Let the next *times* calls be done, and then fail with `OutcomeUnknownError`."""
        self._add(operation, _Fault(_Effect.LOSE_ANSWER), times)

    def fail(self, operation: str, *, times: int = 1) -> None:
        """Let the next *times* calls fail with `UnavailableError`, with nothing done."""
        self._add(operation, _Fault(_Effect.FAIL), times)

    def delay(self, operation: str, seconds: float, *, times: int = 1) -> None:
        """Let the next *times* calls begin *seconds* late."""
        self._add(operation, _Fault(_Effect.DELAY, seconds), times)

    def counted(self) -> int:
        """Return how many calls have been struck so far."""
        return self._struck

    def on_closed(self) -> None:
        """Do what is to be done when the backend has closed; here nothing."""

    def _close(self, real: Callable[[], None]) -> None:
        """End all delays, with nothing done, and close."""
        self._closing.set()
        try:
            real()
        finally:
            self.on_closed()

    def _add(self, operation: str, fault: _Fault, times: int) -> None:
        with self._lock:
            if operation not in self._waiting:
                self._waiting[operation] = deque()
                driver, _, method = operation.partition(".")
                _wrap(getattr(self._backend, driver), method, partial(self._call, operation))
            self._waiting[operation].extend([fault] * times)

    def _call(self, operation: str, real: Callable[..., Any], *arguments: Any) -> Any:
        fault = self._strike(operation)
        if fault is None:
            return real(*arguments)
        if operation == _MANY:
            return self._each(fault, real, *arguments)
        return self._struck_by(fault, operation, partial(real, *arguments))

    def _each(
        self, fault: _Fault, real: Callable[..., Any], writes: Sequence[Any]
    ) -> list[Future[Any]]:
        """Strike a batch, in which each write has an answer of its own."""
        if fault.effect is _Effect.LOSE_ANSWER:
            return [_unanswered(done, _MANY) for done in real(writes)]
        return [self._struck_by(fault, _MANY, partial(_only, real, one)) for one in writes]

    def _struck_by(
        self, fault: _Fault, operation: str, attempt: Callable[[], Future[Any]]
    ) -> Future[Any]:
        match fault.effect:
            case _Effect.FAIL:
                return failed(UnavailableError(f"injected: {operation} fails"))
            case _Effect.LOSE_ANSWER:
                return _unanswered(attempt(), operation)
            case _Effect.DELAY:
                return self._later(fault.seconds, attempt)

    def _strike(self, operation: str) -> _Fault | None:
        with self._lock:
            waiting = self._waiting[operation]
            self._struck += bool(waiting)
            return waiting.popleft() if waiting else None

    def _later(self, seconds: float, attempt: Callable[[], Future[Any]]) -> Future[Any]:
        answer: Future[Any] = Future()

        def run() -> None:
            closed = self._closing.wait(seconds)
            begun = failed(ClosedError("closed while delayed")) if closed else attempt()
            begun.add_done_callback(partial(_copy, answer))

        threading.Thread(target=run, name="kip30-conformance-delay", daemon=True).start()
        return answer


def _wrap(owner: object, name: str, around: Callable[..., Any]) -> None:
    """Have the method *name* of *owner* called by *around*, which gets it as its first argument."""
    setattr(owner, name, partial(around, getattr(owner, name)))


def _only(real: Callable[..., Any], write: object) -> Future[Any]:
    answer: Future[Any] = real([write])[0]
    return answer


def _unanswered(done: Future[Any], operation: str) -> Future[Any]:
    """Return a future that fails when *done* is over."""
    answer: Future[Any] = Future()

    def lose(_: Future[Any]) -> None:
        if answer.set_running_or_notify_cancel():
            answer.set_exception(OutcomeUnknownError(f"injected: answer to {operation} lost"))

    done.add_done_callback(lose)
    return answer


def _copy(answer: Future[Any], done: Future[Any]) -> None:
    if not answer.set_running_or_notify_cancel():
        return
    error = done.exception()
    if error is None:
        answer.set_result(done.result())
    else:
        answer.set_exception(error)
