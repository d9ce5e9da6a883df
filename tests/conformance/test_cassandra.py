"""Cassandra against the conformance suite, on one node and on three."""

from collections.abc import Iterator

import pytest

from kip30_conformance.all_suites import suite_classes
from kip30_conformance.servers import SIZES, start
from kip30_conformance.servers.server_harness import ServerHarness


@pytest.fixture(scope="module", params=SIZES, ids=lambda nodes: f"nodes-{nodes}")
def harness(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerHarness]:
    nodes: int = request.param
    with start("cassandra", nodes, folder=tmp_path_factory.mktemp("cassandra")) as ensemble:
        harness = ServerHarness(ensemble)
        # The driver's event loop stays, with one descriptor, for all later connections.
        harness.open(harness.unique_root()).close()
        yield harness


globals().update(suite_classes())
