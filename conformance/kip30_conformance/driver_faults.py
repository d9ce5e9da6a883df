"""Faults between the library and a store's driver, the same for all stores.

They wrap the driver methods of one backend object, so that a write whose answer is lost is really
done by the real store.
"""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any, cast

from kip30 import ClosedError, OutcomeUnknownError, UnavailableError
from kip30.driver import Backend, MembershipDriver
from kip30.driver.kit.futures import failed

_SINGLE = (
    "membership.claim",
    "membership.replace",
    "membership.release",
    "election.claim",
    "election.release",
    "storage.read",
    "storage.write",
    "storage.list_names",
    "observe.snapshot",
)
_MANY = "storage.write_many"
_RELEASE_MANY = "membership.release_many"
ALL = "*"


class Effect(Enum):
    """The effect of a fault on a call."""

    FAIL = "nothing is done and the answer is UnavailableError"
    DELAY = "the call begins later"
    LOSE_ANSWER = "it is done and the answer is OutcomeUnknownError"
    ARRIVE_LATE = "the answer is OutcomeUnknownError, and it is done later"
    CUT_OFF = "nothing is done, and only later the answer is UnavailableError"


@dataclass(frozen=True, kw_only=True)
class DriverFault:
    """A fault of one kind of driver call.

    Attributes:
        operation: ``<driver>.<method>``, such as ``storage.write``; `ALL` for all.
        effect: What happens.
        match: The key, group, service or namespace that it applies to; None for every one.
        times: How often it happens; None for always. In a batch, each write counts.
        seconds: How long it takes, for effects that take time.
    """

    operation: str
    effect: Effect = Effect.FAIL
    match: str | None = None
    times: int | None = 1
    seconds: float = 0.0

    def hits(self, operation: str, subject: str) -> bool:
        """Return whether this is about *operation* on *subject*."""
        return self.operation in {ALL, operation} and self.match in {None, subject}


@dataclass(eq=False)
class _Armed:
    """A fault that has not happened as often as it should; *left* is None for always."""

    fault: DriverFault
    left: int | None


class Interposition:
    """The layer between one client and its backend. Thread-safe.

    Faults apply to calls in the order in which they were added; every other call passes through.
    Nothing is wrapped, and nothing costs, before the first fault is added.
    """

    def __init__(self, backend: Backend) -> None:
        """Wrap *backend*, at first without any fault."""
        self._backend = backend
        self._lock = threading.Lock()
        self._is_wrapped = False
        self._armed: list[_Armed] = []
        self._struck = 0
        self._closing = threading.Event()
        wrap(backend, "close", self._close)

    @property
    def armed(self) -> bool:
        """Return whether any fault has not yet happened as often as it should."""
        return bool(self._armed)

    def add(self, fault: DriverFault) -> None:
        """Let *fault* happen from now on."""
        with self._lock:
            if not self._is_wrapped:
                self._is_wrapped = True
                self._wrap_all()
            self._armed.append(_Armed(fault, fault.times))

    def lose_answers(self, operation: str, *, times: int | None = 1) -> None:
        """Perform the next *times* calls, but let them fail with `OutcomeUnknownError`."""
        self.add(DriverFault(operation=operation, effect=Effect.LOSE_ANSWER, times=times))

    def fail(self, operation: str, *, times: int | None = 1) -> None:
        """Let the next *times* calls fail with `UnavailableError`, with nothing done."""
        self.add(DriverFault(operation=operation, effect=Effect.FAIL, times=times))

    def delay(self, operation: str, seconds: float, *, times: int | None = 1) -> None:
        """Let the next *times* calls begin *seconds* late."""
        self.add(
            DriverFault(operation=operation, effect=Effect.DELAY, seconds=seconds, times=times)
        )

    def arrive_late(self, operation: str, seconds: float, *, times: int | None = 1) -> None:
        """Let the next *times* calls be lost, but done *seconds* later."""
        late = Effect.ARRIVE_LATE
        self.add(DriverFault(operation=operation, effect=late, seconds=seconds, times=times))

    def clear(self) -> None:
        """Remove all faults."""
        with self._lock:
            self._armed.clear()

    def counted(self) -> int:
        """Return how many calls have been struck so far."""
        return self._struck

    def on_closed(self) -> None:
        """Run when the backend has closed; here nothing."""

    def apply(
        self, fault: DriverFault, operation: str, attempt: Callable[[], Future[Any]]
    ) -> Future[Any]:
        """Return the outcome of *attempt* under *fault*."""
        match fault.effect:
            case Effect.FAIL:
                return _failure(operation)
            case Effect.DELAY:
                return self._later(fault.seconds, attempt)
            case Effect.CUT_OFF:
                return self._later(fault.seconds, partial(_failure, operation))
            case Effect.LOSE_ANSWER:
                return _unanswered(attempt(), operation)
            case Effect.ARRIVE_LATE:
                self._later(fault.seconds, attempt)
                return failed(_loss(operation))

    def _close(self, real: Callable[[], None]) -> None:
        """End all delays, with nothing done, and close."""
        self._closing.set()
        try:
            real()
        finally:
            self.on_closed()

    def _wrap_all(self) -> None:
        for operation in _SINGLE:
            driver, _, method = operation.partition(".")
            wrap(getattr(self._backend, driver), method, partial(self._call, operation))
        wrap(self._backend.storage, "write_many", self._write_many)
        wrap(self._backend.membership, "release_many", self._release_many)

    def _call(self, operation: str, real: Callable[..., Any], *arguments: Any) -> Any:
        fault = self._strike(operation, _subject(arguments[0])) if self._armed else None
        if fault is None:
            return real(*arguments)
        return self.apply(fault, operation, partial(real, *arguments))

    def _write_many(
        self, real: Callable[..., list[Future[Any]]], writes: Sequence[Any]
    ) -> list[Future[Any]]:
        """Apply faults to each write by itself; send those together that are done at once."""
        if not self._armed:
            return real(writes)
        faults = [self._strike(_MANY, str(write.key)) for write in writes]
        at_once = [fault is None or fault.effect is Effect.LOSE_ANSWER for fault in faults]
        sent = iter(real([write for write, now in zip(writes, at_once, strict=True) if now]))
        attempts = [
            partial(next, sent) if now else partial(_only, real, write)
            for write, now in zip(writes, at_once, strict=True)
        ]
        return [
            attempt() if fault is None else self.apply(fault, _MANY, attempt)
            for attempt, fault in zip(attempts, faults, strict=True)
        ]

    def _release_many(
        self, real: Callable[..., list[Future[Any]]], group: str, claims: Sequence[Any]
    ) -> list[Future[Any]]:
        """Release one by one while any fault may apply, so that each counts."""
        if not self._armed:
            return real(group, claims)
        one_by_one: list[Future[Any]] = list(
            MembershipDriver.release_many(self._backend.membership, group, claims)
        )
        return one_by_one

    def _strike(self, operation: str, subject: str) -> DriverFault | None:
        with self._lock:
            for armed in self._armed:
                if armed.fault.hits(operation, subject):
                    self._count(armed)
                    return armed.fault
        return None

    def _count(self, armed: _Armed) -> None:
        self._struck += 1
        if armed.left is None:
            return
        armed.left -= 1
        if not armed.left:
            self._armed.remove(armed)

    def _later(self, seconds: float, attempt: Callable[[], Future[Any]]) -> Future[Any]:
        answer: Future[Any] = Future()

        def run() -> None:
            closed = self._closing.wait(seconds)
            begun = failed(ClosedError("closed while delayed")) if closed else attempt()
            begun.add_done_callback(partial(_copy, answer))

        threading.Thread(target=run, name="kip30-conformance-delay", daemon=True).start()
        return answer


def wrap(owner: object, name: str, around: Callable[..., Any]) -> None:
    """Replace the method *name* of *owner* by *around*, whose first argument is the method."""
    setattr(owner, name, partial(around, getattr(owner, name)))


def _subject(argument: Any) -> str:
    """Return the subject of a call, from its first *argument*."""
    if isinstance(argument, str):
        return argument
    if isinstance(argument, Sequence):
        several = cast("Sequence[object]", argument)
        return str(several[0]) if several else ""
    return str(getattr(argument, "key", getattr(argument, "scope", argument)))


def _only(real: Callable[..., Any], write: object) -> Future[Any]:
    answer: Future[Any] = real([write])[0]
    return answer


def _failure(operation: str) -> Future[Any]:
    return failed(UnavailableError(f"injected: {operation} fails"))


def _loss(operation: str) -> OutcomeUnknownError:
    return OutcomeUnknownError(f"injected: answer to {operation} lost")


def _unanswered(done: Future[Any], operation: str) -> Future[Any]:
    """Return a future that fails when *done* has ended."""
    answer: Future[Any] = Future()

    def lose(_: Future[Any]) -> None:
        if answer.set_running_or_notify_cancel():
            answer.set_exception(_loss(operation))

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
