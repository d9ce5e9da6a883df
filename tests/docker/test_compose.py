"""`docker/compose.yaml`: the versions of the recipes, on loopback, watched over."""

import re
from pathlib import Path

DOCKER = Path(__file__).parents[2] / "docker"
COMPOSE = (DOCKER / "compose.yaml").read_text()
DEFAULT_PORTS = {"2181", "2379", "2380"}


def test_all_ports_are_on_loopback_distinct_and_not_the_default_ones() -> None:
    ports = re.findall(r"ports: (.+)", COMPOSE)
    hosts = re.findall(r'ports: \["127\.0\.0\.1:(\d+):\d+"\]', COMPOSE)
    assert len(ports) == len(hosts) == 8
    assert len(set(hosts)) == len(hosts)
    assert not set(hosts) & DEFAULT_PORTS


def test_the_versions_are_those_that_install_servers_pins() -> None:
    pom = (DOCKER / "zookeeper" / "pom.xml").read_text()
    module = (DOCKER / "etcd" / "go.mod").read_text()
    zookeeper = re.search(r"<artifactId>zookeeper</artifactId>\s*<version>(.+?)</version>", pom)
    etcd = re.search(r"go\.etcd\.io/etcd/server/v3 v(\S+)", module)
    assert zookeeper
    assert etcd
    assert re.findall(r"image: (.+)", COMPOSE) == [
        f"zookeeper:{zookeeper[1]}",
        f"kip30/etcd:{etcd[1]}",
    ]


def test_every_kind_of_server_has_a_health_check() -> None:
    assert COMPOSE.count("image:") == COMPOSE.count("healthcheck:") == 2
