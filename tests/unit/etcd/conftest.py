"""Clients of a real server of the tests' own."""

from collections.abc import Iterator

import pytest

from kip30_conformance.servers import Ensemble, start
from tests.unit.clients import Open, opening, unused_namespace


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    with start("etcd", folder=tmp_path_factory.mktemp("etcd")) as servers:
        yield servers


@pytest.fixture
def namespace() -> str:
    return unused_namespace()


@pytest.fixture
def open_client(ensemble: Ensemble, namespace: str) -> Iterator[Open]:
    with opening(ensemble, namespace) as open_one:
        yield open_one
