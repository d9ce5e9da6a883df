"""Resources that the drivers of one backend share, started and closed in the right order.

Nothing in it refers to the backend. The timer ends late operations and keeps the session alive.
"""

from collections import deque
from collections.abc import Generator
from concurrent.futures import Future
from contextlib import contextmanager, suppress

from kip30.config.tls import ReloadingContext
from kip30.driver import Context
from kip30.driver.key_layout import Paths
from kip30.driver.kit import fork_safety
from kip30.driver.kit.lifecycle import close_on_thread, end_all
from kip30.driver.kit.timer import Timer
from kip30.driver.kit.tls_probe import TlsProbe
from kip30.driver.records import Snapshot, Target
from kip30.errors import ConfigError, Kip30Error, UnavailableError
from kip30_backends.zookeeper.calls import Outbox, RequestBatch, Steps
from kip30_backends.zookeeper.client.kazoo_setup import Logins, Server
from kip30_backends.zookeeper.client.messages import (
    AddWatch,
    Exists,
    GetChildren,
    MultiRead,
    RemoveWatches,
)
from kip30_backends.zookeeper.errors import NoNode, RequestRefused
from kip30_backends.zookeeper.session import SessionContext, Sessions
from kip30_backends.zookeeper.settings import ZookeeperSettings
from kip30_backends.zookeeper.target_states import TargetStates
from kip30_backends.zookeeper.tree import AccessLists, Tree, acl, owners
from kip30_backends.zookeeper.watch import Watches

# The part of the operation timeout that an operation has. The rest is one interval of the timer,
# which detects by then that the operation is late.
_PATIENCE = 0.95
_INTERVALS_PER_TIMEOUT = 20
_FORMER_SESSIONS = 64
_TRIES_TO_CONNECT = 2
_RESERVED = "/zookeeper"


class Resources:
    """The outbox, the session, the watches and the timer."""

    def __init__(self, context: Context, settings: ZookeeperSettings) -> None:
        """Connect. Nothing is created.

        Raises:
            ConfigError: The settings cannot be used, or not with the timeout that is granted.
            UnavailableError: Not within the connect timeout.
            AuthenticationError: The credentials are rejected, or lack permissions.
        """
        modern = settings.protocol != "3.5"
        logins = Logins(settings)
        self.tree = Tree(
            settings.connect.chroot,
            context.namespace,
            acl(settings),
            AccessLists(owners(settings), logins),
            modern=modern,
        )
        self.server = _server(context, settings, logins)
        self.outbox = Outbox(context.operation_timeout_seconds * _PATIENCE)
        self.states = TargetStates(self.tree)
        self.watches = Watches(self.outbox, self.states, self.tree)
        former: deque[int] = deque(maxlen=_FORMER_SESSIONS)
        self.sessions = Sessions(
            SessionContext(
                context, self.server, self.outbox, self.watches, self.tree.forget, former
            )
        )
        self._patience = context.operation_timeout_seconds
        self._interval = context.operation_timeout_seconds / _INTERVALS_PER_TIMEOUT
        self._timer = Timer("kip30-zookeeper")
        self._is_inherited = False
        """True if this belongs to the parent process; set once, by `abandon`."""
        fork_safety.register(self)
        with _tls_probe(settings).explaining(settings.connect.servers):
            self._open(probing=settings.protocol == "auto")

    def make_root(self) -> None:
        """Create the tree's root if it is missing; close if that fails.

        Raises:
            UnavailableError: Not within the operation timeout.
            AuthenticationError: The credentials lack permissions.
            StoreError: Others may change the root, or a node above it.
        """
        with self._closing_if_it_fails():
            self.outbox.start(self._root()).result(self._patience)

    def close(self) -> None:
        """End everything: the session on the server, operations, watches and threads."""
        if self._is_inherited:
            return
        # The session comes last: closing it waits for the server, and callers must not.
        end_all(self._timer.stop, self.outbox.close, self.watches.close, self.sessions.close)

    def drop(self) -> None:
        """Close, because nothing refers to this any longer; on any thread."""
        if not self._is_inherited:
            close_on_thread(self.close, "kip30-zookeeper-drop")

    def abandon(self) -> None:
        """In a forked child: leave everything to the parent."""
        self._is_inherited = True

    def read(self, target: Target) -> Future[Snapshot]:
        """Return the state of *target* as of now."""
        return self.outbox.start(self.states.read(target, fresh=True))

    def describe(self) -> dict[str, str]:
        """Return the servers' descriptions of themselves, as far as they give any."""
        managed = self.sessions.current
        peer = managed.connection.peer if managed is not None else "nobody"
        status = managed.connection.status() if managed is not None else {}
        return {
            "version": status.get("Zookeeper version", "unknown: allow srvr in its whitelist"),
            "server": peer,
            "role": status.get("Mode", "unknown"),
            "version and role read by": f"a connection of its own to {peer}",
            "servers": self.server.hosts,
            "root": self.tree.paths.root,
            "session timeout": f"{managed.timeout_seconds:g} s"
            if managed is not None
            else "no session",
            "requests": "3.6" if self.tree.modern else "3.5",
        }

    def _open(self, *, probing: bool) -> None:
        with self._closing_if_it_fails():
            self._timer.start()
            for action in (self.outbox.expire, self.sessions.renew_if_due, self.watches.retry):
                self._timer.every(self._interval, action)
            self.sessions.open()
            self._check_tick()
            if probing:
                self._probe()

    def _check_tick(self) -> None:
        managed, tick = self.sessions.current, self.server.tick_seconds
        if managed is not None and tick is not None and managed.timeout_seconds < tick:
            raise ConfigError(
                f"the servers keep a session for {managed.timeout_seconds:g} s, less than"
                " plugin.zookeeper.tick.ms: it cannot be renewed in time;"
                " raise plugin.session.timeout.ms"
            )

    @contextmanager
    def _closing_if_it_fails(self) -> Generator[None]:
        try:
            yield
        except TimeoutError as error:
            self.close()
            raise UnavailableError("ZooKeeper did not answer in time") from error
        except BaseException:
            self.close()
            raise

    def _probe(self) -> None:
        with suppress(Kip30Error):
            self.tree.modern = self.outbox.start(_knows_all()).result(self._patience)

    def _root(self) -> Steps[None]:
        yield from self.tree.check_directories()
        answer = yield RequestBatch((Exists(self.tree.paths.root),))
        try:
            answer.only()
        except NoNode:
            yield from self.tree.make(self.tree.paths.root)


def check_not_reserved(context: Context, settings: ZookeeperSettings) -> None:
    """Check that the root is not the servers' own node.

    Raises:
        ConfigError: It is. Nothing was sent.
    """
    if settings.connect.chroot + Paths(context.namespace).root == _RESERVED:
        raise ConfigError(
            "plugin.namespace=zookeeper is the servers' own node:"
            " choose another one, or a chroot in zookeeper.connect"
        )


def _server(context: Context, settings: ZookeeperSettings, logins: Logins) -> Server:
    tries = max(_TRIES_TO_CONNECT, len(settings.connect.hosts.split(",")))
    return Server(
        settings.connect.hosts,
        ReloadingContext(settings.tls_files) if settings.tls else None,
        logins,
        context.connect_timeout_seconds / tries,
        settings.tick_seconds,
    )


def _tls_probe(settings: ZookeeperSettings) -> TlsProbe:
    return TlsProbe(
        files=settings.tls_files, is_encrypted=settings.tls, addresses="zookeeper.connect"
    )


def _knows_all() -> Steps[bool]:
    """Ask the server for a request that was added in 3.6."""
    requests = (AddWatch("/", recursive=False), MultiRead((GetChildren("/"),)), RemoveWatches("/"))
    answer = yield RequestBatch(requests, fresh=False)
    return not any(isinstance(outcome, RequestRefused) for outcome in answer.outcomes[:2])
