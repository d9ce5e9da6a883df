"""Clients of a real server of the tests' own."""

from collections.abc import Iterator

import pytest

from kip30 import PluginLocator, StoreError
from kip30_conformance.servers import Ensemble, Link
from kip30_conformance.servers.needing import needed
from tests.unit.clients import Open, opening, unused_namespace

from .admin import Admin

OPERATION_SECONDS = 3.0


@pytest.fixture(scope="session")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    """Yield a node that is shared, since it takes long to start; who empties it has another one."""
    with needed("cassandra", folder=tmp_path_factory.mktemp("cassandra")) as servers:
        yield servers


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
    with opening(ensemble, namespace, session_ms=3000, operation_ms=operation_ms) as open_one:
        yield open_one


def is_put(client: PluginLocator) -> bool:
    """Put ``k``; false if the store says that it cannot."""
    try:
        client.storage().put("k", "new")
    except StoreError:
        return False
    return True
