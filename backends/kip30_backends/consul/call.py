"""One operation as a future: done by whoever waits for it, or else by the crew."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from typing_extensions import override

from kip30.errors import Kip30Error
from kip30_backends.consul.crew import Crew
from kip30_backends.consul.talk import Talk

T = TypeVar("T")

Work = Callable[[Talk], T]


class Call(Future[T]):
    """Something to be asked, once somebody wants to know.

    Who waits for it does it on the waiting thread, which saves two changes of thread; if somebody
    asks whether it is done, or wants to be told, the crew does it.
    """

    def __init__(self, crew: Crew, talk: Talk, work: Work[T]) -> None:
        """Have *work* done."""
        super().__init__()
        self._crew = crew
        self.talk = talk
        self._work = work
        self._unsent = threading.Lock()

    def start(self) -> None:
        """Have it done by the crew unless somebody does it."""
        if self._unsent.acquire(blocking=False):
            self._send()

    def _send(self) -> None:
        try:
            self._crew.do(self.run)
        except Kip30Error as error:
            self.fail(error)

    @override
    def result(self, timeout: float | None = None) -> T:
        self._here(timeout)
        return super().result(timeout)

    @override
    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._here(timeout)
        return super().exception(timeout)

    @override
    def done(self) -> bool:
        self.start()
        return super().done()

    @override
    def add_done_callback(self, fn: Callable[[Future[T]], object]) -> None:
        super().add_done_callback(fn)
        self.start()

    def _here(self, timeout: float | None) -> None:
        """Do it on this thread, unless somebody does or this must not wait that long."""
        if timeout is not None and time.monotonic() + timeout < self.talk.until:
            self.start()
        elif self._unsent.acquire(blocking=False):
            self.run()

    def run(self) -> None:
        """Do it now, on this thread."""
        if not self.set_running_or_notify_cancel():
            return
        try:
            self.set_result(self._work(self.talk))
        except Exception as error:  # noqa: BLE001  a future carries whatever it is
            self.set_exception(error)
        except BaseException as error:
            self.set_exception(error)
            raise

    def fail(self, error: BaseException) -> None:
        """Be done, with *error*."""
        if self.set_running_or_notify_cancel():
            self.set_exception(error)
