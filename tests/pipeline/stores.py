"""All five stores, each with a properties file for every namespace that a test asks for."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from kip30 import BYTES, PluginLocator
from kip30_conformance.patience import TIME_SCALE
from kip30_conformance.servers import Ensemble, start

STORES = ("embedded", "zookeeper", "etcd", "consul", "cassandra")


class Stores:
    """Stores that run until the test module ends; each is started when it is first used."""

    def __init__(self, folder: Path, servers: ExitStack) -> None:
        self._folder = folder
        self._servers = servers
        self._settings: dict[str, dict[str, str]] = {}
        self._ensembles: dict[str, Ensemble] = {}

    def config(self, store: str, namespace: str) -> Path:
        """Return the properties file of *namespace* in *store*."""
        lines = {
            **self.settings(store),
            "plugin.namespace": namespace,
            "plugin.operation.timeout.ms": str(round(10_000 * TIME_SCALE)),
            "plugin.session.timeout.ms": str(round(20_000 * TIME_SCALE)),
        }
        file = self._folder / f"{store}-{namespace}.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        return file

    def settings(self, store: str) -> dict[str, str]:
        """Return the properties that reach *store*."""
        if store not in self._settings:
            self._settings[store] = self._started(store)
        return self._settings[store]

    def ensemble(self, store: str) -> Ensemble:
        """Return the servers of *store*."""
        self.settings(store)
        return self._ensembles[store]

    def _started(self, store: str) -> dict[str, str]:
        folder = self._folder / store
        folder.mkdir()
        if store == "embedded":
            folder.chmod(0o700)
            return {"plugin.backend": store, "plugin.embedded.directory": str(folder)}
        self._ensembles[store] = self._servers.enter_context(start(store, folder=folder))
        return self._ensembles[store].settings()


@contextmanager
def stores_in(folder: Path) -> Iterator[Stores]:
    """Yield stores whose files are in *folder*."""
    with ExitStack() as servers:
        yield Stores(folder, servers)


def fill(config: Path, values: dict[str, bytes]) -> None:
    """Write *values*."""
    with PluginLocator().startup(config) as locator:
        locator.storage(BYTES).put_many(values)


def contents(config: Path, keys: list[str]) -> dict[str, bytes]:
    """Return the values at those of *keys* that are there."""
    with PluginLocator().startup(config) as locator:
        return dict(locator.storage(BYTES).fetch_many(keys).result())
