"""A process that kills or stops itself at one of its own requests to the store."""

import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import nullcontext
from typing import Any

from kip30.driver import Backend
from kip30_conformance.driver_faults import wrap


class SignalTrap:
    """Sends this process a signal at one request. Thread-safe."""

    def __init__(  # noqa: PLR0913  all but two by keyword
        self,
        backend: Backend,
        operation: str,
        *,
        prefix: str = "",
        number: int = 1,
        is_late: bool = False,
        stops: bool = False,
    ) -> None:
        """Arm the trap.

        Args:
            backend: Its requests count.
            operation: ``<driver>.<method>``, such as ``storage.write``.
            prefix: The beginning of the key or the group of the request.
            number: Which of these requests, from 1 on.
            is_late: Whether the request is done before the signal, and its answer lost with it;
                otherwise it is not done, or only when the process continues.
            stops: Whether the signal stops the process; otherwise it kills it.
        """
        self._prefix = prefix
        self._left = number
        self._is_late = is_late
        self._signal = signal.SIGSTOP if stops else signal.SIGKILL
        self._lock = threading.Lock()
        # A process that is stopped in a write may lock the store for all: another fault.
        faults = getattr(backend, "faults", None)
        self._between_writes = getattr(faults, "between_writes", nullcontext)
        driver, _, method = operation.partition(".")
        wrap(getattr(backend, driver), method, self._call)

    def _call(self, real: Callable[..., Any], *arguments: Any) -> Any:
        if not self._is_due(arguments[0]):
            return real(*arguments)
        if self._is_late:
            answers: Any = real(*arguments)
            last: Future[Any] = answers[-1] if _is_many(answers) else answers
            last.add_done_callback(self._strike)
            return answers
        self._strike()
        return real(*arguments)

    def _is_due(self, argument: Any) -> bool:
        subject = argument[0] if _is_many(argument) else argument
        if not str(getattr(subject, "key", subject)).startswith(self._prefix):
            return False
        with self._lock:
            self._left -= 1
            return self._left == 0

    def _strike(self, *_answer: object) -> None:
        with self._between_writes() if self._signal is signal.SIGSTOP else nullcontext():
            # If it is sent to the process, another thread may take a stop, later: this one would
            # continue to its request and be stopped in the middle of it.
            signal.pthread_kill(threading.get_ident(), self._signal)


def _is_many(argument: object) -> bool:
    """Return whether *argument* is of a request for several keys, or its answer."""
    return bool(argument) and isinstance(argument, list | tuple)
