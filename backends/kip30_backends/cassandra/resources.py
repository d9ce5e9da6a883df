"""Resources that the drivers of one backend share, started and closed in the right order.

Each node judges the end of a row by its own clock, so `describe` compares the nodes' clocks.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from functools import partial
from typing import NamedTuple, TypeVar

from kip30.driver import Context
from kip30.driver.kit import fork_safety
from kip30.driver.kit.futures import Completed, attempt, copy, fail
from kip30.driver.kit.lifecycle import CloseOnce, close_on_thread, end_all, on_thread_of
from kip30.driver.kit.thread_start import started
from kip30.driver.kit.timer import Timer
from kip30.errors import Kip30Error, StoreError, UnavailableError
from kip30_backends.cassandra import schema
from kip30_backends.cassandra.calls import (
    Answer,
    Calls,
    ClusterNodes,
    RequestContext,
    TypedRequest,
    acknowledged,
)
from kip30_backends.cassandra.claims import Claims
from kip30_backends.cassandra.client.cluster import DriverTimeouts, EventLoopWatchdog
from kip30_backends.cassandra.client.connections import (
    ClusterConnections,
    Node,
    Row,
    Statement,
    Statements,
    failure_of,
)
from kip30_backends.cassandra.errors import LATE, NEVER_SENT, Failure, is_missing, translate
from kip30_backends.cassandra.settings import CassandraSettings
from kip30_backends.cassandra.target_states import ResurrectedRows, TargetStates
from kip30_backends.cassandra.tombstone_folding import FoldingQueue
from kip30_backends.cassandra.watch import Watches

_log = logging.getLogger(__name__)

T = TypeVar("T")

_CONNECT = 2.5
_PAUSE = 0.1
_RECONNECT = 1.0
_MIN_SILENCE_SECONDS = 1.0
_SHORTEST_HEARTBEAT = 0.5
_LONGEST_HEARTBEAT = 5.0
_LOOK_SECONDS = 0.5


class ConnectedCluster:
    """The connections to one cluster, and the thread that times requests. It creates no tables.

    Attributes:
        connections: Sends requests.
        timer: The clock of attempts.
    """

    def __init__(self, context: Context, settings: CassandraSettings) -> None:
        """Prepare to connect; nothing is sent.

        Raises:
            ConfigError: A file of the settings cannot be read.
        """
        self._context = context
        self._settings = settings
        self.connections = ClusterConnections(settings, _driver_timeouts(context))
        self.timer = Timer("kip30-cassandra")
        self._watchdog = EventLoopWatchdog()

    def open(self, prepare: Callable[[], T]) -> T:
        """Connect, and run *prepare*, both within the connect timeout; return its result.

        Raises:
            AuthenticationError: The cluster wants other credentials.
            StoreError: Its servers are too old, or *prepare* raised it.
            UnavailableError: No node answered in time.
        """
        self.timer.start()
        prepared = self.within(self._context.connect_timeout_seconds, partial(self._open, prepare))
        self._look_after_loop()
        return prepared

    def within(self, seconds: float, step: Callable[[], T]) -> T:
        """Return the result of *step*, run on a thread that is left running if it takes too long.

        Raises:
            UnavailableError: It took more than *seconds*.
        """
        done: Future[T] = Future()
        doing = threading.Thread(
            target=lambda: copy(attempt(self._result, step), done),
            name="kip30-cassandra-connect",
            daemon=True,
        )
        if not started(doing):
            raise UnavailableError(f"there is no thread to spare to ask {self._addresses()}")
        try:
            return done.result(seconds)
        except TimeoutError as error:
            if self.connections.is_connected():
                raise UnavailableError(f"no answer from {self._addresses()} in time") from error
            raise self._translated(Failure(NEVER_SENT, LATE)) from error

    def request_context(self, repair: Callable[[Callable[[], None]], None]) -> RequestContext:
        """Return the context of requests; *repair* is as in `RequestContext`."""
        nodes = ClusterNodes(self.connections.nodes)
        self.connections.on_up = nodes.trust
        return RequestContext(self.connections, nodes, self.timer, repair, self._settings.keyspace)

    def close(self, seconds: float) -> None:
        """End all threads and connections; wait *seconds* for those of the driver."""
        # The timer first: it completes pending timeouts at once, which may still use the
        # connections.
        self.timer.stop()
        self.connections.close(seconds)

    def _open(self, prepare: Callable[[], T]) -> T:
        self.connections.connect(self._context.connect_timeout_seconds)
        schema.check_versions(self.connections.known())
        return prepare()

    def _result(self, step: Callable[[], T]) -> Future[T]:
        try:
            return Completed(step())
        except Kip30Error:
            raise
        except Exception as error:
            raise self._translated(failure_of(error)) from error

    def _translated(self, failure: Failure) -> Kip30Error:
        """Return the error for *failure*; nothing is written, so no outcome is unknown."""
        elsewhere = {node.datacenter for node in self.connections.known() if node.datacenter}
        if elsewhere and self._settings.datacenter not in {None, *elsewhere}:
            return StoreError(
                f"plugin.cassandra.datacenter = {self._settings.datacenter}: there are nodes in"
                f" {', '.join(sorted(elsewhere))} only"
            )
        return translate(
            failure, wrote=False, subject=self._settings.keyspace, server=self._addresses()
        )

    def _addresses(self) -> str:
        return ", ".join(map(str, self._settings.contact_points))

    def _look_after_loop(self) -> None:
        self._watchdog.look()
        self.timer.after(_LOOK_SECONDS, self._look_after_loop)


def once_known(step: Callable[[], T], seconds: float, meanwhile: Callable[[], None]) -> T:
    """Return the result of *step*; retry for *seconds* while a node does not know the tables.

    Before each retry, *meanwhile* is called. The last error of *step* is raised.
    """
    until = time.monotonic() + seconds
    while True:
        try:
            return step()
        except Exception as error:
            if not is_missing(failure_of(error)) or time.monotonic() > until:
                raise
        meanwhile()
        time.sleep(_PAUSE)


def _driver_timeouts(context: Context) -> DriverTimeouts:
    part = context.session_timeout_seconds / 4
    heartbeat = max(_SHORTEST_HEARTBEAT, min(part, _LONGEST_HEARTBEAT))
    return DriverTimeouts(
        connect=min(context.connect_timeout_seconds / 2, _CONNECT),
        heartbeat=heartbeat,
        silence=max(heartbeat, _MIN_SILENCE_SECONDS),
        reconnect=min(part, _RECONNECT),
        answer=context.connect_timeout_seconds,
    )


_MUCH = 1.0


class ClockReading(NamedTuple):
    """The seconds that the clock of *node* is ahead of this one, give or take *doubt*."""

    node: str
    ahead: float
    doubt: float


def read(
    connections: ClusterConnections, statement: Statement, seconds: float
) -> list[ClockReading]:
    """Ask all nodes at once for the time; return the readings that arrived within *seconds*."""
    asked = [_asked(connections, statement, node) for node in connections.nodes()]
    wait(asked, seconds)
    return [one.result() for one in asked if one.done() and one.exception() is None]


def clock_skew_of(readings: Sequence[ClockReading], margin_seconds: float) -> str:
    """Describe how well the clocks agree.

    Raises:
        StoreError: The clocks of two nodes differ by more than the margin of a lease.
    """
    first, last = min(readings, key=_ahead), max(readings, key=_ahead)
    apart = last.ahead - first.ahead
    if apart - first.doubt - last.doubt > margin_seconds:
        raise StoreError(
            f"the clock of Cassandra at {last.node} is {apart:.1f} s ahead of the one at"
            f" {first.node}: claims may end there while their holders still rely on them;"
            " synchronize the clocks of all nodes by NTP"
        )
    return f"{_agreement(readings, apart)}this one {_here((first.ahead + last.ahead) / 2)}"


def _ahead(reading: ClockReading) -> float:
    return reading.ahead


def _agreement(readings: Sequence[ClockReading], apart: float) -> str:
    return f"nodes {1000 * apart:.0f} ms apart, " if len(readings) > 1 else ""


def _here(nodes_ahead: float) -> str:
    away = abs(nodes_ahead)
    side = "behind" if nodes_ahead > 0 else "ahead"
    if away < _MUCH:
        return f"{1000 * away:.0f} ms {side}"
    return f"{away:.1f} s {side}, which makes writes slower: synchronize it by NTP"


def _asked(
    connections: ClusterConnections, statement: Statement, node: Node
) -> Future[ClockReading]:
    reading: Future[ClockReading] = Future()
    sent_at = time.time()

    def answered(rows: Sequence[Row]) -> None:
        # The node looked at its clock at some moment between these two.
        doubt = (time.time() - sent_at) / 2
        ahead = rows[0]["milliseconds"] / 1000 - sent_at - doubt
        reading.set_result(ClockReading(str(node.endpoint), ahead, doubt))

    connections.send(
        statement, node, answered, lambda one: fail(reading, UnavailableError(one.said))
    )
    return reading


class Resources:
    """An open connection. Nothing in it refers to the backend, so that one can be dropped."""

    def __init__(self, context: Context, settings: CassandraSettings) -> None:
        """Connect.

        Raises:
            ConfigError: Settings contradict each other, or a file cannot be read. Nothing is sent.
            AuthenticationError: The cluster wants other credentials.
            StoreError: Its servers are too old, or the tables are missing and not to be made.
            UnavailableError: No node answered in the connect timeout.
        """
        self._interval = settings.renewal_within(context.session_timeout_seconds)
        self._settings = settings
        self._context = context
        self._cluster = ConnectedCluster(context, settings)
        self.connections = self._cluster.connections
        # Requests that wait for tables, and their lock. The first one starts the creation.
        self._repairing = threading.Lock()
        self._waiting: list[Callable[[], None]] = []
        self._close_once = CloseOnce(on_thread_of("kip30-cassandra", "event_loop"))
        fork_safety.register(self)
        begun = time.monotonic()
        try:
            self.calls = self._asking(self._cluster.open(self._prepared))
            self._probe(context.connect_timeout_seconds - (time.monotonic() - begun))
        except BaseException:
            self._cluster.close(0)
            raise
        self.claims = Claims(context, self.calls, self._interval)
        self.folding = FoldingQueue(self.calls, self.connections, settings.keyspace)
        self.states = TargetStates(self.calls, self.folding)
        resurrected = partial(ResurrectedRows, context.clock, context.session_timeout_seconds)
        self.watches = Watches(self.states, self.calls, settings.pull_seconds, resurrected)

    def describe(self) -> dict[str, str]:
        """Ask a node for its name, and all nodes for the time.

        Raises:
            StoreError: Their clocks are too far apart.
        """
        statement = self.calls.statements.bind("describe")
        row = self.calls.send(TypedRequest(statement, _only)).result()
        return {
            "version": f"Cassandra {row['release_version']}",
            "cluster": row["cluster_name"],
            "datacenter": row["data_center"],
            "nodes": ", ".join(str(node.endpoint) for node in self.connections.known()),
            "keyspace": self._settings.keyspace,
            "session timeout": f"{self.claims.sessions.row_seconds - 1} s",
            "clocks": self._clocks(),
        }

    def _clocks(self) -> str:
        statement = self.calls.statements.bind("look_at_clock")
        readings = read(self.connections, statement, self._context.operation_timeout_seconds / 2)
        return clock_skew_of(readings, self._context.margin_seconds) if readings else "unknown"

    def close(self) -> None:
        """End the lease, all watches, calls, threads and connections. Idempotent."""
        self._close_once.once(self._close)

    def drop(self) -> None:
        """Close, because nothing refers to this any longer; on any thread."""
        close_on_thread(self.close, "kip30-cassandra-drop")

    def abandon(self) -> None:
        """In a forked child: leave everything to the parent."""
        self._close_once.forgo()

    def _close(self) -> None:
        # Deliveries stop first; claims are deleted while requests can still be sent; then all
        # requests end, and the connections; all by one deadline.
        until = time.monotonic() + self._context.operation_timeout_seconds
        end_all(
            self.watches.stop,
            self.claims.close,
            self.calls.close,
            lambda: self._cluster.close(max(0.0, until - time.monotonic())),
        )

    def _prepared(self) -> Statements:
        """Create the tables unless they exist, and prepare all statements."""
        context, keyspace = self._context, self._settings.keyspace
        schema.ensure(self.connections, self._settings, context.connect_timeout_seconds / 2)
        return once_known(
            lambda: Statements.of_tables(self.connections, keyspace),
            context.connect_timeout_seconds,
            self._spread_tables,
        )

    def _asking(self, statements: Statements) -> Calls:
        seconds, root = self._context.operation_timeout_seconds, self._context.namespace
        shared = self._cluster.request_context(self._repair)
        return Calls(shared, statements, seconds=seconds, root=root)

    def _probe(self, seconds: float) -> None:
        """Test the reads of every client; nodes may learn of tables late.

        A read that needs a quorum of the configured copies may fail even if the others work.
        """
        until = time.monotonic() + seconds
        for prepared in (self.calls.statements.bind, self.calls.statements.poll):
            ask = TypedRequest(prepared("read_rev", self.calls.root, ""), acknowledged)
            self.calls.send(ask, until).result()

    def _repair(self, then: Callable[[], None]) -> None:
        """Create tables again that a cluster without durable storage has lost, then continue."""
        with self._repairing:
            self._waiting.append(then)
            is_first = len(self._waiting) == 1
        if is_first:
            self._start_recreation()

    def _start_recreation(self) -> None:
        recreation = threading.Thread(
            target=self._recreate_tables, name="kip30-cassandra-mend", daemon=True
        )
        if not started(recreation):
            self._resume()

    def _recreate_tables(self) -> None:
        self._spread_tables()
        self._resume()

    def _spread_tables(self) -> None:
        try:
            schema.spread(self.connections, self._settings)
        except Exception as error:  # noqa: BLE001  the retry will fail, and say why
            _log.info("the tables were not made: %s", error)

    def _resume(self) -> None:
        """Continue the requests that waited for tables; if there are none, they fail and say so."""
        with self._repairing:
            waiting, self._waiting = self._waiting, []
        for go_on in waiting:
            go_on()


def _only(answer: Answer) -> Row:
    return answer.rows[0]
