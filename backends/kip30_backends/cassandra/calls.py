"""One request to the store: its deadline, its answer, its nodes and its retries.

A request goes to one node at a time, and to another one when that is down or does not answer. Every
write is conditional on something that it changes itself, so it is idempotent and safe to retry.
`Answer.is_sure` is false if an earlier attempt may have been applied.
"""

import random
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from kip30.driver.kit.futures import failed
from kip30.driver.kit.gate import Gate
from kip30.driver.kit.operation import Steps
from kip30.driver.kit.time_left import seconds_left, share
from kip30.driver.kit.timer import ScheduledAction, Timer
from kip30.errors import Kip30Error, OutcomeUnknownError
from kip30_backends.cassandra.client.connections import (
    ClusterConnections,
    Row,
    Statement,
    Statements,
)
from kip30_backends.cassandra.errors import (
    LATE,
    NEVER_SENT,
    DeletionsError,
    Failure,
    closed,
    is_missing,
    is_refused,
    met_deletions,
    translate,
    was_never_sent,
)
from kip30_backends.cassandra.observation_order import AnswerOrder, Revisions


class ClusterNodes:
    """The nodes of one cluster, and which of them answer. Thread-safe."""

    def __init__(self, plan: Callable[[], Iterable[Any]]) -> None:
        """Choose from those that *plan* yields, in its order."""
        self._plan = plan
        # The node asked last, which is preferred while it answers. Any thread may replace it.
        self._current: Any = None
        # Nodes that left a request unanswered and have not answered since. Under the lock.
        self._silent: set[int] = set()
        self._lock = threading.Lock()

    def choose(self, tried: Collection[int]) -> tuple[Any, int] | None:
        """Return a node that was not *tried* yet, and how many others there are.

        Nodes that do not answer come last, but they do come: there may be no others.
        """
        up = list(self._plan())
        talking = [node for node in up if id(node) not in self._silent]
        untried = _without(tried, talking) or _without(tried, up)
        if not untried:
            return None
        if self._current not in talking:
            self._current = (talking or up)[0]
        chosen = self._current if self._current in untried else untried[0]
        return chosen, len(untried) - 1

    def suspect(self, node: Any) -> None:
        """Record that *node* did not answer in time."""
        with self._lock:
            self._silent.add(id(node))

    def trust(self, node: Any) -> None:
        """Record that *node* has answered."""
        if id(node) in self._silent:
            with self._lock:
                self._silent.discard(id(node))


def _without(tried: Collection[int], nodes: Iterable[Any]) -> list[Any]:
    return [node for node in nodes if id(node) not in tried]


T = TypeVar("T")

_LEAST_SECONDS = 0.001
_PAUSE = 0.05
_MIN_RETRY_SHARE = 0.1
"""The share of its time that a request must have left for a retry: without an answer to the last
attempt, an outcome that was a refusal until then becomes unknown."""
_NO_ANSWER = Failure("Silence", LATE)
_NO_NODE = Failure(NEVER_SENT, "no node can be reached")
_OVERLOADED = {"WriteTimeout", "ReadTimeout"}


class Answer(NamedTuple):
    """The answer to a request.

    Attributes:
        rows: The rows found; of a write that was refused, the rows that its condition found.
        is_sure: Whether no earlier attempt may have been applied.
        is_last: Whether no other attempt can be applied later. An attempt that a node reported as
            given up was applied by now, or never will be.
    """

    rows: Sequence[Row]
    is_sure: bool
    is_last: bool = True

    @property
    def applied(self) -> bool:
        """True if a write was done, by this attempt."""
        return bool(self.rows and self.rows[0]["[applied]"])


class TypedRequest(NamedTuple, Generic[T]):
    """A request, and how to read its answer.

    Attributes:
        statement: The statement to send.
        read: Reads the answer.
        writes: Whether the request may change anything.
        scans: Whether it passes many rows, so that deletions may make it fail.
    """

    statement: Statement
    read: Callable[[Answer], T]
    writes: bool = False
    scans: bool = False


class RequestContext(NamedTuple):
    """Objects that all requests of a backend share.

    Attributes:
        connections: The connections.
        nodes: The choice between them.
        timer: The clock of attempts.
        repair: Creates missing tables on a thread of its own, then calls its argument.
        keyspace: The keyspace of the tables.
    """

    connections: ClusterConnections
    nodes: ClusterNodes
    timer: Timer
    repair: Callable[[Callable[[], None]], None]
    keyspace: str


class Call(Future[T]):
    """One request, sent in one or more attempts."""

    def __init__(self, context: RequestContext, ask: TypedRequest[T], until: float) -> None:
        """Prepare to send *ask* from `start` on; it ends by *until*."""
        super().__init__()
        self._context = context
        self._ask = ask
        self._until = until
        self._too_short = _MIN_RETRY_SHARE * (until - time.monotonic())
        # The nodes that this round of attempts has asked, by identity; cleared to ask all again.
        self._tried: set[int] = set()
        # The number of the newest attempt. Answers and failures of earlier attempts are late: the
        # first answer counts, a late failure does not. Written under the lock, as is the next.
        self._attempts = 0
        # Whether the future has its outcome, or is about to. Set once.
        self._over = False
        # Whether an earlier attempt may have been applied, or may yet be. Never reset to false:
        # `close` and the answer of a later attempt depend on them.
        self._may_be_done = False
        self._may_be_late = False
        # Whether the newest attempt is under way. Set before it is sent.
        self._is_sent = False
        # Whether the tables were found missing once, and are being created.
        self._repaired = False
        self._last = _NO_NODE
        self._silence: ScheduledAction | None = None
        self._lock = threading.Lock()

    def start(self) -> None:
        """Send an attempt, unless there has been an answer."""
        chosen = self._context.nodes.choose(self._tried)
        if chosen is None:
            self._tried.clear()
            self._later(_PAUSE)
            return
        node, others = chosen
        self._tried.add(id(node))
        number = self._begun()
        if number is None:
            return
        self._context.connections.send(
            self._ask.statement,
            node,
            partial(self._answered, node),
            partial(self._failed, number),
        )
        self._watch(number, node, share(self._left(), others))  # while the node is at work

    def close(self) -> None:
        """End the call, unless there has been an answer."""
        if not self._ends():
            return
        if self._ask.writes and (self._is_sent or self._may_be_done):
            self._fail(OutcomeUnknownError("closed before Cassandra answered"))
        else:
            self._fail(closed())

    def _begun(self) -> int | None:
        """Return the number of an attempt that counts as sent; None if there is an answer."""
        with self._lock:
            if self._over:
                return None
            self._attempts += 1
            self._is_sent = True
            return self._attempts

    def _watch(self, number: int, node: Any, seconds: float) -> None:
        """Act after *seconds* if *node* has not answered attempt *number*."""
        due = self._context.timer.after(seconds, partial(self._was_silent, number, node))
        with self._lock:
            if not self._over and number == self._attempts:
                self._silence = due
                return
        if due is not None:
            due.cancel()

    def _fail(self, error: BaseException) -> None:
        if self.set_running_or_notify_cancel():
            self.set_exception(error)

    def _left(self) -> float:
        return seconds_left(self._until)

    def _later(self, seconds: float) -> None:
        """Retry after about *seconds*, or give up if that leaves no time for an answer."""
        pause = seconds * random.uniform(0.5, 1.5)  # noqa: S311  jitter
        is_too_late = pause + self._too_short >= self._left()
        if is_too_late or not self._context.timer.after(pause, self.start):
            self._give_up(self._last)

    def _answered(self, node: Any, rows: Sequence[Row]) -> None:
        """Accept the first answer, of any attempt: all sent the same request."""
        self._context.nodes.trust(node)
        if not self._ends():
            return
        try:
            result = self._ask.read(Answer(rows, not self._may_be_done, not self._may_be_late))
        except Exception as error:  # noqa: BLE001  a future carries every error
            self._fail(error)
            return
        if self.set_running_or_notify_cancel():
            self.set_result(result)

    def _was_silent(self, number: int, node: Any) -> None:
        if self._is_old(number):
            return
        self._context.nodes.suspect(node)
        self._may_be_done = self._may_be_late = True
        self._last = _NO_ANSWER
        if self._until > time.monotonic() + _LEAST_SECONDS:
            self.start()
        else:
            self._give_up(_NO_ANSWER)

    def _failed(self, number: int, failure: Failure) -> None:
        if self._is_old(number):
            return
        self._last = failure
        # In this order, because a concurrent `close` depends on both.
        self._may_be_done = self._may_be_done or not (
            was_never_sent(failure) or is_refused(failure)
        )
        self._is_sent = False
        if was_never_sent(failure):
            self.start()
        elif is_missing(failure):
            self._await_tables()
        elif is_refused(failure) or self._met_deletions(failure):
            self._give_up(failure)
        else:
            self._go_on(failure)

    def _await_tables(self) -> None:
        """Create the tables, or ask other nodes until this node knows them."""
        if self._repaired:
            self._later(_PAUSE)
            return
        self._repaired = True
        self._context.timer.after(self._left(), partial(self._give_up_if, self._attempts))
        self._context.repair(self.start)

    def _give_up_if(self, number: int) -> None:
        """Give up unless there has been an attempt after *number*."""
        if self._ends(number):
            self._fail(self._translated(self._last))

    def _go_on(self, failure: Failure) -> None:
        """Retry; after a backoff if the request conflicted with others."""
        if failure.kind in _OVERLOADED:
            self._tried.clear()
            self._later(_PAUSE * self._attempts)
        else:
            self._may_be_late = True
            self.start()

    def _is_old(self, number: int) -> bool:
        """Return whether there has been another attempt, or an answer, since attempt *number*."""
        with self._lock:
            if self._over or number != self._attempts:
                return True
            self._attempts += 1
            return False

    def _ends(self, number: int | None = None) -> bool:
        """Make no more attempts; false if there is an answer, or an attempt other than *number*.

        Only then is it certain which attempts were sent, and so which error to report.
        """
        with self._lock:
            if self._over or number not in {None, self._attempts}:
                return False
            self._over = True
        if self._silence is not None:
            self._silence.cancel()
        return True

    def _give_up(self, failure: Failure) -> None:
        if self._ends():
            self._fail(self._translated(failure))

    def _translated(self, failure: Failure) -> Kip30Error:
        wrote = self._ask.writes
        if wrote and self._may_be_done and (is_refused(failure) or was_never_sent(failure)):
            return OutcomeUnknownError(f"no answer from Cassandra, and then: {failure.said}")
        server = ", ".join(str(node.endpoint) for node in self._context.connections.known())
        error = translate(failure, wrote=wrote, subject=self._context.keyspace, server=server)
        return DeletionsError(str(error)) if self._met_deletions(failure) else error

    def _met_deletions(self, failure: Failure) -> bool:
        return self._ask.scans and met_deletions(failure)


class Calls:
    """Sends requests. Thread-safe.

    Attributes:
        statements: The prepared statements.
        root: The namespace of the configuration, which is a part of every key.
        seconds: The operation timeout: how long all requests of one operation may take together.
        orders: The order of all answers.
        revisions: The source of the numbers of writes.
        gate: The check before every request.
    """

    def __init__(
        self, context: RequestContext, statements: Statements, *, seconds: float, root: str
    ) -> None:
        """Send requests with *context*."""
        self.statements = statements
        self.root = root
        self.seconds = seconds
        self.orders = AnswerOrder()
        self.revisions = Revisions()
        self.timer = context.timer
        self._context = context
        self.gate = Gate()
        self._open: set[Call[Any]] = set()

    def until(self) -> float:
        """Return the deadline of an operation that starts now, by the clock of `time.monotonic`."""
        return time.monotonic() + self.seconds

    def send(self, ask: TypedRequest[T], until: float | None = None) -> Future[T]:
        """Return the future answer to *ask*, due by *until* or the operation timeout."""
        refusal = self.gate.refusal()
        if refusal is not None:
            return failed(refusal)
        call = Call(self._context, ask, self.until() if until is None else until)
        self._open.add(call)
        call.add_done_callback(lambda _: self._open.discard(call))
        # `close` may have run since the check of the gate, and has not seen this call.
        if self.gate.is_closed:
            call.close()
        call.start()
        return call

    def read(self, statement: Statement, until: float) -> Steps[Answer]:
        """Send a statement that changes nothing, and return its answer."""
        answer: Answer = yield self.send(TypedRequest(statement, itself), until)
        return answer

    def write(self, statement: Statement, until: float) -> Steps[Answer]:
        """Send a statement that may change something, and return its answer."""
        answer: Answer = yield self.send(TypedRequest(statement, itself, writes=True), until)
        return answer

    def close(self) -> None:
        """End all requests, and accept no more."""
        self.gate.close()
        for call in list(self._open):
            call.close()


def acknowledged(_answer: Answer) -> None:
    """Ignore the content of an answer."""


def itself(answer: Answer) -> Answer:
    """Return *answer* unchanged."""
    return answer


def rows_of(answer: Answer) -> Sequence[Row]:
    """Return the rows found."""
    return answer.rows


def is_applied(answer: Answer) -> bool:
    """Return whether a write was done."""
    return answer.applied
