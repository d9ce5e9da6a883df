"""The one place that knows cassandra-driver: its cluster, its session, its threads.

The driver keeps the connections. Which node is asked, for how long, and what is done when it does
not answer is decided in `request`: the driver's own timers go by the time of day, and its own
retries do not know whether a write was done.

The driver starts its threads when it needs them, deep inside, and does not expect that to fail: an
event loop whose thread did not start counts as running, and no answer is ever read again. So they
are started while a lack of them can still be reported, and again later.

The driver notices a fork only when the child connects, and then closes what it finds: it takes
locks that a thread of the parent may have held, and calls back requests of the parent. At the end
of the process it shuts down all clusters, which waits for threads that the child does not have. So
a child must neither use nor end what it inherits.

It also logs every second that the same node cannot be reached; `LogFilter` keeps the first.
"""

import logging
import re
import ssl
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import cassandra.cluster
import cassandra.connection
import cassandra.policies
import cassandra.query
from typing_extensions import override

from kip30.driver.kit import fork_safety
from kip30.driver.kit.threads import started
from kip30.errors import UnavailableError
from kip30_backends.cassandra.client.cluster import EXECUTOR_THREADS, Patience, cluster
from kip30_backends.cassandra.errors import NEVER_SENT, Failure
from kip30_backends.cassandra.settings import CassandraSettings

_cluster: Any = cassandra.cluster


def start_workers(cluster: Any, count: int) -> None:
    """Start all *count* threads of the executor of *cluster*, which otherwise come as needed.

    Raises:
        UnavailableError: The system has no thread to spare.
    """
    go_on = threading.Event()
    try:
        for _ in range(count):
            cluster.executor.submit(go_on.wait)
    except RuntimeError as error:
        raise UnavailableError(f"the driver has no thread to spare: {error}") from error
    finally:
        go_on.set()


class EventLoopWatchdog:
    """Starts the thread of the driver's event loop if that could not be started. For one thread."""

    def __init__(self) -> None:
        """Have seen nothing yet."""
        self._suspect: threading.Thread | None = None
        """The thread that was not alive at the last look; the driver may be about to start it."""

    def look(self) -> None:
        """Start the thread if the last look found it missing as well."""
        loop: Any = getattr(
            sys.modules[_cluster.DefaultConnection.__module__], "_global_loop", None
        )
        thread: threading.Thread | None = getattr(loop, "_thread", None)
        if thread is None or thread.is_alive() or not loop._started:  # noqa: SLF001  no public state
            self._suspect = None
        elif self._suspect is not thread:
            self._suspect = thread
        else:
            _restart(loop)


def _restart(loop: Any) -> None:
    with loop._lock:  # noqa: SLF001  what the driver's own `maybe_start` takes
        loop._started = False  # noqa: SLF001  so that it starts again
    try:
        loop.maybe_start()
    except RuntimeError:
        return  # it is tried again at the next look


_loops: list[Any] = []
"""The event loops of parents; none is ever deleted, for that would end its connections."""


def abandon(cluster: Any) -> None:
    """In a forked child: let go of *cluster* and of the connections, which stay the parent's."""
    _leave_event_loop()
    _cluster._discard_cluster_shutdown(cluster)  # noqa: SLF001  there is no other way to say so
    for one in (cluster, *list(cluster.sessions)):
        # When it is deleted the driver takes the lock before it looks at the flag.
        one._lock = threading.RLock()  # noqa: SLF001  a thread of the parent may hold it
        one.is_shutdown = True


def _leave_event_loop() -> None:
    """Make the driver begin with an event loop of its own, as if it had not been used before."""
    module: Any = sys.modules[_cluster.DefaultConnection.__module__]
    loop: Any = getattr(module, "_global_loop", None)
    if loop is None:
        return
    _loops.append(loop)
    module._global_loop = None  # noqa: SLF001  what the driver does itself, but for the closing
    for connection in list(getattr(loop, "_live_conns", ())):
        # Were it kept, the server would not see it end while the child lives.
        with suppress(Exception):
            connection._socket.close()  # noqa: SLF001  its own close waits


_SOURCES = ("cassandra.cluster", "cassandra.pool")
_SECONDS = 60.0


class LogFilter(logging.Filter):
    """Lets pass what the driver logs of a node once a minute; where it logs for debugging, all.

    Nothing of why no connection came about, which is raised. Concerns the nodes of one connection
    alone: a program may use the driver for its own ends.
    """

    def __init__(self, nodes: Callable[[], Iterable[Any]]) -> None:
        """Look after those that *nodes* returns."""
        super().__init__()
        self._nodes = nodes
        self._connecting: int | None = None
        self._passed: dict[tuple[str, int], float] = {}

    def begin(self) -> None:
        """Listen to what the driver logs."""
        for name in _SOURCES:
            logging.getLogger(name).addFilter(self)

    def end(self) -> None:
        """Undo `begin`."""
        for name in _SOURCES:
            logging.getLogger(name).removeFilter(self)

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        return self._is_news(record) or logging.getLogger(record.name).isEnabledFor(logging.DEBUG)

    @contextmanager
    def connecting(self) -> Generator[None]:
        """Take note that what is logged on this thread meanwhile is raised as well."""
        self._connecting = threading.get_ident()
        try:
            yield
        finally:
            self._connecting = None

    def _is_news(self, record: logging.LogRecord) -> bool:
        if record.thread == self._connecting:
            return False
        about = record.args[0] if isinstance(record.args, tuple) and record.args else None
        if not any(about is node for node in self._nodes()):
            return True
        return self._is_new(str(record.msg), id(about))

    def _is_new(self, text: str, node: int) -> bool:
        now = time.monotonic()
        if now - self._passed.get((text, node), -_SECONDS) < _SECONDS:
            return False
        self._passed[text, node] = now
        return True


_connection: Any = cassandra.connection
_policies: Any = cassandra.policies
_query: Any = cassandra.query
_levels: Any = _query.ConsistencyLevel
_rejected: Any = _connection.AuthenticationFailed

_LAST = "Last error: "
_LATE = "Timed out creating connection"
_TOLD = re.compile(r'message="(.*)"', re.DOTALL)
_KINDS = {0: "SIMPLE", 1: "BATCH", 6: "CAS"}

Row = Mapping[str, Any]
Node = Any
"""One of the driver's hosts; they are told apart by identity."""
Statement = Any
"""What can be sent: bound, or a batch of such."""
Prepared = Any


class Wire:
    """The connections to one cluster. Thread-safe."""

    def __init__(self, settings: CassandraSettings, patience: Patience) -> None:
        """Make ready to connect; nothing is sent.

        Raises:
            ConfigError: A file of the settings cannot be read.
        """
        self._patience = patience
        self._policy = _policies.DCAwareRoundRobinPolicy(local_dc=settings.datacenter or "")
        self._cluster = cluster(settings, patience, self._policy)
        self._session: Any = None
        self._log_filter = LogFilter(self.known)
        self.on_up: Callable[[Node], None] = _nothing
        fork_safety.register(self)

    def connect(self) -> None:
        """Connect to the nodes that can be reached; takes as long as the driver likes."""
        self._log_filter.begin()
        start_workers(self._cluster, EXECUTOR_THREADS)
        self._cluster.register_listener(_Listener(self))
        with self._log_filter.connecting():
            self._session = self._cluster.connect()
        self._session.use_client_timestamp = False

    def prepare(self, cql: str, *, serial: bool = False) -> Prepared:
        """Return *cql* ready to be bound; *serial*, if it reads and must miss nothing decided."""
        prepared = self._session.prepare(cql)
        prepared.consistency_level = _levels.SERIAL if serial else _levels.QUORUM
        prepared.serial_consistency_level = _levels.SERIAL
        prepared.fetch_size = None
        return prepared

    def execute(self, cql: str, node: Node = None) -> Sequence[Row]:
        """Return the answer of *node*, or any, on this thread, for when the backend opens."""
        answer = self._session.execute(cql, timeout=self._patience.answer, host=node)
        return list(answer or ())

    def nodes(self) -> Iterator[Node]:
        """Yield the nodes that are up, in the order in which this request should try them."""
        yield from self._policy.make_query_plan()

    def reached(self) -> list[Node]:
        """Return the nodes that there are connections to."""
        return [pool.host for pool in list(self._session.get_pools())]

    @property
    def datacenter(self) -> str:
        """The data centre whose nodes are asked."""
        return str(self._policy.local_dc)

    def known(self) -> list[Node]:
        """Return all nodes of the cluster, also those that are down or elsewhere."""
        return list(self._cluster.metadata.all_hosts())

    def send(
        self,
        statement: Statement,
        node: Node,
        answered: Callable[[Sequence[Row]], None],
        failed: Callable[[Failure], None],
    ) -> None:
        """Send once, to *node* alone; one of the callbacks is called, on a thread not to block."""
        try:
            future = self._session.execute_async(statement, timeout=None, host=node)
        except Exception as error:  # noqa: BLE001  the driver raises what it likes
            failed(Failure(NEVER_SENT, str(error)))
            return

        def succeed(rows: Sequence[Row] | None) -> None:
            answered(rows or ())

        def fail(error: BaseException) -> None:
            failed(failure_of(error))

        future.add_callbacks(succeed, fail)

    def close(self, seconds: float) -> None:
        """End all connections and the driver's threads, for which this waits so many *seconds*."""
        ending = threading.Thread(target=self._end, name="kip30-cassandra-close", daemon=True)
        if started(ending):
            ending.join(seconds)
        else:
            self._end()

    def abandon(self) -> None:
        """In a forked child: leave all to the parent, also when the process ends."""
        self._log_filter.end()
        abandon(self._cluster)

    def _end(self) -> None:
        self._cluster.shutdown()
        self._log_filter.end()


def bind(prepared: Prepared, values: Sequence[Any]) -> Statement:
    """Return *prepared* with *values*, of which None is null."""
    return prepared.bind(values)


def together(statements: Sequence[Statement]) -> Statement:
    """Return *statements* of one partition as one, of which all is done or nothing."""
    if len(statements) == 1:
        return statements[0]
    batch = _query.BatchStatement(
        _query.BatchType.UNLOGGED,
        consistency_level=_levels.QUORUM,
        serial_consistency_level=_levels.SERIAL,
    )
    for one in statements:
        batch.add(one)
    return batch


def failure_of(error: BaseException) -> Failure:
    """Return what *error* of the driver's tells."""
    if isinstance(error, _cluster.NoHostAvailable):
        return _nobody(error)
    write_type = getattr(error, "write_type", None)
    kind = f" of {_KINDS.get(write_type, 'a write')}" if write_type is not None else ""
    return Failure(type(error).__name__, f"{_plain(error)}{kind}")


def _nobody(error: Any) -> Failure:
    """Say why no connection took a request: what its errors are, if they agree on a refusal."""
    errors: Any = error.errors
    causes: list[Any] = [*errors.values()] if hasattr(errors, "values") else []
    for cause in causes:
        if isinstance(cause, _rejected):
            return Failure("AuthenticationFailed", _plain(cause))
        if isinstance(cause, ssl.SSLError) or "SSL:" in str(cause):  # the driver makes others of it
            return Failure("SSLError", _plain(cause))
    said = "; ".join(dict.fromkeys(map(_plain, causes))) or str(error)
    return Failure(NEVER_SENT, said)


def _plain(error: object) -> str:
    """Return what a node or the system said, without what the driver says around it."""
    text = str(error)
    if _LATE in text:
        return "no answer in time"
    told = _TOLD.search(text)
    return told[1] if told else text.rpartition(_LAST)[2]


class _Listener:
    """What the driver tells of nodes that come and go."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def on_up(self, node: Node) -> None:
        """Pass it on."""
        self._wire.on_up(node)

    def on_down(self, node: Node) -> None:
        """Know it from the driver's list."""

    on_add = on_remove = on_down


def _nothing(_node: Node) -> None:
    """Stand in until a caller sets the callback."""
