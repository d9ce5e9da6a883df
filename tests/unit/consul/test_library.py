"""The `consul` module over kip30's own connections, whichever of the two libraries it is."""

from collections.abc import Iterator
from typing import Any

import consul.base
import pytest

from kip30.config import Address
from kip30_backends.consul import ConsulSettings
from kip30_backends.consul.library import Adapter, Agent
from kip30_conformance.servers import Ensemble
from tests.unit.clients import Open

base: Any = consul.base


@pytest.fixture
def agent(ensemble: Ensemble) -> Iterator[Agent]:
    address = Address("127.0.0.1", ensemble.nodes[0].port)
    one = Agent(address, ConsulSettings(datacenter="dc1"), 5.0)
    yield one
    one.http.close()


def test_the_library_takes_the_adapter_for_its_own(agent: Agent) -> None:
    assert isinstance(agent.http, base.HTTPClient)
    assert isinstance(agent._client.http, Adapter)


def test_its_calls_work(agent: Agent, namespace: str) -> None:
    client, key = agent._client, f"{namespace}/k é"
    assert client.kv.put(key, "v")
    _, found = client.kv.get(key)
    assert found["Value"] == b"v"
    assert client.kv.delete(key)
    assert client.kv.get(key)[1] is None


def test_the_environment_of_consul_is_not_looked_at(
    open_client: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONSUL_HTTP_ADDR", "https://nowhere.invalid:1")
    monkeypatch.setenv("CONSUL_HTTP_TOKEN", "no-token")
    monkeypatch.setenv("CONSUL_HTTP_SSL", "true")
    client = open_client()
    client.storage().put("k", "v")
    assert client.backend.describe()["version"].startswith("consul")
