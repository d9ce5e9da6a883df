"""One request to the store: its deadline, its answer, the nodes and retries that it takes.

One node is asked at a time, and another one when it is down or does not answer. Every write is
conditional on something that it changes itself, so it is idempotent and safe to retry.
`Answer.is_sure` is false if an earlier attempt may have been applied.
"""

import os
import random
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar, cast

from kip30.driver.kit.following import copy
from kip30.driver.kit.futures import failed
from kip30.driver.kit.timer import Due, Timer
from kip30.errors import Kip30Error, LifecycleError, OutcomeUnknownError
from kip30_backends.cassandra.client.library import Row, Statement, Wire
from kip30_backends.cassandra.client.statements import Statements
from kip30_backends.cassandra.errors import (
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
from kip30_backends.cassandra.order import Orders, Revisions


class Nodes:
    """The nodes of one cluster as its client has met them. Thread-safe."""

    def __init__(self, plan: Callable[[], Iterable[Any]]) -> None:
        """Choose from those that *plan* yields, in its order."""
        self._plan = plan
        self._current: Any = None
        self._silent: set[int] = set()
        self._lock = threading.Lock()

    def choose(self, tried: Collection[int]) -> tuple[Any, int] | None:
        """Return whom to ask who was not *tried* yet, and how many others there would be.

        Silent nodes come last, but they come: they may be all there is.
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
        """Take note that *node* did not answer in time."""
        with self._lock:
            self._silent.add(id(node))

    def trust(self, node: Any) -> None:
        """Take note that *node* has been heard of."""
        if id(node) in self._silent:
            with self._lock:
                self._silent.discard(id(node))


def _without(tried: Collection[int], nodes: Iterable[Any]) -> list[Any]:
    return [node for node in nodes if id(node) not in tried]


T = TypeVar("T")

_LEAST_SECONDS = 0.001
_PAUSE = 0.05
_WORTH_TRYING = 0.1
"""What part of its time a request must have left to be sent again: without an answer to the last
attempt, what was refused until then becomes unknown."""
_SILENCE = Failure("Silence", "no answer in time")
_NOBODY = Failure(NEVER_SENT, "no node can be reached")
_CROWDED = {"WriteTimeout", "ReadTimeout"}


class Answer(NamedTuple):
    """What came back.

    Attributes:
        rows: What was found; of a write, what its condition met if it was refused.
        is_sure: Whether no attempt before this one may have been heard.
        is_last: Whether no other attempt can be done later. One that a node gave up, and said so,
            is done by now, or never.
    """

    rows: Sequence[Row]
    is_sure: bool
    is_last: bool = True

    @property
    def applied(self) -> bool:
        """Whether a write was done, by this attempt."""
        return bool(self.rows and self.rows[0]["[applied]"])


class Ask(NamedTuple, Generic[T]):
    """A request, and what an answer means.

    Attributes:
        statement: What is sent.
        read: Takes the answer; it may return a future, if there is more to ask.
        writes: Whether it would change anything.
        scans: Whether it passes many rows, so that deletions may be in its way.
    """

    statement: Statement
    read: Callable[[Answer], T | Future[T]]
    writes: bool = False
    scans: bool = False


class Route(NamedTuple):
    """What all requests of a backend share.

    Attributes:
        wire: The connections.
        nodes: The choice between them.
        pulse: The clock of attempts.
        repair: Makes the tables where they are missing on a thread of its own, then calls what it
            is given.
        keyspace: Where the tables are.
    """

    wire: Wire
    nodes: Nodes
    pulse: Timer
    repair: Callable[[Callable[[], None]], None]
    keyspace: str


class Call(Future[T]):
    """One request, over one or more attempts."""

    def __init__(self, route: Route, ask: Ask[T], until: float) -> None:
        """Have *ask* answered from `start` on, by *until*."""
        super().__init__()
        self._route = route
        self._ask = ask
        self._until = until
        self._too_short = _WORTH_TRYING * (until - time.monotonic())
        # The nodes that this round of attempts has asked, by identity; cleared to ask all again.
        self._tried: set[int] = set()
        # The number of the newest attempt. Answers and failures of earlier ones are late: the
        # first answer counts, a late failure does not. Written under the lock, as is the next.
        self._attempts = 0
        # Whether the future has its outcome, or is about to. Set once.
        self._over = False
        # Whether an earlier attempt may have been applied, or may yet be. They never go back:
        # `close` and the answer of a later attempt go by them.
        self._may_be_done = False
        self._may_be_late = False
        # Whether the newest attempt is under way. Set before it is sent.
        self._is_sent = False
        # Whether the tables were missing once, and are being made.
        self._repaired = False
        self._last = _NOBODY
        self._silence: Due | None = None
        self._lock = threading.Lock()

    def start(self) -> None:
        """Make an attempt, unless there has been an answer."""
        chosen = self._route.nodes.choose(self._tried)
        if chosen is None:
            self._tried.clear()
            self._later(_PAUSE)
            return
        node, others = chosen
        self._tried.add(id(node))
        number = self._begun()
        if number is None:
            return
        self._route.wire.send(
            self._ask.statement,
            node,
            partial(self._answered, node),
            partial(self._failed, number),
        )
        self._watch(number, node, self._left() / (others + 1))  # while the node is at work

    def close(self) -> None:
        """Be done, unless there has been an answer."""
        if not self._ends():
            return
        if self._ask.writes and (self._is_sent or self._may_be_done):
            self._fail(OutcomeUnknownError("closed before Cassandra answered"))
        else:
            self._fail(closed())

    def _begun(self) -> int | None:
        """Return the number of an attempt that is as good as sent; None if there is an answer."""
        with self._lock:
            if self._over:
                return None
            self._attempts += 1
            self._is_sent = True
            return self._attempts

    def _watch(self, number: int, node: Any, seconds: float) -> None:
        """Have it noticed if *node* does not answer attempt *number* in so many *seconds*."""
        due = self._route.pulse.after(seconds, partial(self._was_silent, number, node))
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
        return max(_LEAST_SECONDS, self._until - time.monotonic())

    def _later(self, seconds: float) -> None:
        """Go on after about so many *seconds*, or give up if that leaves no time for an answer."""
        pause = seconds * random.uniform(0.5, 1.5)  # noqa: S311  jitter
        is_too_late = pause + self._too_short >= self._left()
        if is_too_late or not self._route.pulse.after(pause, self.start):
            self._give_up(self._last)

    def _answered(self, node: Any, rows: Sequence[Row]) -> None:
        """Take the first answer there is, of whichever attempt: all have asked the same."""
        self._route.nodes.trust(node)
        if not self._ends():
            return
        try:
            result = self._ask.read(Answer(rows, not self._may_be_done, not self._may_be_late))
        except Exception as error:  # noqa: BLE001  a future carries whatever it is
            self._fail(error)
            return
        if isinstance(result, Future):
            cast("Future[T]", result).add_done_callback(lambda last: copy(last, self))
        elif self.set_running_or_notify_cancel():
            self.set_result(result)

    def _was_silent(self, number: int, node: Any) -> None:
        if self._is_old(number):
            return
        self._route.nodes.suspect(node)
        self._may_be_done = self._may_be_late = True
        self._last = _SILENCE
        if self._left() > _LEAST_SECONDS:
            self.start()
        else:
            self._give_up(_SILENCE)

    def _failed(self, number: int, failure: Failure) -> None:
        if self._is_old(number):
            return
        self._last = failure
        # In this order, for who closes at this moment goes by both.
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
        """Have the tables made, or ask others until this node has heard of them."""
        if self._repaired:
            self._later(_PAUSE)
            return
        self._repaired = True
        self._route.pulse.after(self._left(), partial(self._give_up_if, self._attempts))
        self._route.repair(self.start)

    def _give_up_if(self, number: int) -> None:
        """Give up unless there has been another attempt than *number*."""
        if self._ends(number):
            self._fail(self._translated(self._last))

    def _go_on(self, failure: Failure) -> None:
        """Ask again, later if it was others who were in the way."""
        if failure.kind in _CROWDED:
            self._tried.clear()
            self._later(_PAUSE * self._attempts)
        else:
            self._may_be_late = True
            self.start()

    def _is_old(self, number: int) -> bool:
        """Say whether there has been another attempt, or an answer, since attempt *number*."""
        with self._lock:
            if self._over or number != self._attempts:
                return True
            self._attempts += 1
            return False

    def _ends(self, number: int | None = None) -> bool:
        """Make no more attempts; false if there is an answer, or another attempt than *number*.

        Only then it is settled what has been sent, and so what is to be said of it.
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
        server = ", ".join(str(node.endpoint) for node in self._route.wire.known())
        error = translate(failure, wrote=wrote, subject=self._route.keyspace, server=server)
        return DeletionsError(str(error)) if self._met_deletions(failure) else error

    def _met_deletions(self, failure: Failure) -> bool:
        return self._ask.scans and met_deletions(failure)


class Calls:
    """Sends requests. Thread-safe.

    Attributes:
        statements: What can be sent.
        root: The namespace of the configuration, which is a part of every key.
        seconds: How long an operation may take, all its requests together.
        orders: The order of all answers.
        revisions: What writes are numbered by.
    """

    def __init__(self, route: Route, statements: Statements, *, seconds: float, root: str) -> None:
        """Send by *route*."""
        self.statements = statements
        self.root = root
        self.seconds = seconds
        self.orders = Orders()
        self.revisions = Revisions()
        self.pulse = route.pulse
        self._route = route
        self._pid = os.getpid()
        self._closed = False
        self._open: set[Call[Any]] = set()

    def until(self) -> float:
        """Return by when what begins now has to end, by the clock of `time.monotonic`."""
        return time.monotonic() + self.seconds

    def send(self, ask: Ask[T], until: float | None = None) -> Future[T]:
        """Return the future answer to *ask*, which ends by the operation timeout or *until*."""
        refusal = self._refusal()
        if refusal is not None:
            return failed(refusal)
        call = Call(self._route, ask, self.until() if until is None else until)
        self._open.add(call)
        call.add_done_callback(lambda _: self._open.discard(call))
        if self._closed:
            call.close()
        call.start()
        return call

    def check(self) -> None:
        """Raise unless requests can be made here and now.

        Raises:
            ClosedError: The backend is closed.
            LifecycleError: It belongs to the parent of this forked process.
        """
        refusal = self._refusal()
        if refusal is not None:
            raise refusal

    def close(self) -> None:
        """End all requests, and take no more."""
        self._closed = True
        for call in list(self._open):
            call.close()

    def _refusal(self) -> Kip30Error | None:
        if os.getpid() != self._pid:
            return LifecycleError("opened before a fork: open another one in the child")
        return closed() if self._closed else None


def acknowledged(_answer: Answer) -> None:
    """Learn nothing from an answer but that it came."""
