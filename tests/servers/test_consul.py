import http.client
import json
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest

from kip30_conformance.polling import eventually, time_scale
from kip30_conformance.servers import Ensemble, Node
from kip30_conformance.servers.certificates import Authority
from kip30_conformance.servers.needing import needed

from .talking import PATIENCE, QUESTION, SILENCE, others

ROOT = "8f0d6c0e-0000-4000-8000-0123456789ab"
ACL = (
    '-hcl=acl { enabled = true default_policy = "deny" '
    f'tokens {{ initial_management = "{ROOT}" }} }}'
)


@pytest.fixture(scope="module")
def alone() -> Iterator[Ensemble]:
    with needed("consul") as ensemble:
        yield ensemble


@pytest.fixture(scope="module")
def trio() -> Iterator[Ensemble]:
    with needed("consul", 3) as ensemble:
        yield ensemble


def asked(port: int, method: str, path: str, content: str = "", token: str = "") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE * time_scale())
    with closing(connection):
        connection.request(method, path, content, {"X-Consul-Token": token})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def opens(node: Node, ttl: str) -> bool:
    status, _ = asked(node.port, "PUT", "/v1/session/create", json.dumps({"TTL": ttl}))
    return status == http.client.OK


def put(node: Node, key: str, value: str) -> None:
    assert asked(node.port, "PUT", f"/v1/kv/{key}", value) == (http.client.OK, "true")


def get(node: Node, key: str) -> str | None:
    status, value = asked(node.port, "GET", f"/v1/kv/{key}?consistent&raw")
    return value if status == http.client.OK else None


def members(node: Node) -> dict[str, int]:
    told: list[dict[str, Any]] = json.loads(asked(node.port, "GET", "/v1/agent/members")[1])
    return {one["Name"]: one["Status"] for one in told}


def test_sessions_may_be_short(alone: Ensemble) -> None:
    eventually(lambda: opens(alone.nodes[0], "1s"), within=15, what="a session")


def test_sessions_may_have_the_floor_of_others() -> None:
    with needed("consul", extra=['-hcl=session_ttl_min = "10s"']) as ensemble:
        eventually(lambda: opens(ensemble.nodes[0], "10s"), within=15, what="a session")
        assert not opens(ensemble.nodes[0], "9s")


def test_restarted_with_data_and_empty(alone: Ensemble) -> None:
    node = alone.nodes[0]
    put(node, "key", "value")
    alone.restart()
    assert get(node, "key") == "value"
    alone.restart(empty=True)
    assert get(node, "key") is None


def test_one_comes_back_empty_and_catches_up(trio: Ensemble) -> None:
    follower, other = others(trio, trio.leader())
    put(other, "key", "value")
    follower.restart(empty=True)
    trio.await_ready()
    assert get(follower, "key") == "value"


def test_an_isolated_node_is_noticed_by_the_others(trio: Ensemble) -> None:
    lonely, other = others(trio, trio.leader())
    name = f"node{lonely.index}"
    assert members(other)[name] == 1
    trio.isolate(lonely)
    eventually(lambda: members(other)[name] != 1, within=30, what="the others miss it")
    trio.heal()
    eventually(lambda: members(other)[name] == 1, within=60, what="the others have it back")
    trio.await_ready()


def test_tls_and_tokens(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    own = authority.sign("node")
    tls = (
        f'-hcl=tls {{ https {{ ca_file = "{authority.certificate}" '
        f'cert_file = "{own.certificate}" key_file = "{own.key}" }} }}'
    )
    with needed("consul", secure=True, extra=[tls, ACL]) as ensemble:
        node = ensemble.nodes[0]
        assert node.is_leader()
        status, complaint = asked(node.port, "GET", "/v1/status/leader")
        assert (status, "HTTPS" in complaint) == (http.client.BAD_REQUEST, True)


def test_tokens(tmp_path: Path) -> None:
    with needed("consul", folder=tmp_path, extra=[ACL]) as ensemble:
        port = ensemble.nodes[0].port
        assert asked(port, "PUT", "/v1/kv/key", "value")[0] == http.client.FORBIDDEN
        assert asked(port, "PUT", "/v1/kv/key", "value", ROOT)[0] == http.client.OK


def test_a_link_carries_and_is_cut(trio: Ensemble) -> None:
    with trio.link() as link:
        assert asked(link.ports[1], "GET", "/v1/status/leader")[0] == http.client.OK
        link.cut()
        with socket.create_connection(("127.0.0.1", link.ports[1]), SILENCE) as connection:
            connection.sendall(QUESTION)
            with pytest.raises(TimeoutError):
                connection.recv(1)
        assert link.counted().dropped_to_server > 0


def test_nothing_stays_behind() -> None:
    with needed("consul", 3) as ensemble:
        pids = [node.pid for node in ensemble.nodes]
    assert not any(map(psutil.pid_exists, pids))
