"""Setup of kazoo's client: its servers, one thread, sockets with our TLS, no callbacks.

Certificates and credentials are read again for each connection, because they are replaced.
"""

import importlib.util
import logging
import random
import select
import socket
import threading
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple, cast

from kazoo.client import KazooClient
from kazoo.retry import KazooRetry
from typing_extensions import override

from kip30.config.tls import ReloadingContext
from kip30.driver.lease import Lease
from kip30.errors import ConfigError
from kip30_backends.zookeeper.settings import ZookeeperSettings

_THREAD = "kip30-zookeeper"


class WaitTimeout(Exception):  # noqa: N818  kazoo's name for it
    """A socket was not ready in time."""


class Handler:
    """kazoo's handler interface, without the two threads of its own that kazoo calls back on."""

    name = "kip30"
    running = False
    timeout_exception = WaitTimeout
    sleep_func = staticmethod(time.sleep)
    event_object = staticmethod(threading.Event)
    lock_object = staticmethod(threading.Lock)
    rlock_object = staticmethod(threading.RLock)

    def __init__(self, tls: ReloadingContext | None, connect_seconds: float) -> None:
        """Connect with *tls*, within *connect_seconds*, also the limit for each later message."""
        self._tls = tls
        self._connect_seconds = connect_seconds

    def start(self) -> None:
        """Start nothing."""

    def stop(self) -> None:
        """Stop nothing."""

    def dispatch_callback(self, callback: object) -> None:
        """Do nothing: no watch function is ever given to kazoo."""

    def spawn(self, function: Callable[..., object], *args: object) -> threading.Thread:
        """Run *function* on a thread of its own."""
        thread = threading.Thread(target=function, args=args, name=_THREAD, daemon=True)
        thread.start()
        return thread

    def select(
        self, readers: Sequence[Any], writers: Sequence[Any], _: Sequence[Any], timeout: float
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """Return which of *readers* and *writers* are ready within *timeout* seconds.

        kazoo calls this only during the handshake, and would wait for a whole session timeout. A
        server that is just starting may accept a connection and never answer on it.
        """
        poller, patience = select.poll(), min(timeout, self._connect_seconds)
        for one in readers:
            poller.register(one, select.POLLIN)
        for one in writers:
            poller.register(one, select.POLLOUT)
        ready = {descriptor for descriptor, _ in poller.poll(max(0.0, patience) * 1000)}
        return _among(ready, readers), _among(ready, writers), []

    def create_socket_pair(self) -> tuple[socket.socket, socket.socket]:
        """Return an object that wakes the thread and never blocks the waker."""
        ends = socket.socketpair()
        for one in ends:
            one.settimeout(0)
        return ends

    def create_connection(
        self, address: tuple[str, int], hostname: str, timeout: float, **_: object
    ) -> socket.socket:
        """Connect to *address*, whose certificate must be that of *hostname*."""
        plain = socket.create_connection(address, min(timeout, self._connect_seconds))
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is None:
                return plain
            return self._tls.current().wrap_socket(plain, server_hostname=hostname)
        except BaseException:
            plain.close()
            raise


def _among(ready: set[int], candidates: Sequence[Any]) -> list[Any]:
    return [one for one in candidates if one.fileno() in ready]


class SessionIdentity(NamedTuple):
    """The credentials for resuming a session. The password is shown nowhere."""

    ident: int
    password: bytes

    @override
    def __repr__(self) -> str:
        """Show the session's id alone."""
        return f"<session {self.ident:#x}>"


class Session(NamedTuple):
    """One life of a backend's claims.

    Attributes:
        identity: The id and password that the servers know.
        lease: How long it holds.
        former: The numbers of this backend's last sessions, which have all ended for this client.
            Servers may still keep one for its whole timeout: a server that was their leader may
            call it expired, and be replaced before that is decided.
    """

    identity: SessionIdentity
    lease: Lease
    former: Collection[int]

    @property
    def ident(self) -> int:
        """The session's number."""
        return self.identity.ident


class Login(NamedTuple):
    """The credentials of one connection.

    Attributes:
        digest: ``user:password`` of the digest scheme.
        sasl: The options that kazoo passes to pure-sasl.
    """

    digest: str | None = None
    sasl: dict[str, str] | None = None

    @override
    def __repr__(self) -> str:
        """Show no credentials."""
        return "<login>"

    def give_to(self, client: Any) -> None:
        """Give this login to the next connections of kazoo's *client*."""
        client.auth_data = {("digest", self.digest)} if self.digest else set()
        connection = client._connection  # noqa: SLF001  kazoo's client copies the options once
        connection.sasl_options = dict(self.sasl) if self.sasl else None


class Logins:
    """The credentials that the settings name, as they change. Thread-safe.

    Attributes:
        latest: The credentials of the newest connection.
    """

    def __init__(self, settings: ZookeeperSettings) -> None:
        """Take the credentials of *settings*.

        Raises:
            ConfigError: pure-sasl is needed, and not installed.
        """
        if settings.sasl_mechanism != "none" and importlib.util.find_spec("puresasl") is None:
            raise ConfigError("plugin.zookeeper.sasl.mechanism needs the package pure-sasl")
        self._settings = settings
        self.latest = self.read()

    def read(self) -> Login:
        """Return the credentials as they are now. Does not raise."""
        return Login(_digest(self._settings), _sasl(self._settings))

    def for_connection(self) -> Login:
        """Return the credentials of a new connection. Does not raise."""
        self.latest = self.read()
        return self.latest


def _digest(settings: ZookeeperSettings) -> str | None:
    if settings.digest_password is None:
        return None
    return f"{settings.digest_user}:{settings.digest_password.current()}"


def _sasl(settings: ZookeeperSettings) -> dict[str, str] | None:
    if settings.sasl_mechanism == "none":
        return None
    options = {"mechanism": settings.sasl_mechanism.upper(), "service": settings.sasl_service}
    if settings.sasl_user is not None and settings.sasl_password is not None:
        options |= {"username": settings.sasl_user, "password": settings.sasl_password.current()}
    return options


class Server(NamedTuple):
    """Connection settings of servers.

    Attributes:
        tick_seconds: Their tick, if it is known.
    """

    hosts: str
    tls: ReloadingContext | None
    logins: Logins
    connect_seconds: float
    tick_seconds: float | None = None

    @override
    def __repr__(self) -> str:
        """Show no credentials."""
        return f"<servers {self.hosts}>"


def make(server: Server, timeout_seconds: float, identity: SessionIdentity | None) -> Any:
    """Return a client that has not connected yet, and logs no secret."""
    patience = cast("Any", KazooRetry)(max_tries=-1, delay=0.05, backoff=1.5, max_delay=0.5)
    hosts = server.hosts.split(",")
    # Not by kazoo, which uses the program's generator: where that was seeded, or inherited by a
    # fork, all its processes would choose the same server.
    random.SystemRandom().shuffle(hosts)
    client = KazooClient(
        hosts=",".join(hosts),
        randomize_hosts=False,
        timeout=timeout_seconds,
        client_id=identity,
        handler=Handler(server.tls, server.connect_seconds),
        connection_retry=patience,
        logger=_QuietLogger(logging.getLogger(f"{__name__}.kazoo"), {}),
    )
    return cast("Any", client)


class _QuietLogger(logging.LoggerAdapter[logging.Logger]):
    """Events that kazoo logs as warnings are normal here, and below that it logs passwords."""

    @override
    def isEnabledFor(self, level: int) -> bool:
        return level >= logging.INFO and super().isEnabledFor(level)

    @override
    def warning(self, msg: object, *args: object, **kwargs: Any) -> None:
        self.info(msg, *args, **kwargs)
