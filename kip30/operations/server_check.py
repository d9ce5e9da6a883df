"""A test of each server of a store on its own: what it is, and how fast it reads."""

import time
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from kip30.driver import Backend
from kip30.errors import Kip30Error, StoreError
from kip30.names import parse_key
from kip30.runtime.resolution import Configuration, Resolved, resolve

_READS = 20
_KEY = parse_key("kip30-doctor/each-server")


class ServerCheck(NamedTuple):
    """Result for one server.

    Attributes:
        server: Its address; the name of the store for one that does not tell its servers apart.
        described: What the server says of itself; empty if it could not be asked. ``version`` is
            always there, ``role`` and ``clocks`` where the store tells them.
        read_seconds: How long each linearizable read through this server took, the first one after
            the connection was made; empty if it failed.
        error: What went wrong; None if nothing did.
    """

    server: str
    described: Mapping[str, str]
    read_seconds: tuple[float, ...]
    error: Kip30Error | None

    @property
    def median_seconds(self) -> float | None:
        """The median of the reads; None without any."""
        return sorted(self.read_seconds)[len(self.read_seconds) // 2] if self.read_seconds else None

    @property
    def worst_seconds(self) -> float | None:
        """The longest of the reads; None without any."""
        return max(self.read_seconds, default=None)


def check_servers(config: Configuration = None) -> Iterator[ServerCheck]:
    """Yield a result for each server that *config* names, one after the other.

    Each one is connected to alone, within the connect timeout, and a key is read 20 times. Nothing
    is changed but what connecting creates. A server that fails does not keep others from being
    tested. On Cassandra only the contact points are tested, and no tables are made.

    Args:
        config: As for `PluginLocator.startup`.

    Raises:
        ConfigError: A setting is wrong; the message names it. Nothing was opened.
    """
    resolved = resolve(config)
    for server, settings in resolved.choice.backend.servers(resolved.settings):
        yield _check(server, resolved._replace(settings=settings))


def _check(server: str, resolved: Resolved) -> ServerCheck:
    described: Mapping[str, str] = {}
    try:
        backend = resolved.open()
        try:
            described = backend.describe()
            if "finding" in described:
                raise StoreError(described["finding"])
            times = tuple(_timed_read(backend) for _ in range(_READS))
        finally:
            backend.close()
    except Kip30Error as error:
        return ServerCheck(server, described, (), error)
    return ServerCheck(server, described, times, None)


def _timed_read(backend: Backend) -> float:
    began = time.perf_counter()
    backend.storage.read([_KEY]).result()
    return time.perf_counter() - began
