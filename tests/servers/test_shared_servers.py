"""A server that all processes of a test run share."""

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from subprocess import PIPE, Popen

import pytest

from kip30 import ConfigError, PluginLocator
from kip30_conformance.servers import attach
from kip30_conformance.servers.supervisor_client import SupervisorError
from tests.shared_servers import Place, ServerHost, ask

ASKER = """
import sys
from tests.shared_servers import ask
print(ask(sys.argv[1], "etcd").nodes[0].client)
"""


@pytest.fixture
def host() -> Iterator[ServerHost]:
    host = ServerHost()
    yield host
    host.close()


def test_each_process_gets_the_same_server(host: ServerHost, pytestconfig: pytest.Config) -> None:
    words = [sys.executable, "-c", ASKER, host.address]
    path = {**os.environ, "PYTHONPATH": str(pytestconfig.rootpath)}
    with ExitStack() as processes:
        askers = [
            processes.enter_context(Popen(words, env=path, stdout=PIPE, text=True))
            for _ in range(3)
        ]
        ports = {int(asker.communicate()[0]) for asker in askers}
    assert ports == {host.place("etcd").nodes[0].client}


def test_a_server_of_another_process_is_used_and_left_alone(host: ServerHost) -> None:
    found = host.place("etcd")
    with attach("etcd", found.nodes, found.version) as ensemble, ExitStack() as clients:
        link = clients.enter_context(ensemble.link())
        near, far = (
            clients.enter_context(PluginLocator().startup(settings))
            for settings in (ensemble.settings(), link.settings())
        )
        near.storage().put("k", "v")
        assert far.storage().get("k")
        with pytest.raises(SupervisorError):
            ensemble.nodes[0].kill()
        with pytest.raises(SupervisorError), ensemble.frozen():
            pass
    _expect_alive(found)


def test_an_unknown_server_is_an_error_for_the_caller(host: ServerHost) -> None:
    with pytest.raises(ConfigError, match="etc"):
        ask(host.address, "etc")


def test_servers_end_with_the_host() -> None:
    host = ServerHost()
    found = host.place("etcd")
    host.close()
    with attach("etcd", found.nodes, found.version) as ensemble:
        assert not ensemble.nodes[0].is_ready()


def _expect_alive(found: Place) -> None:
    with attach("etcd", found.nodes, found.version) as ensemble:
        assert ensemble.nodes[0].is_ready()
