"""Calls of a runner to a store that may not be available yet."""

import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Generic, TypeVar

from kip30.codecs import BYTES
from kip30.driver import Backend, Capability
from kip30.driver.kit.thread_start import started
from kip30.errors import AuthenticationError, Kip30Error, UnavailableError, UnsupportedError
from kip30.locator import PluginLocator

T = TypeVar("T")

_PROBE_SECONDS = 3.0
_PROBED_KEY = "kip30-probe"
"""A key to read. It need not exist: the answer counts, and not the value."""


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
            UnavailableError: Also if the system has no thread to spare. Nothing was called.
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


class StoreProbe:
    """Finds out whether an open store still answers, for callers that only wait. Not thread-safe.

    A listener has no other way to learn that its store was replaced, and that it is called no more.
    """

    def __init__(self, locator: PluginLocator) -> None:
        """Read nothing before `check`."""
        self._read: RetriedCall[bool] = RetriedCall(lambda: _has_answered(locator))
        self._due = 0.0
        # What the last read has raised; None if it was answered.
        self._error: Kip30Error | None = None
        self._was_permitted = False

    def check(self) -> None:
        """Begin a read if one is due, on a thread of its own, and raise what the last one raised.

        Raises:
            UnavailableError: The store did not answer within its operation timeout, or the system
                has no thread to spare for the read. The next one may succeed.
            AuthenticationError: It rejects credentials with which the key could be read before.
            StoreError: It cannot be used as it is.
        """
        if time.monotonic() >= self._due:
            self._look()
        if self._error is not None:
            raise self._error

    def _look(self) -> None:
        try:
            if self._read.result(0.0) is None:
                return
            self._error, self._was_permitted = None, True
        except AuthenticationError as error:
            # Credentials for some keys alone may not read this one, which is an answer as well.
            self._error = error if self._was_permitted else None
        except Kip30Error as error:
            self._error = error
        self._read.forget()
        self._due = time.monotonic() + _PROBE_SECONDS


def refuse_overlap(backend: Backend) -> None:
    """Raise if another process could continue before a guard has ended the command of this one.

    Raises:
        UnsupportedError: The death of this process would free what it holds at once.
    """
    if backend.releases_claims_on_crash and Capability.LEASE_SHARING not in backend.capabilities:
        raise UnsupportedError(
            f"with these settings store {backend.name!r} frees the term of a killed runner before"
            " its command has ended (embedded: set plugin.embedded.liveness to ofd)"
        )


def _has_answered(locator: PluginLocator) -> bool:
    locator.storage(BYTES).get(_PROBED_KEY)
    return True


def _in_background(work: Callable[[], T]) -> Future[T]:
    """Do *work* on a thread that the process does not wait for at its end.

    Raises:
        UnavailableError: The system has no thread to spare. Nothing was done.
    """
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001  the thread that waits raises it
            future.set_exception(error)

    if not started(threading.Thread(target=run, name="kip30-opening", daemon=True)):
        raise UnavailableError("the system has no thread to spare: nothing was asked")
    return future
