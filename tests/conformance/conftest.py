"""The harness on real servers, and what makes a check fail that has proved nothing."""

from collections.abc import Callable, Generator, Iterator

import pytest

from kip30_conformance.plugin import is_proven
from kip30_conformance.server_harness import ServerHarness
from kip30_conformance.servers import SIZES, Ensemble, start
from tests.shared_servers import OPTIONS

# With these a test can stop, freeze and restart the servers.
_HARMFUL = frozenset({"servers", "freeze"})


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if call.when == "call" and report.passed and not is_proven(item):
        report.outcome = "failed"
        report.longrepr = "no evidence that the fault happened"
    return report


@pytest.fixture(scope="module", params=SIZES, ids=lambda nodes: f"nodes-{nodes}")
def nodes(request: pytest.FixtureRequest) -> int:
    number: int = request.param
    return number


@pytest.fixture(scope="module")
def own_harness(
    store: str, nodes: int, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerHarness]:
    """Yield a harness on servers that nothing else uses."""
    extra = OPTIONS.get(store, ())
    with start(store, nodes, folder=tmp_path_factory.mktemp(store), extra=extra) as ensemble:
        yield _harness(ensemble)


@pytest.fixture(scope="module")
def shared_harness(store: str, shared_server: Callable[[str], Ensemble]) -> ServerHarness:
    """Return a harness on the server that all processes of the run share."""
    return _harness(shared_server(store))


@pytest.fixture
def harness(request: pytest.FixtureRequest, nodes: int) -> ServerHarness:
    """Return a harness on the shared server, unless the test could harm that or takes three."""
    is_own = nodes > 1 or _HARMFUL & set(request.fixturenames)
    harness: ServerHarness = request.getfixturevalue("own_harness" if is_own else "shared_harness")
    return harness


def _harness(ensemble: Ensemble) -> ServerHarness:
    harness = ServerHarness(ensemble)
    # A driver's event loop may stay, with a descriptor, for all later connections.
    harness.open(harness.unique_root()).close()
    return harness
