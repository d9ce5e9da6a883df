"""Waiting for a driver's futures until a deadline, and the error if they do not complete."""

import time
from concurrent.futures import CancelledError, Future
from typing import TypeVar

from typing_extensions import override

from kip30.driver.kit.futures import Completed
from kip30.errors import ClosedError, Kip30Error, OutcomeUnknownError
from kip30.runtime.lost_answers import Wait

T = TypeVar("T")

SLACK = 1.05
"""Wait as a multiple of a driver's own deadline: the driver's error says more than ours."""


class DeadlineWait(Wait):
    """Waits for any number of futures, for all of them until one moment.

    A future that is not done by then is cancelled.
    """

    def __init__(
        self,
        store: str,
        seconds: float,
        late: type[Kip30Error] = OutcomeUnknownError,
        *,
        slack: float = SLACK,
    ) -> None:
        """Wait from now on for *seconds* times *slack*.

        Args:
            store: The name of the store, for the message of *late*.
            seconds: The limit that the message names.
            late: The error to raise for a future that is not done in time.
            slack: See `SLACK`.
        """
        self._store = store
        self._seconds = seconds
        self._late = late
        self._until = time.monotonic() + seconds * slack

    @override
    def __call__(self, future: Future[T]) -> T:
        """Return the result of *future*, or raise its error.

        Raises:
            ClosedError: It was cancelled, as all are when a store is closed.
            Kip30Error: *late*: it was not done in time.
        """
        if isinstance(future, Completed):  # as all futures of the fastest store are
            answer: T = future.result()
            return answer
        return self._result(future)

    @override
    def is_over(self) -> bool:
        return time.monotonic() >= self._until

    def _result(self, future: Future[T]) -> T:
        try:
            return future.result(max(0.0, self._until - time.monotonic()))
        except CancelledError as error:
            raise ClosedError("closed while waiting for the store") from error
        except TimeoutError as error:
            if not self.is_over():
                raise  # raised by a signal handler of the program, not by the store
            if future.done():
                return future.result()
            future.cancel()
            raise self._late(
                f"no answer from store {self._store!r} in {self._seconds:g} s"
            ) from error
