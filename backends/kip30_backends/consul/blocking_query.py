"""Blocking queries: one for each observation, or one that many share.

Consul answers a blocking query as soon as something has changed since the given index. Each runs on
a thread and over a connection of its own. Observations that share a query are read one after the
other, and one that fails keeps no other from being read.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from kip30.driver.kit.watch import NOTHING_DELIVERED, Sink, WatchHandle
from kip30.driver.records import Kind, Snapshot
from kip30.errors import AuthenticationError, ClosedError, Kip30Error
from kip30_backends.consul import transactions
from kip30_backends.consul.calls import Calls
from kip30_backends.consul.client.endpoints import Agent, Endpoints
from kip30_backends.consul.client.http import Answer, HttpConnection
from kip30_backends.consul.client.operation_requests import (
    OK_OR_ABSENT,
    OperationRequests,
    TypedRequest,
    understood,
)
from kip30_backends.consul.errors import HUNG_UP, Failure, RequestFailedError, is_lost
from kip30_backends.consul.observation_order import OrderMark, PlaceOrder
from kip30_backends.consul.target_states import Content, TargetKeys, TargetStates
from kip30_backends.consul.transactions import at_key, check_whole, index_of, listed

AnswerCallback = Callable[[Answer], None]

_log = logging.getLogger(__name__)

_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 0.5
_JITTER = 1 / 16
"""The share of the requested wait by which a server may answer later."""
_INTERRUPTED = Failure(HUNG_UP, "interrupted")


class QueryWait(NamedTuple):
    """The seconds that a server waits for a change, and those that its answer may take besides."""

    wait: float
    answer: float

    @property
    def connect(self) -> float:
        """Timeout in seconds of connecting, which nothing can interrupt."""
        return self.answer / 2

    @property
    def all(self) -> float:
        """Timeout in seconds of a blocking query."""
        return self.wait * (1 + _JITTER) + self.answer


class QueryConnection:
    """One connection to the server in use. For one thread; other threads may only interrupt it.

    An interruption lasts until a request has failed, and the requesting thread has seen that.
    """

    def __init__(self, endpoints: Endpoints) -> None:
        """Connect on the first request."""
        self._endpoints = endpoints
        # Guards the three below. Reentrant: `move` holds it when it calls `interrupt`.
        self._lock = threading.RLock()
        # The connection, and the server that it goes to. Written by the requesting thread.
        self._agent = endpoints.current
        self._connection: HttpConnection | None = None
        # Set by any thread, under the lock; reset by the requesting one, after a request failed.
        self._interrupted = False

    def ask(self, target: str, query_wait: QueryWait) -> Answer:
        """Return what the server answers.

        Raises:
            RequestFailedError: There was no usable answer within *query_wait*, or this was
                interrupted since the last failed request.
        """
        agent = self._endpoints.current
        try:
            answer = self._asked(agent, target, query_wait)
        except RequestFailedError as error:
            self.let_go()
            # An interrupted request says nothing about its server.
            if is_lost(error.failure) and not self._interrupted:
                self._endpoints.leave(agent)
            # A late interruption is not lost: after a failure, everything is requested again.
            self._interrupted = False
            raise
        if not self._connection or not self._connection.reusable:
            self.let_go()
        return answer

    def move(self) -> None:
        """End the request if it goes to another server than the one in use."""
        with self._lock:
            if self._agent is not self._endpoints.current:
                self.interrupt()

    def interrupt(self) -> None:
        """End the current request, or else the next one."""
        with self._lock:
            self._interrupted = True
            if self._connection is not None:
                self._connection.hang_up()

    def let_go(self) -> None:
        """Drop the connection, on the requesting thread."""
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is not None:
            self._agent.http.connections.drop(connection)

    def _asked(self, agent: Agent, target: str, query_wait: QueryWait) -> Answer:
        now = time.monotonic()
        connection = self._connected(agent, now + query_wait.connect)
        answer = agent.http.listen(connection, target, now + query_wait.all)
        if answer.status not in OK_OR_ABSENT:
            said = answer.body.decode("utf-8", "backslashreplace")
            raise RequestFailedError(Failure(answer.status, said))
        return answer

    def _connected(self, agent: Agent, until: float) -> HttpConnection:
        self._check(agent)
        connection = self._connection
        if connection is None or agent is not self._agent or not connection.is_idle():
            self.let_go()
            connection = agent.http.connections.dial(until)
            with self._lock:
                self._agent, self._connection = agent, connection
            # Nothing could be closed before, and another server may have been in use since.
            self._check(agent)
        return connection

    def _check(self, agent: Agent) -> None:
        if self._interrupted or agent is not self._endpoints.current:
            raise RequestFailedError(_INTERRUPTED)


class BlockingQuery:
    """Notifies about a place at once, after every change, and from time to time.

    So a missed change is made up for soon.
    """

    def __init__(
        self,
        connection: QueryConnection,
        url: str,
        query_wait: QueryWait,
        callback_of: Callable[[], AnswerCallback],
    ) -> None:
        """Request *url*; before each request, *callback_of* returns the receiver of the answer.

        The receiver may raise one of kip30's errors; then the request is repeated.
        """
        self._connection = connection
        self._url = url
        self._query_wait = query_wait
        self._callback_of = callback_of
        self._closing = threading.Event()
        self.thread = threading.Thread(target=self._run, name="kip30-consul-watch", daemon=True)

    def notify_again(self) -> None:
        """Notify once more, whether anything has changed or not."""
        self._connection.interrupt()

    def move(self) -> None:
        """Send requests to the server that is now in use."""
        self._connection.move()

    def close(self) -> None:
        """End soon; `thread` ends when this has."""
        self._closing.set()
        self._connection.interrupt()

    def _run(self) -> None:
        known, pause = 0, _FIRST_PAUSE
        while not self._closing.is_set():
            try:
                known, behind = self._follow(known), known
                pause = _FIRST_PAUSE
                # The store restarted its count, or forgot old deletions: start again, but do not
                # hurry.
                if known < behind:
                    known = 0
                    self._closing.wait(pause)
            except Exception as error:  # noqa: BLE001  otherwise the listening would end
                self._note(error)
                known = 0
                self._closing.wait(pause)
                pause = min(_LONGEST_PAUSE, 2 * pause)
        self._connection.let_go()

    def _note(self, error: Exception) -> None:
        if isinstance(error, Kip30Error | RequestFailedError):
            _log.info("retrying watch of %s after: %s", self._url, error)
        else:
            _log.error("the watch of %s goes on", self._url, exc_info=error)

    def _follow(self, known: int) -> int:
        """Request what is newer than *known*, and return the index reached."""
        wait = f"&index={known}&wait={round(self._query_wait.wait * 1000)}ms" if known else ""
        # Before the request: it notes how far answers have come, by which this one is ordered.
        on_answer = self._callback_of()
        answer = self._connection.ask(self._url + wait, self._query_wait)
        if not self._closing.is_set():
            on_answer(answer)
        return understood(answer, index_of)


class ConsulWatch(WatchHandle):
    """One observation, and what it delivered last."""

    def __init__(
        self,
        place: TargetKeys,
        place_order: PlaceOrder,
        sink: Sink,
        forget: Callable[["ConsulWatch"], None],
    ) -> None:
        """Deliver *place* to *sink* while holding its *place_order*; call *forget* in the end."""
        super().__init__(place.target, sink, forget)
        self.place = place
        # The content that was delivered last. Written under the lock.
        self.content = Content({}, {})
        # The last answer about a set of keys, as received and as parsed.
        self._names: tuple[bytes, Content] | None = None
        # Never read: `AnswerOrder` keeps the order of a place while something refers to it.
        self._place_order = place_order

    @property
    def is_there(self) -> bool:
        """Return whether the last answer showed anything at the place."""
        return any(self.content)

    @property
    def is_absent(self) -> bool:
        """Return whether the last state it received shows nothing at the place."""
        return self.order != NOTHING_DELIVERED and not self.is_there

    def understand(self, answer: Answer) -> tuple[int, Content]:
        """Return the index that an answer covers, and the content of the place.

        Consul returns the same set of keys after each update of a value: that is not parsed again.

        Raises:
            RequestFailedError: As for `kip30_backends.consul.transactions.found`.
        """
        check_whole(answer)
        with self.lock:
            if self._names is None or answer.body != self._names[0]:
                content = self.place.content(listed(answer))
                if self.place.target.kind is not Kind.NAMESPACE:
                    return index_of(answer), content
                self._names = answer.body, content
            return index_of(answer), self._names[1]

    def tell(self, order: int, content: Content) -> None:
        """Deliver the content, unless it is unchanged."""
        with self.lock:
            if self.deliver(Snapshot(order, *content)):
                self.content = content


_NEVER_THERE = "/="
"""An ending that no key of kip30 has: one name is no parent of another."""
_SINGLE = frozenset({Kind.VALUE, Kind.MEMBER, Kind.SERVICE})


def look(watch: ConsulWatch, states: TargetStates, requests: OperationRequests) -> None:
    """Read the target of *watch*, and deliver it."""
    sent = states.mark(watch.place)
    asked = TypedRequest("GET", watch.place.url, watch.understand, answers=OK_OR_ABSENT)
    index, content = requests.ask(asked)
    watch.tell(states.order(index, sent), content)


class SharedPoll:
    """One reading of many watches; each request may take as long as any call."""

    def __init__(self, states: TargetStates, calls: Calls) -> None:
        """Read from *states*."""
        self._states = states
        self._calls = calls
        # The last error, raised in the end, so that the query is soon repeated.
        self._trouble: Kip30Error | None = None
        # Watches read one by one: of sets of keys, and of keys that the token may not all read.
        self._alone: list[ConsulWatch] = []

    def read(self, watches: Sequence[ConsulWatch]) -> None:
        """Read all *watches*: single keys together, everything else by itself.

        Raises:
            Kip30Error: Something cannot be read now. A lack of permission does not count, because a
                retry would not help: the next round tries again.
        """
        there: list[ConsulWatch] = []
        absent: list[ConsulWatch] = []
        for watch in watches:
            if watch.place.target.kind not in _SINGLE:
                self._alone.append(watch)
            else:
                # Asked once: its first answer may arrive now, and each must be read in one way.
                (there if watch.is_there else absent).append(watch)
        gone = self._read_together(there)
        self._read_absent([*gone, *absent])
        for watch in self._alone:
            self._read_alone(watch)
        if self._trouble is not None:
            raise self._trouble

    def _read_absent(self, watches: Sequence[ConsulWatch]) -> None:
        """Read keys that are most likely absent.

        A transaction does not return an index for an absent key. So this first reads the index of
        the store: a key that the transaction does not find after that is absent as of that index.
        """
        if len(watches) == 1:
            self._alone += watches
        elif watches:
            marks = self._marks(watches)
            try:
                index = self._requests().ask(at_key(f"{watches[0].place.key}{_NEVER_THERE}")).at
            except AuthenticationError:
                self._alone += watches
            except Kip30Error as error:
                self._note(error)
            else:
                for watch in self._read_together(watches):
                    watch.tell(self._states.order(index, marks[watch]), Content({}, {}))

    def _read_together(self, watches: Sequence[ConsulWatch]) -> list[ConsulWatch]:
        """Read keys in few transactions; return the watches of absent ones.

        Consul does not say which keys may be read: if any may not, each is read alone.
        """
        absent: list[ConsulWatch] = []
        for at in range(0, len(watches), transactions.MAX_OPS):
            part = watches[at : at + transactions.MAX_OPS]
            try:
                absent += self._read_part(part)
            except AuthenticationError:
                self._alone += part
            except Kip30Error as error:
                self._note(error)
        return absent

    def _read_part(self, watches: Sequence[ConsulWatch]) -> list[ConsulWatch]:
        marks = self._marks(watches)
        records = self._requests().ask(transactions.read([watch.place.key for watch in watches]))
        absent: list[ConsulWatch] = []
        for watch, record in zip(watches, records, strict=True):
            if record is None:
                absent.append(watch)
            else:
                order = self._states.order(record.modified, marks[watch])
                watch.tell(order, watch.place.content_of(record))
        return absent

    def _marks(self, watches: Sequence[ConsulWatch]) -> dict[ConsulWatch, OrderMark]:
        return {watch: self._states.mark(watch.place) for watch in watches}

    def _read_alone(self, watch: ConsulWatch) -> None:
        try:
            look(watch, self._states, self._requests())
        except AuthenticationError as error:
            _log.info("%s is not observed for now: %s", watch.place.target, error)
        except Kip30Error as error:
            self._note(error)

    def _requests(self) -> OperationRequests:
        return self._calls.requests(self._calls.seconds)

    def _note(self, error: Kip30Error) -> None:
        if isinstance(error, ClosedError):
            raise error
        self._trouble = error
