from pathlib import Path

import psutil
import pytest

from kip30 import ConfigError
from kip30_conformance.polling import eventually
from kip30_conformance.servers import Ensemble, ServerMissingError, start
from kip30_conformance.servers.needing import needed

from .conftest import EACH_STORE
from .talking import get, others, put


def test_settings_name_every_node(ensemble: Ensemble) -> None:
    backend, addresses = ensemble.settings().values()
    assert backend == ensemble.name
    assert addresses.split(",") == [node.address for node in ensemble.nodes]


def test_killed_and_restarted(ensemble: Ensemble) -> None:
    leader = ensemble.leader()
    old = leader.kill()
    assert not leader.is_alive()
    assert not leader.is_ready()
    assert not psutil.pid_exists(old)
    if len(ensemble.nodes) > 1:
        assert ensemble.leader() is not leader
        ensemble.await_ready(others(ensemble, leader))
    assert leader.restart() == (old, leader.pid)
    assert leader.pid != old
    ensemble.await_ready()


def test_stopped_and_resumed(ensemble: Ensemble) -> None:
    node = ensemble.nodes[0]
    node.stop()
    assert psutil.Process(node.pid).status() == psutil.STATUS_STOPPED
    assert node.is_alive()
    assert not node.is_ready()
    node.resume()
    ensemble.await_ready()


def test_restarted_with_data_and_empty(etcd: Ensemble) -> None:
    node = etcd.nodes[0]
    put(node, "key", "value")
    etcd.restart()
    assert get(node, "key") == "value"
    etcd.restart(empty=True)
    assert get(node, "key") is None


@pytest.mark.parametrize("name", EACH_STORE)
def test_comes_back_empty(name: str, tmp_path: Path) -> None:
    with needed(name, folder=tmp_path) as ensemble:
        mark = tmp_path / "node0" / "data" / "mark"
        mark.touch()
        ensemble.restart()
        assert mark.exists()
        ensemble.restart(empty=True)
        assert not mark.exists()
        assert len(set(ensemble.nodes[0].pids)) == 3


def test_options_reach_the_server(tmp_path: Path) -> None:
    with needed("etcd", folder=tmp_path, extra=["--log-outputs={folder}/own-{index}.log"]):
        assert (tmp_path / "node0" / "own-0.log").exists()


def test_environment_reaches_the_server() -> None:
    variables = {"JAVA_TOOL_OPTIONS": "-Dkip30.own=1"}
    with needed("zookeeper", environment=variables) as ensemble:
        assert "-Dkip30.own=1" in ensemble.nodes[0].log_tail()


def test_failure_to_start_shows_the_log() -> None:
    needed("etcd").close()
    with pytest.raises(AssertionError, match="flag provided but not defined"):
        start("etcd", extra=["--no-such-option"], within=1)


def test_unknown_store() -> None:
    with pytest.raises(ConfigError, match="did you mean etcd"):
        start("etdc")


def test_unknown_size() -> None:
    with pytest.raises(ConfigError, match="1 or 3 nodes, not 2"):
        start("etcd", 2)


def test_not_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KIP30_SERVERS", str(tmp_path))
    with pytest.raises(ServerMissingError, match="run `kip30 servers install etcd`"):
        start("etcd")


@pytest.mark.parametrize("variable", ["CI", "KIP30_REQUIRE_SERVERS"])
def test_a_missing_server_is_loud(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str
) -> None:
    monkeypatch.setenv("KIP30_SERVERS", str(tmp_path))
    for name in ("CI", "KIP30_REQUIRE_SERVERS"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(pytest.skip.Exception, match="servers install etcd"):
        needed("etcd")
    monkeypatch.setenv(variable, "1")
    with pytest.raises(ServerMissingError):
        needed("etcd")


@pytest.mark.fault
def test_isolated_leader_is_replaced(three: Ensemble) -> None:
    old = three.leader()
    rest = others(three, old)
    before = sum(one.dropped for one in three.peer_counts().values())
    three.isolate(old)
    new = eventually(
        lambda: next((node for node in rest if node.is_leader()), None), within=15, what="a leader"
    )
    eventually(lambda: not old.is_ready(), within=15, what="the isolated node serves nobody")
    assert sum(one.dropped for one in three.peer_counts().values()) > before
    three.heal()
    three.await_ready()
    assert three.leader() in rest
    assert new in rest


@pytest.mark.fault
def test_isolated_follower_is_not_missed(three: Ensemble) -> None:
    leader = three.leader()
    lonely, other = others(three, leader)
    three.isolate(lonely)
    eventually(lambda: not lonely.is_ready(), within=15, what="the isolated node serves nobody")
    assert leader.is_ready()
    assert other.is_ready()
    three.heal()
    three.await_ready()


@pytest.mark.fault
def test_followers_that_cannot_meet(three: Ensemble) -> None:
    leader = three.leader()
    three.separate(*others(three, leader))
    three.await_ready()
    three.heal()
    three.await_ready()
