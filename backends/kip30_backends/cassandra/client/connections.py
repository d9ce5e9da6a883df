"""The connections of cassandra-driver, and all statements that are sent over them, in CQL.

The driver keeps the connections. `calls` chooses the node and the timeout, and decides what to do
when a node does not answer: the driver's own timers use the time of day, and its own retries do not
know whether a write was done.

A statement is prepared once, and bound for each request. A write is conditional, and its condition
also names columns that may hold anything: a refused write returns the columns of its condition,
which saves a read of the reason.

Each guard of a write is a statement of its own in the batch, which writes the version that it
compares: a statement that writes nothing could not have a condition.

A partition of records has a first row, the head, whose name no key has. It lives as long as the
partition, so a read of static columns ends there, however many deleted rows follow. Each write that
may have added or removed a name gives it a new nonce.
"""

import re
import ssl
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from string import Template
from typing import Any

import cassandra.cluster
import cassandra.connection
import cassandra.policies
import cassandra.query

from kip30.driver.clock import SystemClock
from kip30.driver.kit import fork_safety
from kip30.driver.kit.lifecycle import do_nothing
from kip30.driver.kit.retry import Retry
from kip30.driver.kit.thread_start import started
from kip30_backends.cassandra.client.cluster import (
    EXECUTOR_THREADS,
    ContactPointPolicy,
    DriverTimeouts,
    LogFilter,
    abandon,
    cluster,
    start_workers,
)
from kip30_backends.cassandra.errors import LATE, NEVER_SENT, Failure
from kip30_backends.cassandra.settings import CassandraSettings, OneNodeSettings

_cluster: Any = cassandra.cluster
_connection: Any = cassandra.connection
_policies: Any = cassandra.policies
_query: Any = cassandra.query
_levels: Any = _query.ConsistencyLevel
_rejected: Any = _connection.AuthenticationFailed
_OperationTimedOut: Any = _cluster.OperationTimedOut

_LAST = "Last error: "
_TIMED_OUT = "Timed out creating connection"
_MESSAGE = re.compile(r'message="(.*)"', re.DOTALL)
_KINDS = {0: "SIMPLE", 1: "BATCH", 6: "CAS"}

Row = Mapping[str, Any]
Node = Any
"""One of the driver's hosts; they are compared by identity."""
Statement = Any
"""A statement that can be sent: bound, or a batch of such."""
Prepared = Any


class ClusterConnections:
    """The connections to one cluster. Thread-safe."""

    def __init__(self, settings: CassandraSettings, timeouts: DriverTimeouts) -> None:
        """Prepare to connect; nothing is sent.

        Raises:
            ConfigError: A file of the settings cannot be read.
        """
        self._settings = settings
        self._timeouts = timeouts
        # Held while the cluster is replaced; a closed one is not replaced any more.
        self._replacing = threading.Lock()
        self._is_closed = False
        self._use_new_cluster(timeouts.connect)
        self._session: Any = None
        self._log_filter = LogFilter(self.known)
        self.on_up: Callable[[Node], None] = do_nothing
        fork_safety.register(self)

    def connect(self, seconds: float) -> None:
        """Connect to the nodes that can be reached.

        The driver tries each node once, for a short time, so that one that is silent does not use
        up the time of the others. If none accepts in time, this tries again for *seconds*, each
        time with twice the patience: a busy node takes long to check a password. Between two
        attempts there is a backoff, because a node may also drop connections at once.
        """
        clock, patience = SystemClock(), self._timeouts.connect
        until, retry = clock.now() + seconds, Retry(clock)
        self._log_filter.begin()
        while True:
            try:
                self._connect()
            except _cluster.NoHostAvailable as error:
                retry.failed()
                patience = min(2 * patience, until - retry.due)
                if patience <= 0 or not self._is_late(error):
                    raise
                time.sleep(max(0.0, retry.due - clock.now()))
                if not self._replace_cluster(patience):
                    raise
            else:
                return

    def is_connected(self) -> bool:
        """Return whether `connect` has succeeded."""
        return self._session is not None

    def _connect(self) -> None:
        start_workers(self._cluster, EXECUTOR_THREADS)
        self._cluster.register_listener(_Listener(self))
        with self._log_filter.connecting():
            self._session = self._cluster.connect()
        # Nodes set the timestamps, on which folding relies: clocks of clients differ by more.
        self._session.use_client_timestamp = False

    def _is_late(self, error: Any) -> bool:
        """Return whether a node did not accept in time, and none has refused the credentials."""
        if not hasattr(error.errors, "values"):
            # A node has accepted one connection, but none of the data centre those for requests.
            return any(node.datacenter == self.datacenter for node in self.known())
        causes = list(error.errors.values())
        is_late = any(isinstance(cause, _OperationTimedOut) for cause in causes)
        return is_late and not any(isinstance(cause, _rejected) for cause in causes)

    def _replace_cluster(self, connect_seconds: float) -> bool:
        """Replace the cluster, which connects once only; false if it has been closed."""
        with self._replacing:
            if self._is_closed:
                return False
            self._cluster.shutdown()
            self._use_new_cluster(connect_seconds)
            return True

    def _use_new_cluster(self, connect_seconds: float) -> None:
        datacenter = self._settings.datacenter or ""
        is_apart = isinstance(self._settings, OneNodeSettings)
        policy = ContactPointPolicy if is_apart else _policies.DCAwareRoundRobinPolicy
        self._policy = policy(local_dc=datacenter)
        timeouts = self._timeouts._replace(connect=connect_seconds)
        self._cluster = cluster(self._settings, timeouts, self._policy)

    def prepare(self, cql: str, *, serial: bool = False) -> Prepared:
        """Return *cql* ready to be bound; *serial*, if it reads and must miss no decided write."""
        prepared = self._session.prepare(cql)
        prepared.consistency_level = _levels.SERIAL if serial else _levels.QUORUM
        prepared.serial_consistency_level = _levels.SERIAL
        prepared.fetch_size = None  # one answer: two pages would show two moments
        return prepared

    def execute(self, cql: str, node: Node = None) -> Sequence[Row]:
        """Return the answer of *node*, or of any; blocks, and is used only to open the backend."""
        answer = self._session.execute(cql, timeout=self._timeouts.answer, host=node)
        return list(answer or ())

    def nodes(self) -> Iterator[Node]:
        """Yield the nodes that are up, in the order in which this request should try them."""
        yield from self._policy.make_query_plan()

    def reached(self) -> list[Node]:
        """Return the nodes that have a connection."""
        return [pool.host for pool in list(self._session.get_pools())]

    @property
    def datacenter(self) -> str:
        """The data centre whose nodes receive the requests."""
        return str(self._policy.local_dc)

    def known(self) -> list[Node]:
        """Return all nodes of the cluster, also those that are down or elsewhere."""
        return list(self._cluster.metadata.all_hosts())

    def send(
        self,
        statement: Statement,
        node: Node,
        answered: Callable[[Sequence[Row]], None],
        failed: Callable[[Failure], object],
    ) -> None:
        """Send once, to *node* alone; call one callback, on a thread that must not block."""
        try:
            future = self._session.execute_async(statement, timeout=None, host=node)
        except Exception as error:  # noqa: BLE001  the driver raises what it likes
            # The driver raises any error here before a request has a connection.
            failed(Failure(NEVER_SENT, str(error)))
            return

        def succeed(rows: Sequence[Row] | None) -> None:
            answered(rows or ())

        def fail(error: BaseException) -> None:
            failed(failure_of(error))

        future.add_callbacks(succeed, fail)

    def close(self, seconds: float) -> None:
        """End all connections and the driver's threads; wait *seconds* for the latter."""
        ending = threading.Thread(target=self._end, name="kip30-cassandra-close", daemon=True)
        if started(ending):
            ending.join(seconds)
        else:
            self._end()

    def abandon(self) -> None:
        """In a forked child: leave everything to the parent, also when the process ends."""
        self._log_filter.end()
        abandon(self._cluster)

    def _end(self) -> None:
        with self._replacing:
            self._is_closed = True
        self._cluster.shutdown()
        self._log_filter.end()


def bind(prepared: Prepared, values: Sequence[Any]) -> Statement:
    """Return *prepared* with *values*, where None means null."""
    return prepared.bind(values)


def together(statements: Sequence[Statement]) -> Statement:
    """Return *statements* of one partition as one, done as a whole or not at all."""
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
    """Return the failure that *error* of the driver means."""
    if isinstance(error, _cluster.NoHostAvailable):
        return _no_host_available(error)
    write_type = getattr(error, "write_type", None)
    kind = f" of {_KINDS.get(write_type, 'a write')}" if write_type is not None else ""
    return Failure(type(error).__name__, f"{_plain(error)}{kind}")


def _no_host_available(error: Any) -> Failure:
    """Return why no connection took a request: its errors, if they agree on a refusal."""
    errors: Any = error.errors
    causes: list[Any] = [*errors.values()] if hasattr(errors, "values") else []
    for cause in causes:
        if isinstance(cause, _rejected):
            return Failure("AuthenticationFailed", _plain(cause))
        if isinstance(cause, ssl.SSLError) or "SSL:" in str(cause):  # the driver renames it
            return Failure("SSLError", _plain(cause))
    said = "; ".join(dict.fromkeys(map(_plain, causes))) or str(error)
    return Failure(NEVER_SENT, said)


def _plain(error: object) -> str:
    """Return the message of a node or the system, without what the driver adds to it."""
    text = str(error)
    if _TIMED_OUT in text:
        return LATE
    message = _MESSAGE.search(text)
    return message[1] if message else text.rpartition(_LAST)[2]


class _Listener:
    """Receives the driver's notifications about nodes."""

    def __init__(self, connections: ClusterConnections) -> None:
        self._connections = connections

    def on_up(self, node: Node) -> None:
        """Pass it on."""
        self._connections.on_up(node)

    def on_down(self, node: Node) -> None:
        """Do nothing: the driver's own list has it."""

    on_add = on_remove = on_down


_PARTS = {
    "here": "WHERE root = ? AND namespace = ?",
    "group": "WHERE root = ? AND in_group = ?",
    "service": "WHERE root = ? AND service = ?",
    "newer": "IF rev < ? AND fences[?] = ? AND nonce != ''",
    "put": "UPDATE $ks.records SET rev = ?, version = ?, nonce = ?, data = ?",
    "delete": "DELETE FROM $ks.records",
    "member": "UPDATE $ks.members USING TTL ? SET version = ?, nonce = ?, data = ?, beat = ?",
    "free": "IF nonce = null AND candidate = null AND data = null",
    "seat": "UPDATE $ks.leaders USING TTL ? SET candidate = ?, nonce = ?, data = ?, beat = ?",
}

LOOK_AT_CLOCK = "SELECT toUnixTimestamp(now()) AS milliseconds FROM system.local"
_CQL = {
    "put_any": "$put $here AND name = ? $newer",
    "put_present": "$put $here AND name = ? $newer AND version != null",
    "put_exact": "$put $here AND name = ? $newer AND version = ?",
    "delete_present": "$delete $here AND name = ? $newer AND version != null",
    "delete_exact": "$delete $here AND name = ? $newer AND version = ?",
    "guard": "UPDATE $ks.records SET version = ? $here AND name = ? IF version = ?",
    "mark": "UPDATE $ks.records SET rev = ?, nonce = ? $here AND name = ''",
    "sign": "UPDATE $ks.records USING TTL ? SET done[?] = ? $here",
    "read_done": "SELECT rev, done FROM $ks.records $here LIMIT 1",
    "begin_records": "UPDATE $ks.records SET rev = 0 $here IF rev = null",
    "advance_records": "UPDATE $ks.records SET rev = ? $here IF rev < ?",
    "raise_fence": "UPDATE $ks.records SET fences[?] = ? $here IF fences[?] = ?",
    "read_records": "SELECT name, version, nonce, data FROM $ks.records $here AND name IN ?",
    "read_names": "SELECT name, version FROM $ks.records $here AND name > ''",
    "list_names": "SELECT name, version FROM $ks.records $here AND name > ? LIMIT ?",
    "read_rev": "SELECT rev, name, nonce FROM $ks.records $here LIMIT 1",
    "read_revs": "SELECT DISTINCT root, namespace, rev FROM $ks.records"
    " WHERE root = ? AND namespace IN ?",
    "begin_members": "UPDATE $ks.members SET rev = 0 $group IF rev = null",
    "advance_members": "UPDATE $ks.members SET rev = ? $group IF rev < ?",
    "insert_member": "$member $group AND id = ? IF nonce = null AND version = null",
    "write_member": "$member $group AND id = ? IF nonce = ? AND version = ? AND beat < ?",
    "delete_member": "DELETE FROM $ks.members $group AND id = ? IF nonce = ? AND version = ?",
    "read_members": "SELECT id, version, nonce, data FROM $ks.members $group",
    "read_member": "SELECT id, version, nonce, data FROM $ks.members $group AND id = ?",
    "advance_leaders": "UPDATE $ks.leaders SET epoch = ? $service IF epoch = ? AND fenced = ?",
    "take_seat": "$seat $service AND seat = 0 $free",
    "take_first_seat": "$seat $service AND seat = 0 $free AND beat = ?",
    "begin_leaders": "UPDATE $ks.leaders SET epoch = 0 $service IF epoch = ? AND fenced = ?",
    "create_seat": "UPDATE $ks.leaders SET beat = ? $service AND seat = 0 $free AND beat = null",
    "read_floor": "SELECT epoch FROM $ks.leaders $service LIMIT 1",
    "raise_floor": "UPDATE $ks.leaders SET epoch = ? $service IF epoch = ?",
    "walk_leaders": "SELECT root, service, token(root, service) AS ring, epoch, fenced, nonce,"
    " beat, WRITETIME(epoch) AS written FROM $ks.leaders WHERE token(root, service) > ? LIMIT ?",
    "prune_leaders": "DELETE epoch, fenced FROM $ks.leaders $service IF epoch = ? AND fenced = ?",
    "prune_seat": "DELETE FROM $ks.leaders $service AND seat = 0 IF nonce = null AND beat = ?",
    "renew_seat": "$seat $service AND seat = 0 IF nonce = ? AND beat < ?",
    "leave_seat": "DELETE FROM $ks.leaders $service AND seat = 0 IF nonce = ? AND epoch = ?",
    "fence_off": "UPDATE $ks.leaders SET fenced = fenced + ? $service AND seat = 0"
    " IF epoch = ? AND nonce != null",
    "read_leaders": "SELECT epoch, fenced, candidate, nonce, data FROM $ks.leaders $service",
    "read_many_leaders": "SELECT service, epoch, candidate, nonce, data FROM $ks.leaders"
    " WHERE root = ? AND service IN ?",
    "describe": "SELECT release_version, cluster_name, data_center FROM system.local",
    "look_at_clock": LOOK_AT_CLOCK,
}
_SERIAL = ("read_", "list_")
# Each of these exists only in the cheaper form, which may miss a decided write that was not
# acknowledged.
_SHARED = ("read_revs", "read_many_leaders")
_CLAIMS = ("read_members", "read_member", "read_leaders")
_POLLS = ("read_records", "read_names", "read_rev", *_CLAIMS, *_SHARED)


class Statements:
    """All prepared statements."""

    def __init__(
        self, connections: ClusterConnections, cql: Mapping[str, str], polls: Iterable[str] = ()
    ) -> None:
        """Prepare all *cql* on the servers, so that no request has to wait for it later.

        The statements in *polls* can be sent in either form.
        """
        self._prepared = {
            name: connections.prepare(one, serial=name.startswith(_SERIAL))
            for name, one in cql.items()
            if name not in _SHARED
        }
        self._polls = {name: connections.prepare(cql[name]) for name in polls}

    @classmethod
    def of_tables(cls, connections: ClusterConnections, keyspace: str) -> "Statements":
        """Prepare all statements about the tables of *keyspace*, except those of bulk reading."""
        return cls(
            connections, {name: _filled(cql, keyspace) for name, cql in _CQL.items()}, _POLLS
        )

    def bind(self, name: str, *values: Any) -> Statement:
        """Return the statement *name* with *values*; a read misses no decided write."""
        return bind(self._prepared[name], values)

    def poll(self, name: str, *values: Any) -> Statement:
        """Return a statement that reads acknowledged writes only, which is cheaper."""
        return bind(self._polls[name], values)

    def batch(self, statements: Sequence[Statement]) -> Statement:
        """Return *statements* on one partition as one."""
        return together(statements)


def _filled(cql: str, keyspace: str) -> str:
    """Return *cql* with its placeholders filled in."""
    return Template(Template(cql).safe_substitute(_PARTS)).substitute(ks=keyspace)


FIRST = -(2**63)
LAST = 2**63 - 1


def walk(
    read: Callable[[int, int, int], Sequence[Row]],
    arc: tuple[int, int],
    limit: Callable[[], int],
    identify: Callable[[Row], Hashable],
) -> Iterator[Sequence[Row]]:
    """Yield what *read* finds in *arc*, both ends included, each row once.

    Args:
        read: Returns rows in order, from one token to another, up to a limit. Each has its token as
            ``ring``.
        arc: The first token and the last one.
        limit: Returns how many new rows to read next.
        identify: Distinguishes rows with the same token: two partitions may have the same one, and
            an answer may end between them.
    """
    first, last = arc
    seen = frozenset[Hashable]()
    while True:
        most = limit() + len(seen)
        found = read(first, last, most)
        yield [row for row in found if identify(row) not in seen] if seen else found
        if len(found) < most:
            return
        first = found[-1]["ring"]
        seen = frozenset(identify(row) for row in found if row["ring"] == first)
