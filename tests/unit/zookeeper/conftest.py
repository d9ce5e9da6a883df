"""Clients of a real server of the tests' own."""

from collections.abc import Callable, Iterator

import pytest

from kip30_conformance.servers import Ensemble
from tests.unit.clients import Open, opening, unused_namespace


@pytest.fixture(scope="session")
def ensemble(shared_server: Callable[[str], Ensemble]) -> Ensemble:
    return shared_server("zookeeper")


@pytest.fixture
def namespace() -> str:
    return unused_namespace()


@pytest.fixture
def open_client(ensemble: Ensemble, namespace: str) -> Iterator[Open]:
    with opening(ensemble, namespace) as open_one:
        yield open_one
