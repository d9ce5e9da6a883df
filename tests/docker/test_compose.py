"""`docker/compose.yaml`: the versions of the recipes, on loopback, watched over."""

import re
from pathlib import Path

DOCKER = Path(__file__).parents[2] / "docker"
COMPOSE = (DOCKER / "compose.yaml").read_text()
DEFAULT_PORTS = {"2181", "2379", "2380", "8500", "9042"}


def test_all_ports_are_on_loopback_distinct_and_not_the_default_ones() -> None:
    ports = re.findall(r"ports: (.+)", COMPOSE)
    hosts = re.findall(r'ports: \["127\.0\.0\.1:(\d+):\d+"\]', COMPOSE)
    assert len(ports) == len(hosts) == 16
    assert len(set(hosts)) == len(hosts)
    assert not set(hosts) & DEFAULT_PORTS


def test_the_versions_are_those_that_install_servers_pins() -> None:
    assert re.findall(r"image: (.+)", COMPOSE) == [
        f"zookeeper:{_of_jar('zookeeper', 'zookeeper')}",
        f"kip30/etcd:{_of_module('etcd', 'go.etcd.io/etcd/server/v3')}",
        f"kip30/consul:{_of_module('consul', 'github.com/hashicorp/consul')}",
        f"kip30/cassandra:{_of_jar('cassandra', 'cassandra-all')}",
    ]
    base = _only(r"FROM cassandra:(\S+)", "cassandra/Dockerfile")
    assert base == _of_jar("cassandra", "cassandra-all")


def test_every_kind_of_server_has_a_health_check() -> None:
    assert COMPOSE.count("image:") == COMPOSE.count("healthcheck:") == 4


def _of_jar(store: str, artifact: str) -> str:
    pattern = rf"<artifactId>{artifact}</artifactId>\s*<version>(.+?)</version>"
    return _only(pattern, f"{store}/pom.xml")


def _of_module(store: str, module: str) -> str:
    return _only(rf"{re.escape(module)} v(\S+)", f"{store}/go.mod")


def _only(pattern: str, name: str) -> str:
    found = re.search(pattern, _text(name))
    assert found
    return found[1]


def _text(name: str) -> str:
    return (DOCKER / name).read_text()
