"""Name servers that do not answer: startup and close end without them."""

import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kip30 import PluginLocator, UnavailableError
from kip30.config import Written
from kip30_backends.zookeeper import ZookeeperBackend
from kip30_conformance.polling import eventually, time_scale
from kip30_conformance.servers import Ensemble
from tests.unit.clients import unused_namespace

_HANG_SECONDS = 60.0
_SERVERS: dict[str, dict[str, Written]] = {
    "zookeeper": {"zookeeper.connect": "first.invalid:2181,second.invalid:2181"},
    "etcd": {"plugin.etcd.endpoints": "first.invalid:2379,second.invalid:2379"},
    "consul": {"plugin.consul.address": "first.invalid:8500,second.invalid:8500"},
}


class NameServers:
    """Name servers that answer, or hang until the test ends.

    Attributes:
        begun: The names that were asked for.
        answered: Those of them whose lookup has ended.
        released: Set while they answer.
    """

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.answered: list[str] = []
        self.released = threading.Event()
        self._look_up = socket.getaddrinfo

    def hang_again(self) -> None:
        self.begun.clear()
        self.answered.clear()
        self.released.clear()

    def look_up(self, host: str, *arguments: Any, **more: Any) -> Any:
        if more.get("flags", 0) & socket.AI_NUMERICHOST or host[0].isdigit():
            return self._look_up(host, *arguments, **more)
        self.begun.append(host)
        self.released.wait(_HANG_SECONDS * time_scale())
        self.answered.append(host)
        return self._look_up(host, *arguments, **more)


@pytest.fixture
def name_servers(monkeypatch: pytest.MonkeyPatch) -> Iterator[NameServers]:
    """Yield name servers that hang until the test ends."""
    servers = NameServers()
    monkeypatch.setattr(socket, "getaddrinfo", servers.look_up)
    yield servers
    servers.released.set()


@pytest.mark.parametrize("store", _SERVERS)
def test_startup_fails_while_name_servers_hang(name_servers: NameServers, store: str) -> None:
    settings: dict[str, Written] = {
        "plugin.backend": store,
        "plugin.connect.timeout.ms": round(1000 * time_scale()),
    }
    with pytest.raises(UnavailableError):
        PluginLocator().startup({**settings, **_SERVERS[store]})
    assert name_servers.begun
    assert not name_servers.answered


def test_close_returns_while_name_servers_hang(
    name_servers: NameServers, shared_server: Callable[[str], Ensemble]
) -> None:
    connect = shared_server("zookeeper").settings()["zookeeper.connect"]
    name_servers.released.set()
    with PluginLocator().startup(
        {
            "plugin.backend": "zookeeper",
            "plugin.namespace": unused_namespace(),
            "zookeeper.connect": connect.replace("127.0.0.1", "localhost"),
        }
    ) as client:
        name_servers.hang_again()
        backend = client.backend
        assert isinstance(backend, ZookeeperBackend)
        managed = backend._resources.sessions.current
        assert managed is not None
        managed.connection.drop()
        eventually(lambda: name_servers.begun, what="the client looks the server up")
        client.close()
    assert not name_servers.answered
