"""The `consul` module of either library, over kip30's own connections."""

import os
from collections.abc import Iterator
from typing import Any

import consul.base
import pytest

from kip30.config import Address
from kip30_backends.consul import ConsulSettings
from kip30_backends.consul.client.endpoints import Adapter, Agent
from kip30_conformance.servers import Ensemble
from tests.unit.clients import Open

base: Any = consul.base


@pytest.fixture
def agent(ensemble: Ensemble) -> Iterator[Agent]:
    address = Address("127.0.0.1", ensemble.nodes[0].port)
    one = Agent(address, ConsulSettings(datacenter="dc1"), 5.0)
    yield one
    one.http.close()


@pytest.fixture
def client(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the library's client over the connections of *agent*."""

    def adapter(_client: Any, *_arguments: Any, **_more: Any) -> Adapter:
        return agent.http

    for name in [name for name in os.environ if name.startswith("CONSUL_")]:
        monkeypatch.delenv(name)
    # The hook is named `http_connect` in py-consul, and `connect` in python-consul.
    hooks = {"http_connect": adapter, "connect": adapter}
    return type("Client", (base.Consul,), hooks)(dc="dc1")


def test_the_library_takes_the_adapter_for_its_own(agent: Agent, client: Any) -> None:
    assert isinstance(agent.http, base.HTTPClient)
    assert client.http is agent.http


def test_its_calls_work(client: Any, namespace: str) -> None:
    key = f"{namespace}/k é"
    assert client.kv.put(key, "v")
    _, found = client.kv.get(key)
    assert found["Value"] == b"v"
    assert client.kv.delete(key)
    assert client.kv.get(key)[1] is None


def test_the_library_and_kip30_read_the_same_version_and_leader(agent: Agent, client: Any) -> None:
    assert agent.description()["version"] == f"consul {client.agent.self()['Config']['Version']}"
    assert agent.leader() == client.status.leader()


@pytest.mark.parametrize("address", ["https://nowhere.invalid:1", "nowhere.invalid:1", "::"])
def test_the_environment_of_consul_is_not_looked_at(
    open_client: Open, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("CONSUL_HTTP_ADDR", address)
    monkeypatch.setenv("CONSUL_HTTP_TOKEN", "no-token")
    monkeypatch.setenv("CONSUL_HTTP_SSL", "true")
    client = open_client()
    client.storage().put("k", "v")
    told = client.backend.describe()
    assert told["version"].startswith("consul 1.")
    assert told["leader"].startswith("127.0.0.1:")
