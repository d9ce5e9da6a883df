"""Groups that were: the servers delete them, and clients make them again."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from kip30_conformance.polling import eventually
from kip30_conformance.servers import Ensemble, start
from tests.unit.clients import Open


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    folder: Path = tmp_path_factory.mktemp("groups")
    often = {"JAVA_TOOL_OPTIONS": "-Dznode.container.checkIntervalMs=100"}
    with start("zookeeper", folder=folder, environment=often) as servers:
        yield servers


def test_an_empty_group_goes_and_comes_back(
    open_client: Open, ensemble: Ensemble, namespace: str
) -> None:
    look: Any = KazooClient(hosts=ensemble.nodes[0].address)
    look.start()
    group = open_client().group_membership("g")
    for _ in range(3):
        group.join("m", "")
        assert list(group.membership()) == ["m"]
        group.leave("m")
        assert eventually(lambda: look.exists(f"/{namespace}/group/g") is None)
    look.stop()
    look.close()
