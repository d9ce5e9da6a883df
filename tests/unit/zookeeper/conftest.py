"""Clients of a real server of the tests' own."""

import itertools
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Protocol

import pytest

from kip30 import PluginLocator
from kip30.config import Written
from kip30_conformance.servers import Ensemble, start

_NAMESPACES = itertools.count()


class Open(Protocol):
    """Opens a client that is closed when the test ends."""

    def __call__(
        self, more: Mapping[str, Written] | None = None, *, namespace: str | None = None
    ) -> PluginLocator: ...


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    with start("zookeeper", folder=tmp_path_factory.mktemp("zookeeper")) as servers:
        yield servers


@pytest.fixture
def namespace() -> str:
    return f"unit-{next(_NAMESPACES)}"


@pytest.fixture
def open_client(ensemble: Ensemble, namespace: str) -> Iterator[Open]:
    with ExitStack() as clients:
        own = namespace

        def open_one(
            more: Mapping[str, Written] | None = None, *, namespace: str | None = None
        ) -> PluginLocator:
            properties: dict[str, Written] = {
                "plugin.session.timeout.ms": 2000,
                "plugin.operation.timeout.ms": 1500,
                **ensemble.settings(),
                "plugin.namespace": namespace or own,
                **(more or {}),
            }
            return clients.enter_context(PluginLocator().startup(properties))

        yield open_one
