"""The cluster of cassandra-driver: its connections, its threads, its log, and forks.

The driver starts its threads lazily, deep inside, and does not handle a failure of that: an event
loop whose thread did not start counts as running, and no answer is read from then on. So this
module starts them while it can still report a failure, and again later.

The driver notices a fork only when the child connects, and then closes what it finds: it takes
locks that a thread of the parent may have held, and completes requests of the parent. At the end of
the process it shuts down all clusters, which waits for threads that the child does not have. So a
child must neither use nor end what it inherits.

The driver also logs every second that a node cannot be reached; `LogFilter` passes one message a
minute.
"""

import logging
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import cassandra.auth
import cassandra.cluster
import cassandra.connection
import cassandra.policies
import cassandra.query
from typing_extensions import override

from kip30.config import Address
from kip30.config.tls import ReloadingContext
from kip30.errors import UnavailableError
from kip30_backends.cassandra.settings import CassandraSettings

_auth: Any = cassandra.auth
_cluster: Any = cassandra.cluster
_connection: Any = cassandra.connection
_policies: Any = cassandra.policies
_query: Any = cassandra.query
_levels: Any = _query.ConsistencyLevel

EXECUTOR_THREADS = 4
"""The most threads with which the driver connects."""

_PROTOCOL = 4
"""The newest version that all accepted servers know; probing for newer ones causes warnings."""


class DriverTimeouts(NamedTuple):
    """The timeouts of the driver, in seconds.

    Attributes:
        connect: To connect.
        heartbeat: The pause between two heartbeats on an idle connection.
        silence: To answer a heartbeat.
        reconnect: The longest pause before it tries to reach a node again.
        answer: To answer a request while the backend opens.
    """

    connect: float
    heartbeat: float
    silence: float
    reconnect: float
    answer: float


def cluster(settings: CassandraSettings, timeouts: DriverTimeouts, policy: Any) -> Any:
    """Return a cluster that connects, on request, to the nodes that *policy* chooses.

    Raises:
        ConfigError: A file of the settings cannot be read.
        UnavailableError: No address is known of any contact point, or the system has no thread.
    """
    profile = _cluster.ExecutionProfile(
        load_balancing_policy=policy,
        # The driver neither retries nor times requests: `calls` does, and knows what was done.
        retry_policy=_policies.FallthroughRetryPolicy(),
        consistency_level=_levels.QUORUM,
        serial_consistency_level=_levels.SERIAL,
        request_timeout=None,
        row_factory=_query.dict_factory,
    )
    return _made(
        settings,
        execution_profiles={_cluster.EXEC_PROFILE_DEFAULT: profile},
        endpoint_factory=_Translation(settings.address_map or {}),
        auth_provider=_login(settings),
        ssl_context=_CurrentContext(settings) if settings.secure else None,
        ssl_options=None,
        protocol_version=_PROTOCOL,
        reconnection_policy=_policies.ExponentialReconnectionPolicy(
            min(0.1, timeouts.reconnect), timeouts.reconnect, max_attempts=None
        ),
        connect_timeout=timeouts.connect,
        control_connection_timeout=timeouts.connect,
        # A connection that is cut without notice is detected only by sending on it.
        idle_heartbeat_interval=timeouts.heartbeat,
        idle_heartbeat_timeout=timeouts.silence,
        max_schema_agreement_wait=0,  # `schema` waits itself, for most nodes
        executor_threads=EXECUTOR_THREADS,
        # kip30 uses neither, and each client would read both again after each change.
        schema_metadata_enabled=False,
        token_metadata_enabled=False,
        schema_event_refresh_window=-1,
        topology_event_refresh_window=1,
        status_event_refresh_window=1,
        # A node prepares a statement on its first use, so a node that is down delays nothing.
        prepare_on_all_hosts=False,
        reprepare_on_up=False,
        monitor_reporting_enabled=False,
    )


def _made(settings: CassandraSettings, **options: Any) -> Any:
    try:
        return _Cluster(_contact_points(settings), **options)
    except _cluster.UnresolvableContactPoints as error:
        names = ", ".join(address.host for address in settings.contact_points)
        raise UnavailableError(
            f"no address is known of {names}: check plugin.cassandra.contact.points"
        ) from error
    except RuntimeError as error:
        raise UnavailableError(f"the driver has no thread to spare: {error}") from error


class ContactPointPolicy(_policies.DCAwareRoundRobinPolicy):  # type: ignore[misc]  # no types
    """Uses the contact points alone, and no node that they report."""

    def populate(self, cluster: Any, hosts: Any) -> None:
        """Prepare to choose among *hosts*, the contact points. The driver calls this first."""
        self._points: frozenset[Any] = frozenset(cluster.endpoints_resolved)
        driver: Any = super()
        driver.populate(cluster, hosts)

    def distance(self, host: Any) -> Any:
        """Return how near *host* is; the driver connects to no node that is ignored."""
        driver: Any = super()
        is_point = host.endpoint in self._points
        return driver.distance(host) if is_point else _policies.HostDistance.IGNORED

    def make_query_plan(self, *args: Any, **more: Any) -> Iterator[Any]:
        """Yield the contact points that are up."""
        driver: Any = super()
        plan: Iterator[Any] = driver.make_query_plan(*args, **more)
        return (host for host in plan if host.endpoint in self._points)


class _CurrentContext:
    """Replaces the driver's one TLS context: each connection gets one from the current files."""

    def __init__(self, settings: CassandraSettings) -> None:
        self._contexts = ReloadingContext(settings.tls_files)

    @property
    def check_hostname(self) -> bool:
        return self._contexts.current().check_hostname

    def wrap_socket(self, plain: socket.socket, **options: Any) -> ssl.SSLSocket:
        return self._contexts.current().wrap_socket(plain, **options)


def _contact_points(settings: CassandraSettings) -> list[Any]:
    """Return the contact points; with TLS, by the name that certificates are checked for."""
    if settings.secure:
        return [_connection.DefaultEndPoint(*address) for address in settings.contact_points]
    return [tuple(address) for address in settings.contact_points]


def _login(settings: CassandraSettings) -> Any:
    if settings.user is None:
        return None
    return _Login(settings)


class _Login(_auth.AuthProvider):  # type: ignore[misc]  # the driver has no types
    """Logs each new connection in with the password as it is then, for passwords are rotated."""

    def __init__(self, settings: CassandraSettings) -> None:
        self._settings = settings

    def new_authenticator(self, _host: object) -> Any:
        return _Authenticator(self._settings)


class _Authenticator(_auth.PlainTextAuthenticator):  # type: ignore[misc]  # the driver has no types
    """The driver has one for all its attempts to reach a node again."""

    def __init__(self, settings: CassandraSettings) -> None:
        self._settings = settings
        self.username = settings.user

    @property
    def password(self) -> str:
        password = self._settings.password
        return password.current() if password is not None else ""


class _Cluster(_cluster.Cluster):  # type: ignore[misc]  # the driver has no types
    """The driver's cluster, which tries again to reach a node that has refused the login.

    The driver itself gives such a node up for good. It may have refused because the password was
    changed there before the file that the settings name.
    """

    def _make_connection_factory(self, host: Any, *args: Any, **kwargs: Any) -> Callable[[], Any]:
        driver: Any = super()
        connect: Callable[[], Any] = driver._make_connection_factory(host, *args, **kwargs)  # noqa: SLF001  the driver's hook

        def reconnect() -> Any:
            try:
                return connect()
            except _connection.AuthenticationFailed as error:
                raise _connection.ConnectionException(str(error), host.endpoint) from error

        return reconnect


class _Translation:
    """The addresses at which nodes are reached, by what they report of each other."""

    def __init__(self, reachable: Mapping[Address, Address]) -> None:
        self._reachable = reachable
        self._plain: Any = _connection.DefaultEndPointFactory()

    def configure(self, cluster: Any) -> "_Translation":
        """Attach this to *cluster*, as the driver requires."""
        self._plain.configure(cluster)
        return self

    def create(self, row: Mapping[str, Any]) -> Any:
        """Return the address of the node that *row* describes."""
        plain = self._plain.create(row)
        reached = self._reachable.get(Address(plain.address, plain.port))
        return plain if reached is None else _connection.DefaultEndPoint(*reached)


def start_workers(cluster: Any, count: int) -> None:
    """Start all *count* threads of the executor of *cluster*, which otherwise start lazily.

    Raises:
        UnavailableError: The system cannot start another thread.
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
        """Start with nothing seen."""
        self._suspect: threading.Thread | None = None
        """The thread that was not alive at the last look; the driver may be about to start it."""

    def look(self) -> None:
        """Start the thread if the last check also found it missing."""
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
        return  # the next check tries again


_loops: list[Any] = []
"""The event loops of parents; none is ever deleted, for that would end its connections."""


def abandon(cluster: Any) -> None:
    """In a forked child: drop *cluster* and its connections, which stay the parent's."""
    _leave_event_loop()
    _cluster._discard_cluster_shutdown(cluster)  # noqa: SLF001  there is no other way to say so
    for one in (cluster, *list(cluster.sessions)):
        # On its deletion the driver takes the lock before it looks at the flag.
        one._lock = threading.RLock()  # noqa: SLF001  a thread of the parent may hold it
        one.is_shutdown = True


def _leave_event_loop() -> None:
    """Make the driver start a new event loop, as if it had not been used before."""
    module: Any = sys.modules[_cluster.DefaultConnection.__module__]
    loop: Any = getattr(module, "_global_loop", None)
    if loop is None:
        return
    _loops.append(loop)
    module._global_loop = None  # noqa: SLF001  what the driver does itself, but for the closing
    for connection in list(getattr(loop, "_live_conns", ())):
        # If it were kept, the server would not see it end while the child lives.
        with suppress(Exception):
            connection._socket.close()  # noqa: SLF001  its own close waits


_SOURCES = ("cassandra.cluster", "cassandra.pool")
_SECONDS = 60.0


class LogFilter(logging.Filter):
    """Passes each message of the driver about a node once a minute; all if it logs at debug level.

    It drops the reason of a failed connect, because that is raised. It applies only to the nodes of
    one connection: the program may use the driver for its own purposes.
    """

    def __init__(self, nodes: Callable[[], Iterable[Any]]) -> None:
        """Filter the log about the nodes that *nodes* returns."""
        super().__init__()
        self._nodes = nodes
        # The ident of the thread that connects; None while none does.
        self._connecting: int | None = None
        # When each text was last passed for a node. Two threads may pass one twice.
        self._passed: dict[tuple[str, int], float] = {}

    def begin(self) -> None:
        """Filter the log of the driver."""
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
        """Record that errors logged on this thread in the block are raised as well."""
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
