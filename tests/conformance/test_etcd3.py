"""etcd over the connections of etcd3's own clients, against the conformance suite."""

from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager

import pytest
from typing_extensions import override

from kip30.config import Written
from kip30_conformance.all_suites import suite_classes
from kip30_conformance.server_harness import ServerHarness
from kip30_conformance.servers import start
from kip30_conformance.unreachable import dead_port

pytest.importorskip("etcd3", reason="it takes the extra etcd3", exc_type=ImportError)

ENDPOINTS = "plugin.etcd.endpoints"
CLIENT = "plugin.etcd.client"


class BorrowingHarness(ServerHarness):
    """Every client has its connection from a client of etcd3."""

    @override
    def properties(self, root: str, **more: Written) -> dict[str, Written]:
        properties = super().properties(root, **more)
        port = str(properties.pop(ENDPOINTS)).rpartition(":")[2]
        return {**properties, CLIENT: f"etcd3_callers:port_{port}"}

    @contextmanager
    @override
    def nowhere(self, root: str, **more: Written) -> Generator[Mapping[str, Written]]:
        with dead_port() as port:
            yield {**self.properties(root, **more), CLIENT: f"etcd3_callers:port_{port}"}


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerHarness]:
    with start("etcd", folder=tmp_path_factory.mktemp("etcd")) as ensemble:
        yield BorrowingHarness(ensemble)


globals().update(suite_classes())
