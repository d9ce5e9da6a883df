"""Clients of a real server of the tests' own."""

import itertools
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Protocol

import pytest

from kip30 import PluginLocator
from kip30.config import Written
from kip30_conformance.servers import Ensemble
from kip30_conformance.servers.needing import needed

from .admin import Admin

OPERATION_SECONDS = 3.0
_NAMESPACES = itertools.count()


class Open(Protocol):
    """Opens a client that is closed when the test ends."""

    def __call__(self, **more: Written) -> PluginLocator: ...


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
def namespace() -> str:
    return f"unit-{next(_NAMESPACES)}"


@pytest.fixture
def open_client(ensemble: Ensemble, namespace: str) -> Iterator[Open]:
    with ExitStack() as clients:

        def open_one(**more: Written) -> PluginLocator:
            properties: dict[str, Written] = {
                "plugin.session.timeout.ms": 3000,
                "plugin.operation.timeout.ms": round(1000 * OPERATION_SECONDS),
                **ensemble.settings(),
                "plugin.namespace": namespace,
                **more,
            }
            return clients.enter_context(PluginLocator().startup(properties))

        yield open_one
