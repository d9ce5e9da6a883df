"""One client's connections: opened within the connect timeout, and ended in the right order."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TypeVar

from kip30.driver import Context
from kip30.driver.kit.following import attempt, copy
from kip30.driver.kit.futures import Completed
from kip30.driver.kit.threads import started
from kip30.driver.kit.timer import Timer
from kip30.errors import Kip30Error, StoreError, UnavailableError
from kip30_backends.cassandra import schema
from kip30_backends.cassandra.client.cluster import Patience
from kip30_backends.cassandra.client.library import EventLoopWatchdog, Wire, failure_of
from kip30_backends.cassandra.errors import is_missing, translate
from kip30_backends.cassandra.request import Nodes, Route
from kip30_backends.cassandra.settings import CassandraSettings

T = TypeVar("T")

_CONNECT = 2.5
_PAUSE = 0.1
_RECONNECT = 1.0
_SILENCE = 1.0
_SHORTEST_HEARTBEAT = 0.5
_LONGEST_HEARTBEAT = 5.0
_LOOK_SECONDS = 0.5


class Connection:
    """The connections to one cluster, and the thread that times requests. It makes no tables.

    Attributes:
        wire: What sends.
        pulse: The clock of attempts.
    """

    def __init__(self, context: Context, settings: CassandraSettings) -> None:
        """Make ready to connect; nothing is sent.

        Raises:
            ConfigError: A file of the settings cannot be read.
        """
        self._context = context
        self._settings = settings
        self.wire = Wire(settings, _patience(context))
        self.pulse = Timer("kip30-cassandra")
        self._watchdog = EventLoopWatchdog()

    def open(self, prepare: Callable[[], T]) -> T:
        """Connect within the connect timeout, and return what *prepare* does, which is part of it.

        Raises:
            AuthenticationError: The cluster wants other credentials.
            StoreError: Its servers are too old, or *prepare* raised it.
            UnavailableError: No node answered in time.
        """
        self.pulse.start()
        prepared = self.within(self._context.connect_timeout_seconds, partial(self._open, prepare))
        self._look_after_loop()
        return prepared

    def within(self, seconds: float, step: Callable[[], T]) -> T:
        """Return what *step* does, on a thread that is left alone if it takes too long.

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
            raise UnavailableError(f"no answer from {self._addresses()} in time") from error

    def route(self, repair: Callable[[Callable[[], None]], None]) -> Route:
        """Return the way of requests; *repair* is what `Route` says."""
        nodes = Nodes(self.wire.nodes)
        self.wire.on_up = nodes.trust
        return Route(self.wire, nodes, self.pulse, repair, self._settings.keyspace)

    def close(self, seconds: float) -> None:
        """End all threads and connections; waits so many *seconds* for those of the driver."""
        self.pulse.stop()
        self.wire.close(seconds)

    def _open(self, prepare: Callable[[], T]) -> T:
        self.wire.connect()
        schema.check_versions(self.wire.known())
        return prepare()

    def _result(self, step: Callable[[], T]) -> Future[T]:
        try:
            return Completed(step())
        except Kip30Error:
            raise
        except Exception as error:
            raise self._translated(error) from error

    def _translated(self, error: Exception) -> Kip30Error:
        """Return what kept *error* from being an answer; as nothing is kept, nothing is unknown."""
        elsewhere = {node.datacenter for node in self.wire.known() if node.datacenter}
        if elsewhere and self._settings.datacenter not in {None, *elsewhere}:
            return StoreError(
                f"plugin.cassandra.datacenter = {self._settings.datacenter}: there are nodes in"
                f" {', '.join(sorted(elsewhere))} only"
            )
        return translate(
            failure_of(error),
            wrote=False,
            subject=self._settings.keyspace,
            server=self._addresses(),
        )

    def _addresses(self) -> str:
        return ", ".join(map(str, self._settings.contact_points))

    def _look_after_loop(self) -> None:
        self._watchdog.look()
        self.pulse.after(_LOOK_SECONDS, self._look_after_loop)


def once_known(step: Callable[[], T], seconds: float, meanwhile: Callable[[], None]) -> T:
    """Return what *step* does; for *seconds* again when a node has not heard of tables.

    Before each repetition *meanwhile* is done. What *step* raises at last is raised.
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


def _patience(context: Context) -> Patience:
    part = context.session_timeout_seconds / 4
    heartbeat = max(_SHORTEST_HEARTBEAT, min(part, _LONGEST_HEARTBEAT))
    return Patience(
        connect=min(context.connect_timeout_seconds / 2, _CONNECT),
        heartbeat=heartbeat,
        silence=max(heartbeat, _SILENCE),
        reconnect=min(part, _RECONNECT),
        answer=context.connect_timeout_seconds,
    )
