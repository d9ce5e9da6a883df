"""One request to the store, of a few steps: its queue, its deadline, its answer.

An operation is a generator: it yields a `RequestBatch`, is resumed with its `Answer`, and returns
its result. It is resumed on the connection's thread, so it must not block.
"""

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar, cast

from typing_extensions import override

from kip30.driver.kit.futures import fail, succeed
from kip30.driver.kit.gate import CLOSED
from kip30.errors import ClosedError, Kip30Error, OutcomeUnknownError, UnavailableError
from kip30_backends.zookeeper.client.kazoo_setup import Session
from kip30_backends.zookeeper.client.messages import Request
from kip30_backends.zookeeper.errors import NoAuth, RequestRefused, SessionExpired, translate

T = TypeVar("T")
log: logging.Logger = logging.getLogger(__name__)


class RequestBatch(NamedTuple):
    """Requests to be sent together.

    A *fresh* one is answered by a server that has caught up with the leader. One that *writes* is
    always so, because the leader decides it, and it is sent once; any other one is retried when the
    connection is lost. One that is bound to a *session* is never sent in another one, where its
    paths may lead to the nodes of others: then the answer is `SessionExpired`.
    """

    requests: tuple[Request, ...]
    writes: bool = False
    fresh: bool = True
    session: Session | None = None

    @property
    def needs_sync(self) -> bool:
        """True if a sync must come before it; the outcome of a write never depends on one."""
        return self.fresh and not self.writes


class Answer(NamedTuple):
    """The answers: for each request its result, or a `RequestRefused`.

    *zxid* is the server's newest transaction at the time of the last answer.
    """

    outcomes: list[Any]
    order: int
    session: Session
    zxid: int = 0

    def only(self) -> Any:
        """Return the outcome of the only request.

        Raises:
            RequestRefused: The outcome is this error.
        """
        outcome = self.outcomes[0]
        if isinstance(outcome, RequestRefused):
            raise outcome
        return outcome


Steps: TypeAlias = Generator[RequestBatch, Answer, T]


class SyncPoint:
    """A sync of the server that later reads rely on; its answer proves the session."""

    def __init__(self, sent_at: float) -> None:
        """Start as sent at *sent_at*, by the lease's clock."""
        self.sent_at = sent_at
        self.since = time.monotonic()
        self.refused: RequestRefused | None = None


class OperationQueue(Protocol):
    """Accepts an operation again for its next step."""

    def post(self, operation: "PendingOperation[Any]") -> None:
        """Send it as soon as there is a connection."""
        ...


class PendingOperation(Generic[T]):
    """A generator under way, and the future of its result. Belongs to one `Outbox`."""

    def __init__(self, steps: Steps[T], queue: OperationQueue, until: float) -> None:
        """Run *steps* with *queue*, giving up at *until* (monotonic seconds)."""
        self.future: Future[T] = Future()
        self.until = until
        self.over = False
        self.sent = False
        self.sync_point: SyncPoint | None = None
        self._steps = steps
        self._queue = queue
        self._outcomes: list[Any] = []
        self.batch: RequestBatch = RequestBatch(())
        self._go_on(None)

    def take(
        self,
        outcome: object,
        order: int,
        session: Session,
        zxid: int,
        log_in_again: Callable[[], bool] = lambda: False,
    ) -> None:
        """Take one of the answers; on the connection's thread.

        *log_in_again* returns whether a refusal for lack of rights is to be followed by another
        attempt, over a connection with other credentials.
        """
        self._outcomes.append(outcome)
        if len(self._outcomes) < len(self.batch.requests) or self.over:
            return
        outcomes, self._outcomes = self._outcomes, []
        if self.sync_point is not None and self.sync_point.refused is not None:
            outcomes = [self.sync_point.refused] * len(outcomes)
        # In both cases nothing was done.
        is_over = any(isinstance(one, SessionExpired) for one in outcomes)
        if is_over or (self._was_forbidden(outcomes) and log_in_again()):
            self._post()
        else:
            self._go_on(Answer(outcomes, order, session, zxid))

    def _was_forbidden(self, outcomes: Sequence[Any]) -> bool:
        """Return whether the rights were missing for all that writes, so that nothing was done."""
        if self.batch.writes and len(outcomes) > 1:
            return False
        return any(map(_is_forbidden, outcomes))

    def void(self) -> None:
        """Continue without an answer: the session that it is bound to has ended."""
        if self.batch.session is not None:
            refused = [SessionExpired(SessionExpired.code) for _ in self.batch.requests]
            self._go_on(Answer(refused, 0, self.batch.session))

    def _post(self) -> None:
        self.sent = False
        self._queue.post(self)

    def set_exception(self, error: Exception) -> None:
        """Handle the loss of the connection; kazoo calls this for each unanswered request."""
        if not self.sent or self.over:
            return
        self._outcomes.clear()
        if self.batch.writes:
            self.fail(translate(error, writes=True))
        else:
            self._post()

    def fail(self, error: Kip30Error) -> None:
        """End with *error*, unless it has ended."""
        if self._end():
            self.complete(error)

    def complete(self, error: Kip30Error) -> None:
        """End the future with *error*."""
        fail(self.future, error)  # unless its caller has cancelled it

    def in_doubt(self) -> bool:
        """Return whether something may have been written without an answer."""
        return self.sent and self.batch.writes

    def _go_on(self, answer: Answer | None) -> None:
        try:
            self.batch = next(self._steps) if answer is None else self._steps.send(answer)
        except StopIteration as end:
            self._succeed(end.value)
        except (Kip30Error, RequestRefused) as error:
            self.fail(translate(error, writes=self.batch.writes))
        except Exception as error:
            log.exception("a step failed")
            self.fail(translate(error, writes=self.batch.writes))
        else:
            self._post()

    def _succeed(self, result: T) -> None:
        if self._end():
            succeed(self.future, result)

    def _end(self) -> bool:
        was_over, self.over = self.over, True
        return not was_over


def _is_forbidden(outcome: Any) -> bool:
    if isinstance(outcome, list):  # the answers to the reads in one request
        return any(isinstance(one, NoAuth) for one in cast("list[object]", outcome))
    return isinstance(outcome, NoAuth)


class Wakeable(Protocol):
    """A connection that takes what is posted."""

    def wake(self) -> None:
        """Make the connection check for operations to send."""
        ...


class Outbox(OperationQueue):
    """Operations waiting for a connection, and those waiting for an answer. Thread-safe."""

    def __init__(self, patience_seconds: float) -> None:
        """Give each operation a deadline in *patience_seconds*."""
        self._patience = patience_seconds
        self._lock = threading.Lock()
        # All of these are written under the lock.
        # Operations to be sent, in this order; one that has already ended is skipped.
        self._waiting: deque[PendingOperation[Any]] = deque()
        # Operations with a deadline, the earliest first, sent or not: `expire` looks at its front.
        self._open: deque[PendingOperation[Any]] = deque()
        # The connection in use; None between two sessions: then operations wait.
        self._client: Wakeable | None = None
        self._closed = False
        # Why there will be no connection soon; operations with a deadline fail with it at once.
        self._refusal: Kip30Error | None = None

    def start(self, steps: Steps[T]) -> Future[T]:
        """Start an operation that ends by the deadline."""
        operation = PendingOperation(steps, self, time.monotonic() + self._patience)
        with self._lock:
            if not operation.over:
                self._open.append(operation)
        return operation.future

    def tend(self, steps: Steps[T]) -> Future[T]:
        """Start an operation that continues until the outbox is closed."""
        return PendingOperation(steps, self, math.inf).future

    @override
    def post(self, operation: PendingOperation[Any]) -> None:
        with self._lock:
            refusal = self._refusal_of(operation)
            if refusal is None:
                self._waiting.append(operation)
            client = self._client
        if refusal is not None:
            operation.fail(refusal)
        elif client is not None:
            client.wake()

    def _refusal_of(self, operation: PendingOperation[Any]) -> Kip30Error | None:
        if self._closed:
            return ClosedError(CLOSED)
        return None if operation.until == math.inf else self._refusal

    def take(self, most: int, session: Session | None) -> list[PendingOperation[Any]]:
        """Return up to *most* operations to be sent now, in *session*."""
        taken: list[PendingOperation[Any]] = []
        void: list[PendingOperation[Any]] = []
        with self._lock:
            while self._waiting and len(taken) < most:
                operation = self._waiting.popleft()
                if operation.over:
                    continue
                if operation.batch.session is not None and operation.batch.session is not session:
                    void.append(operation)
                else:
                    operation.sent = True
                    taken.append(operation)
        for operation in void:
            operation.void()
        return taken

    def attach(self, client: Wakeable | None) -> None:
        """Send with *client* from now on; nowhere if it is None."""
        with self._lock:
            self._client = client
            if client is not None:
                self._refusal = None
        if client is not None:
            client.wake()

    def refuse(self, error: Kip30Error) -> None:
        """Until there is a connection, fail unsent operations that have a deadline with *error*."""
        with self._lock:
            self._refusal = error
            unsent, self._waiting = self._waiting, deque()
        for operation in unsent:
            self.post(operation)

    def expire(self) -> None:
        """Give up operations whose deadline has passed."""
        now = time.monotonic()
        while (late := self._next_late(now)) is not None:
            operation, doubtful = late
            operation.complete(_late(doubtful=doubtful))

    def _next_late(self, now: float) -> tuple[PendingOperation[Any], bool] | None:
        """Return an operation that is given up, and whether it may have written something.

        The same lock guards the decision to send: an operation that is given up unsent stays
        unsent.
        """
        with self._lock:
            while self._open and (self._open[0].over or self._open[0].until <= now):
                operation = self._open.popleft()
                if not operation.over:
                    operation.over = True
                    return operation, operation.in_doubt()
        return None

    def close(self) -> None:
        """End all operations, and accept no more."""
        with self._lock:
            self._closed = True
            self._client = None
            waiting = [*self._waiting, *self._open]
            self._waiting.clear()
            self._open.clear()
        for operation in waiting:
            lost = OutcomeUnknownError("closed before the answer came")
            closed = ClosedError("closed before it was answered")
            operation.fail(lost if operation.in_doubt() else closed)


def _late(*, doubtful: bool) -> Kip30Error:
    if doubtful:
        return OutcomeUnknownError("ZooKeeper did not answer in time")
    return UnavailableError("ZooKeeper did not answer in time: nothing was done")
