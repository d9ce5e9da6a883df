"""Consul against the conformance suite, on one server and on three."""

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
    with start("consul", nodes, folder=tmp_path_factory.mktemp("consul")) as ensemble:
        yield ServerHarness(ensemble)


globals().update(suite_classes())
