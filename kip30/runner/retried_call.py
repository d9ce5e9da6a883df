"""Calls of a runner to a store that may not be available yet."""

import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Generic, TypeVar

from kip30.driver import Backend, Capability
from kip30.errors import Kip30Error, UnsupportedError

T = TypeVar("T")


class RetriedCall(Generic[T]):
    """A call on its own thread, retried after a failure. Not thread-safe.

    It may take as long as the store's timeouts, and the runner handles signals meanwhile.
    """

    def __init__(self, call: Callable[[], T]) -> None:
        """Call nothing before `result`."""
        self._call = call
        self._future: Future[T] | None = None
        self._has_ended = False
        self._begun = math.inf

    @property
    def is_done(self) -> bool:
        """True if the call has returned or raised, and its result is not forgotten."""
        return self._future is not None and self._future.done()

    def has_tried(self, seconds: float) -> bool:
        """Return whether an attempt has returned or raised, or has lasted for *seconds*.

        Since the start, or since `forget`.
        """
        return self._has_ended or time.monotonic() > self._begun + seconds

    def result(self, timeout: float) -> T | None:
        """Return what the call has returned, None if it takes longer than *timeout* seconds.

        Raises:
            Kip30Error: The error of the call; the next `result` retries it.
        """
        if self._future is None:
            self._begun = min(self._begun, time.monotonic())
            self._future = _in_background(self._call)
        if wait([self._future], timeout).not_done:
            return None
        self._has_ended = True
        try:
            return self._future.result()
        except Kip30Error:
            self._future = None
            raise

    def forget(self) -> None:
        """Make the call again at the next `result`."""
        self._future = None
        self._has_ended = False
        self._begun = math.inf


def refuse_overlap(backend: Backend) -> None:
    """Raise if another process could continue before a guard has ended the command of this one.

    Raises:
        UnsupportedError: The death of this process would free what it holds at once.
    """
    if backend.frees_at_death and Capability.LEASE_SHARING not in backend.capabilities:
        raise UnsupportedError(
            f"with these settings store {backend.name!r} frees the term of a killed runner before"
            " its command has ended (embedded: set plugin.embedded.liveness to ofd)"
        )


def _in_background(work: Callable[[], T]) -> Future[T]:
    """Do *work* on a thread that the process does not wait for at its end."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001  the thread that waits raises it
            future.set_exception(error)

    threading.Thread(target=run, name="kip30-opening", daemon=True).start()
    return future
