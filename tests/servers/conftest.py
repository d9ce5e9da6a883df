from collections.abc import Iterator

import pytest

from kip30_conformance.failure_logs import pytest_runtest_makereport
from kip30_conformance.servers import SIZES, STORES, Ensemble, Link
from kip30_conformance.servers.needing import needed

__all__ = ["pytest_runtest_makereport"]

# Cassandra starts in half a minute, and in these tests again and again.
EACH_STORE = [
    pytest.param(name, marks=[pytest.mark.large] * (name == "cassandra")) for name in STORES
]


@pytest.fixture(autouse=True)
def mended(request: pytest.FixtureRequest) -> Iterator[None]:
    """Mend the servers that tests share, so that what fails fails alone."""
    yield
    for used in request.node.funcargs.values():
        if isinstance(used, Ensemble):
            used.mend()


@pytest.fixture(scope="module")
def etcd() -> Iterator[Ensemble]:
    with needed("etcd") as ensemble:
        yield ensemble


@pytest.fixture
def link(etcd: Ensemble) -> Iterator[Link]:
    with etcd.link() as opened:
        yield opened


@pytest.fixture(scope="module", params=[name for name, store in STORES.items() if store.elects])
def three(request: pytest.FixtureRequest) -> Iterator[Ensemble]:
    with needed(request.param, 3) as ensemble:
        yield ensemble


@pytest.fixture(
    scope="module",
    params=[(name, nodes) for name, store in STORES.items() if store.elects for nodes in SIZES],
    ids=lambda param: f"{param[0]}-{param[1]}",
)
def ensemble(request: pytest.FixtureRequest) -> Iterator[Ensemble]:
    name, nodes = request.param
    with needed(name, nodes) as started:
        yield started
