"""A fault injector: what a remote store does to its clients, done on purpose and without chance.

For tests of what stands on the embedded store. Nothing of it costs anything until used.
"""

import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from kip30.driver.kit.futures import failed
from kip30.errors import ClosedError, OutcomeUnknownError, UnavailableError

T = TypeVar("T")


class Effect(Enum):
    """What a fault does to an operation."""

    FAIL = "nothing is done and the answer is UnavailableError"
    DELAY = "the answer, and the operation, come later"
    LOSE_ANSWER = "it is done and the answer is OutcomeUnknownError"
    ARRIVE_LATE = "the answer is OutcomeUnknownError, and it is done later"
    CUT_OFF = "nothing is done, and only later the answer is UnavailableError"


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One kind of trouble.

    Attributes:
        operation: ``<driver>.<method>``, such as ``storage.write``; ``*`` for all.
        effect: What happens.
        match: The key, group, service or namespace it happens to, or a predicate of it.
        times: How often it happens; None for always.
        seconds: How long it takes if it is a matter of time.
    """

    operation: str
    effect: Effect = Effect.FAIL
    match: str | Callable[[str], bool] | None = None
    times: int | None = 1
    seconds: float = 0.0

    def hits(self, operation: str, subject: str) -> bool:
        """Say whether this is about *operation* on *subject*."""
        if self.operation not in {"*", operation}:
            return False
        if callable(self.match):
            return self.match(subject)
        return self.match in (None, subject)


@dataclass(eq=False)
class _Waiting:
    fault: Fault
    left: int | None


class Faults:
    """The faults of one backend, as the conformance suite asks for them. Thread-safe.

    Attributes:
        armed: Whether any fault is waiting to happen.
        renewals_paused: While true, the session is not renewed, as in a hung process.
        telling: Held while watches are notified of what has changed.
    """

    def __init__(self, patience_seconds: float) -> None:
        """Begin without any; a client that is cut off is answered after *patience_seconds*."""
        self._backoff = patience_seconds
        self._struck = 0
        self.armed = False
        self.renewals_paused = False
        self.telling = threading.RLock()
        self._watches_paused = False
        self.end_session: Callable[[], None] = _nothing
        self._waiting: list[_Waiting] = []
        self._lock = threading.Lock()
        self._closing = threading.Event()

    @property
    def watches_paused(self) -> bool:
        """Whether no watch hears of anything; what it missed comes after.

        What is being delivered when this is set has been delivered by the time that it is.
        """
        return self._watches_paused

    @watches_paused.setter
    def watches_paused(self, paused: bool) -> None:
        with self.telling:
            self._watches_paused = paused

    def add(self, fault: Fault) -> None:
        """Let *fault* happen from now on."""
        with self._lock:
            self._waiting.append(_Waiting(fault, fault.times))
            self.armed = True

    def lose_answers(self, operation: str, *, times: int | None = 1) -> None:
        """Let the next *times* calls of *operation* be done and their answers lost."""
        self.add(Fault(operation=operation, effect=Effect.LOSE_ANSWER, times=times))

    def fail(self, operation: str, *, times: int | None = 1) -> None:
        """Let the next *times* calls of *operation* be refused, with nothing done."""
        self.add(Fault(operation=operation, effect=Effect.FAIL, times=times))

    def delay(self, operation: str, seconds: float, *, times: int | None = 1) -> None:
        """Let the next *times* calls of *operation* begin *seconds* late."""
        self.add(Fault(operation=operation, effect=Effect.DELAY, seconds=seconds, times=times))

    def arrive_late(self, operation: str, seconds: float, *, times: int | None = 1) -> None:
        """Let the next *times* calls of *operation* be lost, and done *seconds* later after all."""
        late = Effect.ARRIVE_LATE
        self.add(Fault(operation=operation, effect=late, seconds=seconds, times=times))

    @contextmanager
    def cut_off(self) -> Generator[None]:
        """Keep this client from the store: no call, renewal or notification gets through."""
        self.renewals_paused = self.watches_paused = True
        self.add(Fault(operation="*", effect=Effect.CUT_OFF, seconds=self._backoff, times=None))
        try:
            yield
        finally:
            self.clear()
            self.renewals_paused = self.watches_paused = False

    def expire_session(self) -> None:
        """End the session in the store, as if it had run out there."""
        self._struck += 1
        self.end_session()

    def counted(self) -> int:
        """Return how many faults have struck so far."""
        return self._struck

    def clear(self) -> None:
        """Let none happen any more."""
        with self._lock:
            self._waiting.clear()
            self.armed = False

    def close(self) -> None:
        """End all delays: what has waited so far is not done."""
        self._closing.set()

    def apply(self, operation: str, subject: str, attempt: Callable[[], Future[T]]) -> Future[T]:
        """Return what becomes of *attempt* under the faults there are."""
        fault = self._strike(operation, subject)
        if fault is None:
            return attempt()
        match fault.effect:
            case Effect.FAIL:
                return failed(_failure(operation, subject))
            case Effect.DELAY:
                return self._later(fault.seconds, attempt)
            case Effect.CUT_OFF:
                return self._later(fault.seconds, lambda: failed(_failure(operation, subject)))
            case Effect.LOSE_ANSWER:
                attempt()
                return failed(_loss(operation, subject))
            case Effect.ARRIVE_LATE:
                self._later(fault.seconds, attempt)
                return failed(_loss(operation, subject))

    def _strike(self, operation: str, subject: str) -> Fault | None:
        with self._lock:
            for waiting in self._waiting:
                if waiting.fault.hits(operation, subject):
                    self._count(waiting)
                    return waiting.fault
        return None

    def _count(self, waiting: _Waiting) -> None:
        self._struck += 1
        if waiting.left is None:
            return
        waiting.left -= 1
        if not waiting.left:
            self._waiting.remove(waiting)
            self.armed = bool(self._waiting)

    def _later(self, seconds: float, attempt: Callable[[], Future[T]]) -> Future[T]:
        answer: Future[T] = Future()

        def run() -> None:
            closed = self._closing.wait(seconds)
            error = ClosedError("closed while delayed")
            _copy(failed(error) if closed else attempt(), answer)

        threading.Thread(target=run, name="kip30-embedded-delay", daemon=True).start()
        return answer


def _failure(operation: str, subject: str) -> UnavailableError:
    return UnavailableError(f"injected: {operation} of {subject!r} fails")


def _loss(operation: str, subject: str) -> OutcomeUnknownError:
    return OutcomeUnknownError(f"injected: answer to {operation} of {subject!r} lost")


def _copy(done: Future[T], answer: Future[T]) -> None:
    if not answer.set_running_or_notify_cancel():
        return
    error = done.exception()
    if error is None:
        answer.set_result(done.result())
    else:
        answer.set_exception(error)


def _nothing() -> None:
    """Stand in for what a backend without a session has to end."""
