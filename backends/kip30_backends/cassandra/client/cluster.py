"""The driver's cluster: how it reaches nodes, who it says it is, and how long it waits."""

import socket
import ssl
from collections.abc import Mapping
from typing import Any, NamedTuple

import cassandra.auth
import cassandra.cluster
import cassandra.connection
import cassandra.policies
import cassandra.query

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
"""How many threads the driver connects with, at most."""

_PROTOCOL = 4
"""The newest that all servers know which are taken; to find out about newer ones costs warnings."""


class Patience(NamedTuple):
    """How long the driver waits for what.

    Attributes:
        connect: For a connection, in seconds.
        heartbeat: Between two signs of life on an idle connection.
        silence: For the answer to such a sign.
        reconnect: Before it tries again to reach a node, at the longest.
        answer: For an answer when the backend opens.
    """

    connect: float
    heartbeat: float
    silence: float
    reconnect: float
    answer: float


def cluster(settings: CassandraSettings, patience: Patience, policy: Any) -> Any:
    """Return what connects, on request, to the nodes that *policy* chooses.

    Raises:
        ConfigError: A file of the settings cannot be read.
        UnavailableError: No address is known of any contact point, or the system has no thread.
    """
    profile = _cluster.ExecutionProfile(
        load_balancing_policy=policy,
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
            min(0.1, patience.reconnect), patience.reconnect, max_attempts=None
        ),
        connect_timeout=patience.connect,
        control_connection_timeout=patience.connect,
        idle_heartbeat_interval=patience.heartbeat,
        idle_heartbeat_timeout=patience.silence,
        max_schema_agreement_wait=0,
        executor_threads=EXECUTOR_THREADS,
        schema_metadata_enabled=False,
        token_metadata_enabled=False,
        schema_event_refresh_window=-1,
        topology_event_refresh_window=1,
        status_event_refresh_window=1,
        prepare_on_all_hosts=False,
        reprepare_on_up=False,
        monitor_reporting_enabled=False,
    )


def _made(settings: CassandraSettings, **options: Any) -> Any:
    try:
        return _cluster.Cluster(_contact_points(settings), **options)
    except _cluster.UnresolvableContactPoints as error:
        names = ", ".join(address.host for address in settings.contact_points)
        raise UnavailableError(
            f"no address is known of {names}: check plugin.cassandra.contact.points"
        ) from error
    except RuntimeError as error:
        raise UnavailableError(f"the driver has no thread to spare: {error}") from error


class _CurrentContext:
    """Stands for the driver's one context: each connection gets that of the files as they are."""

    def __init__(self, settings: CassandraSettings) -> None:
        self._contexts = ReloadingContext(settings.tls_files)

    @property
    def check_hostname(self) -> bool:
        return self._contexts.current().check_hostname

    def wrap_socket(self, plain: socket.socket, **options: Any) -> ssl.SSLSocket:
        return self._contexts.current().wrap_socket(plain, **options)


def _contact_points(settings: CassandraSettings) -> list[Any]:
    """Return where to begin; with TLS by the name that certificates are checked for."""
    if settings.secure:
        return [_connection.DefaultEndPoint(*address) for address in settings.contact_points]
    return [tuple(address) for address in settings.contact_points]


def _login(settings: CassandraSettings) -> Any:
    if settings.user is None:
        return None
    return _auth.PlainTextAuthProvider(username=settings.user, password=settings.password)


class _Translation:
    """Where nodes are reached, given what they tell of each other. What the driver asks for it."""

    def __init__(self, told: Mapping[Address, Address]) -> None:
        self._told = told
        self._plain: Any = _connection.DefaultEndPointFactory()

    def configure(self, cluster: Any) -> "_Translation":
        """Belong to *cluster*."""
        self._plain.configure(cluster)
        return self

    def create(self, row: Mapping[str, Any]) -> Any:
        """Return where the node that *row* is about is reached."""
        plain = self._plain.create(row)
        reached = self._told.get(Address(plain.address, plain.port))
        return plain if reached is None else _connection.DefaultEndPoint(*reached)
