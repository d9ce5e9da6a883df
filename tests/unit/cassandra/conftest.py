"""Clients of a real server of the tests' own."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from kip30 import OutcomeUnknownError, PluginLocator, StoreError
from kip30.config import Written
from kip30.driver.scanning import ScanDriver, View
from kip30.runtime.resolution import scanner
from kip30_conformance.servers import Ensemble, Link
from tests.unit.clients import PATIENT, Open, opening, unused_namespace

from .admin import Admin
from .scans import EVERYTHING, OpenScanner

OPERATION_SECONDS = 3.0


@pytest.fixture(scope="session")
def ensemble(shared_server: Callable[[str], Ensemble]) -> Ensemble:
    return shared_server("cassandra")


@pytest.fixture(scope="module")
def admin(ensemble: Ensemble) -> Iterator[Admin]:
    with Admin(ensemble.nodes[0].address) as one:
        yield one


@pytest.fixture
def link(ensemble: Ensemble) -> Iterator[Link]:
    """Yield a way to the node, on which there can be trouble."""
    with ensemble.link() as one:
        yield one


@pytest.fixture
def namespace() -> str:
    return unused_namespace()


@pytest.fixture
def open_client(ensemble: Ensemble, namespace: str) -> Iterator[Open]:
    operation_ms = round(1000 * OPERATION_SECONDS)
    # A node that has just started takes long for a login, and for the tables.
    connect = {"plugin.connect.timeout.ms": PATIENT["plugin.operation.timeout.ms"]}
    with opening(ensemble, namespace, session_ms=3000, operation_ms=operation_ms) as open_one:
        yield lambda **more: open_one(**{**connect, **more})


@pytest.fixture
def open_scanner(ensemble: Ensemble, namespace: str) -> Iterator[OpenScanner]:
    with ExitStack() as scanners:

        def open_one(view: View = EVERYTHING, /, **more: Written) -> ScanDriver:
            properties = {**PATIENT, **ensemble.settings(), "plugin.namespace": namespace, **more}
            return scanners.enter_context(scanner(properties, view))

        yield open_one


@pytest.fixture
def keyspace(admin: Admin) -> Iterator[str]:
    """Yield the name of a keyspace that is not there."""
    name = f"vanishing_{os.getpid()}"
    yield name
    admin.tell(f"DROP KEYSPACE IF EXISTS {name}")


def is_set(client: PluginLocator) -> bool:
    """Set ``k``; false if the store says that it cannot, or does not answer in time."""
    try:
        client.storage().set("k", "new")
    except (StoreError, OutcomeUnknownError):
        return False
    return True
