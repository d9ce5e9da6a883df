"""All five stores, each with a properties file for every namespace that a test asks for."""

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from kip30 import BYTES, PluginLocator, Storage
from kip30_conformance.neighbour.base import Neighbour
from kip30_conformance.neighbour.embedded import EmbeddedNeighbour
from kip30_conformance.polling import time_scale
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
            "plugin.operation.timeout.ms": str(round(10_000 * time_scale())),
            "plugin.session.timeout.ms": str(round(20_000 * time_scale())),
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

    def neighbour(self, store: str, namespace: str) -> Neighbour:
        """Return another program, which writes to *namespace* in *store*."""
        if store == "embedded":
            directory = Path(self.settings(store)["plugin.embedded.directory"])
            return EmbeddedNeighbour(directory / "kip30.db", namespace)
        return self.ensemble(store).neighbour(namespace)

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


@contextmanager
def taking_turns(workers: int, turn_of: Callable[[int, int], object]) -> Iterator[None]:
    """Let each of *workers* threads take one turn after the other until the block ends.

    *turn_of* is called with the numbers of a worker and of its turn. When the block begins each
    worker has had a turn.
    """
    over = threading.Event()
    begun = threading.Barrier(workers + 1)

    def work(worker: int) -> None:
        for turn in itertools.count():
            turn_of(worker, turn)
            if turn == 0:
                begun.wait()
            if over.wait(0.02):
                return

    threads = [threading.Thread(target=work, args=[one]) for one in range(workers)]
    for thread in threads:
        thread.start()
    begun.wait(60 * time_scale())
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


@contextmanager
def writing(
    config: Path, writers: int, turn_of: Callable[[Storage[bytes], int, int], object]
) -> Iterator[None]:
    """Write to the store of *config* until the block ends: *turn_of* does in each turn."""
    with PluginLocator().startup(config) as locator:
        storage = locator.storage(BYTES)
        with taking_turns(writers, lambda writer, turn: turn_of(storage, writer, turn)):
            yield


@contextmanager
def rewriting(config: Path, groups: list[list[str]]) -> Iterator[None]:
    """Write the keys of each group again and again, one after the other, until the block ends.

    A value is the number of the turn. So at each moment a group has two values at most.
    """

    def rewrite(storage: Storage[bytes], group: int, turn: int) -> None:
        for key in groups[group]:
            storage.set(key, b"%d" % turn)

    with writing(config, len(groups), rewrite):
        yield
