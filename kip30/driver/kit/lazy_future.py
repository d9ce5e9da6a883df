"""A future whose request is sent once a caller wants the answer.

A caller that waits for it sends the request on its own thread, which saves two changes of thread.
If it polls `done` or adds a callback instead, another thread sends it. The contract allows it: see
`kip30.driver.contract`.
"""

import threading
import time
from abc import abstractmethod
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from typing_extensions import override

T = TypeVar("T")


class LazyFuture(Future[T]):
    """A future whose request is sent once, by `send` or by `send_here`."""

    def __init__(self) -> None:
        """Send nothing yet."""
        super().__init__()
        # Taken for good by the caller that sends the request.
        self._unsent = threading.Lock()

    @abstractmethod
    def send(self) -> None:
        """Send the request and return without its answer; complete this on another thread."""

    @abstractmethod
    def send_here(self, timeout: float | None) -> None:
        """Send the request, and complete this before returning or after *timeout* seconds."""

    def start(self) -> None:
        """Send the request, unless that was done."""
        if self._unsent.acquire(blocking=False):
            self.send()

    def fail(self, error: BaseException) -> None:
        """End with *error*, unless a caller has cancelled this."""
        if self.set_running_or_notify_cancel():
            self.set_exception(error)

    @override
    def result(self, timeout: float | None = None) -> T:
        if self._unsent.acquire(blocking=False):
            timeout = self._sent_here(timeout)
        return super().result(timeout)

    @override
    def exception(self, timeout: float | None = None) -> BaseException | None:
        if self._unsent.acquire(blocking=False):
            timeout = self._sent_here(timeout)
        return super().exception(timeout)

    @override
    def done(self) -> bool:
        self.start()
        return super().done()

    @override
    def add_done_callback(self, fn: Callable[[Future[T]], object]) -> None:
        super().add_done_callback(fn)
        self.start()

    def _sent_here(self, timeout: float | None) -> float | None:
        """Send the request on this thread; return how many seconds of *timeout* are left."""
        begun = time.monotonic()
        self.send_here(timeout)
        return timeout and max(0.0, timeout - (time.monotonic() - begun))
