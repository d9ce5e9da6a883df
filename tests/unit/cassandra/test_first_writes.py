"""Attempts of the first write in a partition that arrive once the partition has been begun."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from cassandra.query import BatchStatement

from kip30 import PluginLocator
from kip30_backends.cassandra import CassandraBackend
from kip30_backends.cassandra.client.connections import Row
from kip30_backends.cassandra.errors import Failure
from tests.unit.clients import Open

Send = Callable[..., None]


class Late:
    """Sends all but the first write, which arrives just before the third."""

    def __init__(self, send: Send) -> None:
        self.told = list[bool]()
        self._send = send
        self._writes = list[object]()

    def send(self, statement: object, node: object, answered: Send, failed: Send) -> None:
        if isinstance(statement, BatchStatement):
            self._writes.append(statement)
            if len(self._writes) == 1:
                failed(Failure("ConnectionShutdown", "lost on its way"))
                return
            if len(self._writes) == 3:

                def go_on(rows: Sequence[Row]) -> None:
                    self.told.append(rows[0]["[applied]"])
                    self._send(statement, node, answered, failed)

                self._send(self._writes[0], node, go_on, failed)
                return
        self._send(statement, node, answered, failed)


@pytest.fixture
def client(open_client: Open) -> PluginLocator:
    return open_client()


@pytest.fixture
def late(client: PluginLocator, monkeypatch: pytest.MonkeyPatch) -> Late:
    backend: Any = client.backend
    assert isinstance(backend, CassandraBackend)
    connections = backend._resources.connections
    late = Late(connections.send)
    monkeypatch.setattr(connections, "send", late.send)
    return late


def test_a_record(client: PluginLocator, late: Late) -> None:
    version = client.storage().put("n/k", "v")
    assert late.told == [False]
    found = client.storage().get("n/k")
    assert found is not None
    assert found.version == version


def test_a_member(client: PluginLocator, late: Late) -> None:
    group = client.group_membership("g")
    group.join("m", "")
    assert late.told == [False]
    assert group.membership_list() == {"m"}
