"""Faults for the core's tests."""

import sqlite3
import threading
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

from kip30 import PluginLocator
from tests.embedded_faults import EmbeddedFaults, faults_of


def faults(client: PluginLocator) -> EmbeddedFaults:
    """Return the faults of *client*, which uses the embedded store."""
    return faults_of(client.backend)


def has_arrived() -> bool:
    """Return whether all that was delayed has been done."""
    return all(thread.name != "kip30-conformance-delay" for thread in threading.enumerate())


@contextmanager
def frozen(folder: Path) -> Generator[None]:
    """Keep all clients of the store in *folder* from writing: their writes are not answered."""
    file = folder / "state" / "kip30.db"
    with closing(sqlite3.connect(file, timeout=5, isolation_level=None)) as database, database:
        database.execute("BEGIN IMMEDIATE")
        yield
