"""ZooKeeper against the conformance suite, on one server and on three."""

from collections.abc import Iterator

import pytest

from kip30_conformance.all_suites import suite_classes
from kip30_conformance.servers import SIZES, start
from kip30_conformance.servers.server_harness import ServerHarness

UNSYNCED = "forceSync=no"
"""Processes are killed here, not machines. One sync of a disk that all servers share was seen to
take 0.9 s, and a server that is silent for 0.7 s is given up under the suite's session timeout."""


@pytest.fixture(scope="module", params=SIZES, ids=lambda nodes: f"nodes-{nodes}")
def harness(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerHarness]:
    nodes: int = request.param
    folder = tmp_path_factory.mktemp("zookeeper")
    with start("zookeeper", nodes, folder=folder, extra=[UNSYNCED]) as ensemble:
        yield ServerHarness(ensemble)


globals().update(suite_classes())
