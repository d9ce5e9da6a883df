"""The oldest servers that Debian 12 has, against the suites that break no server."""

from collections.abc import Iterator

import pytest

from kip30_conformance.all_suites import suite_classes
from kip30_conformance.server_harness import ServerHarness
from kip30_conformance.servers.needing import needed

VERSIONS = {"etcd": "3.4.23", "zookeeper": "3.8.0"}


@pytest.fixture(scope="module", params=VERSIONS)
def harness(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerHarness]:
    name: str = request.param
    folder = tmp_path_factory.mktemp(name)
    with needed(name, version=VERSIONS[name], folder=folder) as ensemble:
        yield ServerHarness(ensemble)


globals().update(suite_classes())
