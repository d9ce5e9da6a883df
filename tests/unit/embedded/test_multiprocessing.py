"""Pools and processes of `multiprocessing` that fork while the store is open."""

import multiprocessing
import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from kip30 import PluginLocator
from kip30_conformance.polling import time_scale

# Python 3.12 and newer warn of forks with threads, which is what is tried here.
pytestmark = pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")


def use_store(directory: str, key: str) -> str:
    """Do as a worker of a pool does, with a locator of its own."""
    settings = {"plugin.backend": "embedded", "plugin.embedded.directory": directory}
    with PluginLocator().startup(settings) as own:
        for number in range(10):
            own.storage().put(f"{key}-{number}", "x")
    return key


def written(directory: Path) -> int:
    with closing(sqlite3.connect(directory / "kip30.db")) as connection:
        count: int = connection.execute("SELECT count(*) FROM kv").fetchone()[0]
    return count


@contextmanager
def parent_locator(directory: Path) -> Generator[PluginLocator]:
    settings = {"plugin.backend": "embedded", "plugin.embedded.directory": str(directory)}
    with PluginLocator().startup(settings) as locator:
        locator.storage().put("config", "x")
        yield locator


def test_a_pool_of_forked_workers_loses_nothing(directory: Path) -> None:
    keys = [f"w{number}" for number in range(8)]
    with parent_locator(directory) as locator:
        with multiprocessing.get_context("fork").Pool(4) as pool:
            todo = pool.starmap_async(use_store, [(str(directory), key) for key in keys])
            locator.storage().put("mine", "x")
            assert todo.get(60 * time_scale()) == keys
            pool.close()
            pool.join()
        assert locator.storage().get("config") is not None
    assert written(directory) == 82


def test_a_forked_worker_outlives_the_locator_of_its_parent(directory: Path) -> None:
    context = multiprocessing.get_context("fork")
    with parent_locator(directory):
        workers = [
            context.Process(target=use_store, args=(str(directory), f"p{n}")) for n in range(4)
        ]
        for worker in workers:
            worker.start()
    use_store(str(directory), "later")
    for worker in workers:
        worker.join(60 * time_scale())
    assert [worker.exitcode for worker in workers] == [0] * 4
    assert written(directory) == 51
