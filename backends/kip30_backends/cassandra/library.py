"""The one place that knows cassandra-driver: its cluster, its session, and how it names failures.

The driver keeps the connections. Which node is asked, for how long, and what is done when it does
not answer is decided in `call`: the driver's own timers go by the time of day, and its own
repetitions do not know whether a write was done.
"""

import re
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import cassandra.cluster
import cassandra.connection
import cassandra.policies
import cassandra.query

from kip30.driver.kit import fork_safety
from kip30.driver.kit.threads import started
from kip30_backends.cassandra import driver_threads, inherited
from kip30_backends.cassandra.advice import NEVER_SENT
from kip30_backends.cassandra.cluster import EXECUTOR_THREADS, Patience, cluster
from kip30_backends.cassandra.errors import Failure
from kip30_backends.cassandra.quiet import Quiet
from kip30_backends.cassandra.settings import CassandraSettings

_cluster: Any = cassandra.cluster
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
        self._quiet = Quiet(self.known)
        self.on_up: Callable[[Node], None] = _nothing
        fork_safety.register(self)

    def connect(self) -> None:
        """Connect to the nodes that can be reached; takes as long as the driver likes."""
        self._quiet.begin()
        driver_threads.start_workers(self._cluster, EXECUTOR_THREADS)
        self._cluster.register_listener(_Listener(self))
        with self._quiet.connecting():
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
        self._quiet.end()
        inherited.abandon(self._cluster)

    def _end(self) -> None:
        self._cluster.shutdown()
        self._quiet.end()


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
    """Stand in until somebody wants to know."""
