"""What runs below the drivers of one backend, its timer thread included.

It does not refer to the backend itself. The thread ends what is late and keeps the session alive.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress

from kip30.config.tls import ReloadingContext
from kip30.driver import Context
from kip30.driver.key_layout import Paths
from kip30.driver.kit import fork_safety
from kip30.driver.kit.threads import started
from kip30.driver.kit.tls_probe import TlsProbe
from kip30.errors import ConfigError, Kip30Error, UnavailableError
from kip30_backends.zookeeper import security
from kip30_backends.zookeeper.client.kazoo_adapter import Server
from kip30_backends.zookeeper.client.protocol import (
    AddWatch,
    Exists,
    GetChildren,
    MultiRead,
    RemoveWatches,
)
from kip30_backends.zookeeper.errors import NoNode, Refused
from kip30_backends.zookeeper.request import Ask, Outbox, Steps
from kip30_backends.zookeeper.security import AccessLists
from kip30_backends.zookeeper.session import Ground, Sessions
from kip30_backends.zookeeper.settings import ZookeeperSettings
from kip30_backends.zookeeper.snapshots import States
from kip30_backends.zookeeper.tree import Tree
from kip30_backends.zookeeper.watch import Watches

log: logging.Logger = logging.getLogger(__name__)


class Pulse:
    """Does a few quick things again and again until it is stopped."""

    def __init__(self, seconds: float, beats: Sequence[Callable[[], None]]) -> None:
        """Do *beats* every *seconds*, from `start` on."""
        self._seconds = seconds
        self._beats = beats
        self._stopped = threading.Event()
        self._at_end: Callable[[], None] | None = None
        self._thread = threading.Thread(target=self._run, name="kip30-zookeeper", daemon=True)

    def start(self) -> None:
        """Start the thread.

        Raises:
            UnavailableError: The system has none to spare.
        """
        if not started(self._thread):
            raise UnavailableError("the system has no thread to spare: nothing was opened")

    def stop(self) -> None:
        """End the thread, and wait for that unless this is called on it."""
        self._stopped.set()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join()

    def stop_with(self, last: Callable[[], None]) -> None:
        """Have the thread do *last* and end; return at once."""
        self._at_end = last
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(self._seconds):
            for beat in self._beats:
                self._try(beat)
        if self._at_end is not None:
            self._try(self._at_end)

    def _try(self, beat: Callable[[], None]) -> None:
        try:
            beat()
        except Exception:  # a sink or a lease callback that raises must not end the session
            log.exception("retrying timed work after")


_PATIENCE = 0.95
_FORMER_SESSIONS = 64
_TRIES_TO_CONNECT = 2
_GLANCES_PER_TIMEOUT = 20
_RESERVED = "/zookeeper"


class Engine:
    """The outbox, the session, the watches and the clock."""

    def __init__(self, context: Context, settings: ZookeeperSettings) -> None:
        """Connect. Nothing is made.

        Raises:
            ConfigError: The settings cannot be used. Nothing was sent.
            UnavailableError: Not within the connect timeout.
            AuthenticationError: The credentials are rejected, or do not suffice.
        """
        modern = settings.protocol != "3.5"
        self.tree = Tree(
            settings.connect.chroot,
            context.namespace,
            security.acl(settings),
            AccessLists(security.owners(settings)),
            modern=modern,
        )
        self.server = _server(context, settings)
        self.outbox = Outbox(context.operation_timeout_seconds * _PATIENCE)
        self.states = States(self.tree)
        self.watches = Watches(self.outbox, self.states, self.tree)
        former: deque[int] = deque(maxlen=_FORMER_SESSIONS)
        self.sessions = Sessions(Ground(context, self.server, self.outbox, self.watches, former))
        self._patience = context.operation_timeout_seconds
        glance = context.operation_timeout_seconds / _GLANCES_PER_TIMEOUT
        beats = (self.outbox.expire, self.sessions.beat, self.watches.retry)
        self._pulse = Pulse(glance, beats)
        self._is_inherited = False
        """Whether it is that of this process's parent; set once, by `abandon`."""
        fork_safety.register(self)
        with _tls_probe(settings).explaining(settings.connect.servers):
            self._open(probing=settings.protocol == "auto")

    def make_root(self) -> None:
        """Make the tree's root if it is missing; close if that fails.

        Raises:
            UnavailableError: Not within the operation timeout.
            AuthenticationError: The credentials do not suffice.
            StoreError: Others may change the root, or a node above it.
        """
        with self._closing_if_it_fails():
            self.outbox.start(self._root()).result(self._patience)

    def close(self) -> None:
        """End everything: the session on the server, operations, watches and threads."""
        if self._is_inherited:
            return
        self._pulse.stop()
        self._end()

    def drop(self) -> None:
        """End everything soon, on a thread that may wait."""
        if not self._is_inherited:
            self._pulse.stop_with(self._end)

    def abandon(self) -> None:
        """In a forked child: leave everything to the parent."""
        self._is_inherited = True

    def describe(self) -> dict[str, str]:
        """Return who the servers say they are, as far as they say so."""
        line = self.sessions.line
        peer = line.client.peer if line is not None else "nobody"
        told = line.client.status() if line is not None else {}
        return {
            "version": told.get("Zookeeper version", "not told: allow srvr in its whitelist"),
            "server": peer,
            "mode": told.get("Mode", "not told"),
            "version and mode told by": f"a connection of its own to {peer}",
            "servers": self.server.hosts,
            "root": self.tree.paths.root,
            "session timeout": f"{line.timeout_seconds:g} s" if line is not None else "no session",
            "requests": "3.6" if self.tree.modern else "3.5",
        }

    def _end(self) -> None:
        self.outbox.close()
        self.watches.close()
        self.sessions.close()

    def _open(self, *, probing: bool) -> None:
        with self._closing_if_it_fails():
            self._pulse.start()
            self.sessions.open()
            if probing:
                self._probe()

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
        answer = yield Ask((Exists(self.tree.paths.root),))
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


def _server(context: Context, settings: ZookeeperSettings) -> Server:
    tries = max(_TRIES_TO_CONNECT, len(settings.connect.hosts.split(",")))
    return Server(
        settings.connect.hosts,
        ReloadingContext(settings.tls_files) if settings.tls else None,
        security.digest(settings),
        security.sasl(settings),
        context.connect_timeout_seconds / tries,
    )


def _tls_probe(settings: ZookeeperSettings) -> TlsProbe:
    return TlsProbe(
        files=settings.tls_files, is_encrypted=settings.tls, addresses="zookeeper.connect"
    )


def _knows_all() -> Steps[bool]:
    """Ask the server for what came with 3.6."""
    requests = (AddWatch("/", recursive=False), MultiRead((GetChildren("/"),)), RemoveWatches("/"))
    answer = yield Ask(requests, fresh=False)
    return not any(isinstance(outcome, Refused) for outcome in answer.outcomes[:2])
