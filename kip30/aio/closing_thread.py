"""Closing on a separate thread, and awaiting its end."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future

from kip30.aio.awaiting import outcome
from kip30.driver.kit.futures import fail, succeed
from kip30.driver.kit.thread_start import started


class ClosingThread:
    """A thread that closes: all workers may be busy until that is done.

    Attributes:
        closed: Done when it is closed.
    """

    def __init__(self, close: Callable[[], None]) -> None:
        """Start to call *close*; if the system has no thread to spare, call it here."""
        self.closed: Future[None] = Future()
        self._close = close
        self._thread = threading.Thread(target=self._run, name="kip30-aio-close", daemon=True)
        if not started(self._thread):
            self._run()  # closing must not depend on a thread, so here the loop must wait

    def _run(self) -> None:
        """Close; an error becomes that of the future."""
        try:
            self._close()
        except BaseException as error:  # noqa: BLE001  a future carries any error
            fail(self.closed, error)
        else:
            succeed(self.closed, None)

    async def end(self) -> None:
        """Await it, even if the task is cancelled, which takes effect afterwards."""
        cancelled: asyncio.CancelledError | None = None
        while not self.closed.done():
            try:
                await outcome(self.closed, shared=True)
            except asyncio.CancelledError as error:
                cancelled = error
        if self._thread.ident is not None:
            self._thread.join()  # it has nothing left to do
        if cancelled is not None:
            raise cancelled
        self.closed.result()
