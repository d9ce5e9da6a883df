"""An operation of several requests, written as a generator.

The generator yields the future of each request, is resumed with its result, and returns the result
of the whole. A failed request raises its error at the `yield`, so `try` and `while` say what
follows::

    def _steps(self) -> Steps[Claim]:
        session: Session = yield self._sessions.current()
        try:
            claim: Claim = yield self._calls.send(...)
        except LeaseGoneError:
            ...
        return claim
"""

import contextlib
import time
from collections.abc import Generator
from concurrent.futures import CancelledError, Future
from typing import Any, TypeAlias, TypeVar

from typing_extensions import override

from kip30.driver.kit.lazy_future import LazyFuture
from kip30.errors import OutcomeUnknownError

T = TypeVar("T")

Steps: TypeAlias = Generator[Future[Any], Any, T]


class OperationFuture(LazyFuture[T]):
    """The future result of a generator, which begins once a caller wants the result.

    A caller that waits runs the generator, and sends its requests, on its own thread. Otherwise,
    and once that caller has waited long enough, each request is sent without waiting, and the
    thread that completes it resumes the generator: so the generator must not block.

    Cancelling stops nothing that has begun: what follows a write must follow it all the same.
    """

    def __init__(self, steps: Steps[T]) -> None:
        """Run *steps*, but begin nothing yet."""
        super().__init__()
        self._steps = steps

    @override
    def send(self) -> None:
        self._run(None)

    @override
    def send_here(self, timeout: float | None) -> None:
        until = None if timeout is None else time.monotonic() + timeout
        request = self._next(None)
        while request is not None:
            try:
                request.exception(None if until is None else max(0.0, until - time.monotonic()))
            except CancelledError:
                pass  # which the generator receives
            except BaseException as error:
                request.add_done_callback(self._run)
                if isinstance(error, TimeoutError):
                    return
                raise
            request = self._next(request)

    def _run(self, answer: Future[Any] | None) -> None:
        """Go on after *answer*, until a request is not answered at once."""
        request = self._next(answer)
        while request is not None and request.done():
            request = self._next(request)
        if request is not None:
            request.add_done_callback(self._run)

    def _next(self, answer: Future[Any] | None) -> Future[Any] | None:
        """Resume the generator with *answer*, and return its next request; None if it has ended."""
        try:
            if answer is None:
                return next(self._steps)
            error = CancelledError() if answer.cancelled() else answer.exception()
            if error is None:
                return self._steps.send(answer.result())
            return self._steps.throw(error)
        except StopIteration as end:
            if self.set_running_or_notify_cancel():
                self.set_result(end.value)
        except Exception as error:  # noqa: BLE001  a future carries any error
            self.fail(error)
        except BaseException as error:  # such as KeyboardInterrupt: the generator is over
            self.fail(error)
            raise
        return None


def begun(steps: Steps[T]) -> OperationFuture[T]:
    """Return the operation of *steps*, and send its first request now."""
    operation = OperationFuture(steps)
    operation.start()
    return operation


@contextlib.contextmanager
def settling() -> Generator[None]:
    """Enter a block of requests that find out whether a write was done, as its answer was lost.

    Raises:
        OutcomeUnknownError: The block failed.
    """
    try:
        yield
    except Exception as error:
        raise OutcomeUnknownError(
            f"an answer was lost, and reading the record failed, too: {error}"
        ) from error
