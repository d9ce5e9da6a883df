"""Clients of a real server of the tests' own."""

import itertools
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Protocol

import pytest

from kip30 import PluginLocator
from kip30.config import Written
from kip30_conformance.servers import Ensemble, start

from .admin import Admin

_NAMESPACES = itertools.count()


class Open(Protocol):
    """Opens a client that is closed when the test ends."""

    def __call__(self, **more: Written) -> PluginLocator: ...


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    with start("consul", folder=tmp_path_factory.mktemp("consul")) as servers:
        yield servers


@pytest.fixture
def admin(ensemble: Ensemble) -> Admin:
    return Admin(ensemble.nodes[0].port)


@pytest.fixture
def namespace() -> str:
    return f"unit-{next(_NAMESPACES)}"


@pytest.fixture
def open_client(ensemble: Ensemble, namespace: str) -> Iterator[Open]:
    with ExitStack() as clients:

        def open_one(**more: Written) -> PluginLocator:
            properties: dict[str, Written] = {
                "plugin.session.timeout.ms": 2000,
                "plugin.operation.timeout.ms": 1500,
                **ensemble.settings(),
                "plugin.namespace": namespace,
                **more,
            }
            return clients.enter_context(PluginLocator().startup(properties))

        yield open_one
