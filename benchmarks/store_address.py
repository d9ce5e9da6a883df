"""A store to measure, the embedded one or one on a server, and where it is."""

from argparse import ArgumentParser
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple, Self

from typing_extensions import override

from kip30 import PluginLocator

EMBEDDED = "embedded"
SESSION_SECONDS = 8.0
_BACKEND = "plugin.backend"
_LOCATIONS = {
    EMBEDDED: "plugin.embedded.directory",
    "zookeeper": "zookeeper.connect",
    "etcd": "plugin.etcd.endpoints",
    "consul": "plugin.consul.address",
    "cassandra": "plugin.cassandra.contact.points",
}
STORES = tuple(_LOCATIONS)


class StoreAddress(NamedTuple):
    """A *store* in a directory, or at ``host:port``. As text it can be passed to other processes.

    Namespaces keep subjects on one server apart, and its session timeout is that of all subjects
    unless they choose another one. An embedded store has a directory for each subject, and its
    default timeout.
    """

    store: str
    location: str

    @classmethod
    def parse(cls, text: str) -> Self:
        store, _, location = text.partition("=")
        return cls(store, location)

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> Self:
        """Return the address in *settings*, which have nothing else."""
        (location,) = (value for key, value in settings.items() if key != _BACKEND)
        return cls(settings[_BACKEND], location)

    @property
    def is_embedded(self) -> bool:
        return self.store == EMBEDDED

    @property
    def directory(self) -> Path:
        return Path(self.location)

    @override
    def __str__(self) -> str:
        return f"{self.store}={self.location}"

    def settings(
        self, namespace: str = "bench", session_seconds: float = SESSION_SECONDS
    ) -> dict[str, str]:
        settings = {_BACKEND: self.store, _LOCATIONS[self.store]: self.location}
        if self.is_embedded:
            return settings
        return settings | {
            "plugin.namespace": namespace,
            "plugin.session.timeout.ms": f"{session_seconds * 1000:.0f}",
        }

    def open(
        self, namespace: str = "bench", session_seconds: float = SESSION_SECONDS
    ) -> PluginLocator:
        return PluginLocator().startup(self.settings(namespace, session_seconds))

    def observe_seconds(self) -> float:
        """Return the maximum delay of observers, as the backend declares it.

        It is 0 where the store notifies them.
        """
        with self.open() as locator:
            return locator.backend.limits.observe_seconds

    @contextmanager
    def fresh(self) -> Generator[Self]:
        """Yield a new directory of the embedded store, and the same server of the others."""
        if not self.is_embedded:
            yield self
            return
        with scratch(self.directory) as folder:
            yield self._replace(location=str(folder))


def add_store_option(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--store", action="append", choices=STORES, help="may be repeated; else all"
    )


@contextmanager
def scratch(parent: Path | None = None) -> Generator[Path]:
    with TemporaryDirectory(prefix="kip30-benchmark-", dir=parent) as folder:
        yield Path(folder)
