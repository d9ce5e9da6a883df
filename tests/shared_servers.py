"""One server of each store for all processes of a test run.

A Cassandra needs twenty seconds of a processor before its first answer, and it is slow long
after; six processes of xdist with one each spend more on that than on their tests. So the process
that began the run starts a server when a test asks for it first, and ends it with the run.
Namespaces keep the tests of a shared server apart. A test that stops or restarts servers, or fills
them up, starts its own.
"""

import tempfile
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kip30_conformance.servers import Ensemble, attach
from kip30_conformance.servers.needing import needed
from kip30_conformance.servers.store import NodePorts

OPTIONS: Mapping[str, Sequence[str]] = {
    # Processes are killed here, not machines. One sync of a disk that all servers share was seen
    # to take 0.9 s, and a server that is silent for 0.7 s is given up under the suite's session
    # timeout.
    "zookeeper": ["forceSync=no"],
}
"""Options with which the servers of a store are started, by its name."""

_HOST = "server_host"


class Place(NamedTuple):
    """The ports and the version of a server that another process has started."""

    nodes: Sequence[NodePorts]
    version: str


class ServerHost:
    """Starts each store's server once, and reports its place to other processes. Thread-safe."""

    def __init__(self) -> None:
        """Listen to other processes."""
        self._ending = ExitStack()
        self._folder = self._ending.enter_context(
            tempfile.TemporaryDirectory(prefix="kip30-shared-")
        )
        self._listener = Listener(str(Path(self._folder) / "host"), "AF_UNIX")
        self._ending.callback(self._listener.close)
        self._places: dict[str, Future[Place]] = {}
        self._lock = threading.Lock()
        threading.Thread(target=self._listen, daemon=True).start()

    @property
    def address(self) -> str:
        """The address for requests of other processes."""
        address: str = self._listener.address
        return address

    def place(self, name: str) -> Place:
        """Return where the server of the store *name* is, which the first call starts.

        Raises:
            Exception: What `needed` raised.
        """
        with self._lock:
            is_first = name not in self._places
            place = self._places.setdefault(name, Future())
        if is_first:
            try:
                place.set_result(self._started(name))
            except BaseException as error:  # noqa: BLE001  the caller raises it
                place.set_exception(error)
        return place.result()

    def close(self) -> None:
        """End all servers."""
        self._ending.close()

    def _started(self, name: str) -> Place:
        folder = Path(self._folder) / name
        ensemble = needed(name, folder=folder, extra=OPTIONS.get(name, ()))
        with self._lock:
            self._ending.callback(ensemble.close)
        return Place([node.place for node in ensemble.nodes], ensemble.version)

    def _listen(self) -> None:
        with suppress(OSError):  # It is closed.
            while True:
                connection = self._listener.accept()
                threading.Thread(target=self._answer, args=[connection], daemon=True).start()

    def _answer(self, connection: "Connection[Any, Any]") -> None:
        with connection:
            try:
                connection.send(self.place(connection.recv()))
            except BaseException as error:  # noqa: BLE001  the other process raises it
                connection.send(error)


class SharedServers:
    """A plugin of pytest: the process that began the run has the host, and the others ask it."""

    def __init__(self, config: pytest.Config) -> None:
        """Start the host, unless this is a process of xdist."""
        given: Mapping[str, Any] = getattr(config, "workerinput", {})
        self._address: str | None = given.get(_HOST)
        self._host = ServerHost() if self._address is None else None

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Pass the address of the host to a process of xdist."""
        assert self._host is not None
        node.workerinput[_HOST] = self._host.address

    def pytest_unconfigure(self) -> None:
        """End all servers with the run."""
        if self._host is not None:
            self._host.close()

    def place(self, name: str) -> Place:
        """Return where the shared server of the store *name* is.

        Raises:
            Exception: What `needed` raised when it was to start the server.
        """
        if self._host is not None:
            return self._host.place(name)
        assert self._address is not None
        return ask(self._address, name)


def ask(address: str, name: str) -> Place:
    """Return where the host at *address* has the server of the store *name*.

    Raises:
        Exception: What `needed` raised when the host was to start it.
    """
    with Client(address, "AF_UNIX") as connection:
        connection.send(name)
        answer = connection.recv()
    if isinstance(answer, BaseException):
        raise answer
    place: Place = answer
    return place


@contextmanager
def shared_servers(config: pytest.Config) -> Generator[Callable[[str], Ensemble]]:
    """Yield a function that returns the shared server of a store, by its name."""
    (plugin,) = (
        one for one in config.pluginmanager.get_plugins() if isinstance(one, SharedServers)
    )
    with ExitStack() as attached:

        @cache
        def server(name: str) -> Ensemble:
            nodes, version = plugin.place(name)
            return attached.enter_context(attach(name, nodes, version))

        yield server
