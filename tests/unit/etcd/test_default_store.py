"""etcd as the only store installed: it is used without being named, and errors say why."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from kip30.cli._exit_codes import Status
from kip30.operations import OverviewReader
from kip30.runtime.resolution import store_place, unset_store
from tests.unit.cli.shell import Shell, without

OTHERS = "kazoo,cassandra,consul"


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.chdir(tmp_path)
    made = Shell(tmp_path)
    monkeypatch.setenv("KIP30_CONFIG", str(made.properties))
    return made


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port on which nothing listens, and that no other process can take meanwhile."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


def test_a_default_store_is_shown_with_the_reason(shell: Shell) -> None:
    shell.write({"plugin.namespace": "n"})
    effective = without(OTHERS, "config", "--effective").stdout.decode()
    assert effective.startswith(
        "plugin.backend\tetcd\tdefault: it is the only store installed besides embedded\n"
    )
    effective = without(f"{OTHERS},google", "config", "--effective").stdout.decode()
    assert effective.startswith("plugin.backend\tembedded\tdefault: no other store is installed\n")


def test_an_unset_address_is_reported_by_its_setting() -> None:
    assert unset_store({"plugin.backend": "etcd"}).endswith("(not set: plugin.etcd.endpoints)")
    assert not unset_store({"plugin.backend": "etcd", "plugin.etcd.endpoints": "h:1"})


def test_a_client_of_the_program_is_the_place() -> None:
    config = {"plugin.backend": "etcd", "plugin.etcd.client": "json:lend"}
    assert store_place(config) == ("etcd", "plugin.etcd.client=json:lend", [])
    assert not unset_store(config)
    assert OverviewReader(config).place == "plugin.etcd.client=json:lend"


@pytest.mark.parametrize("words", [("leader", "s"), ("doctor",)], ids=" ".join)
def test_a_default_store_that_is_not_reached_is_named_with_the_reason(
    shell: Shell, closed_port: int, words: tuple[str, ...]
) -> None:
    words = (*words, "--set", f"plugin.etcd.endpoints=127.0.0.1:{closed_port}")
    shell.write({"plugin.connect.timeout.ms": 500})
    result = without(OTHERS, *words)
    assert result.returncode == Status.UNAVAILABLE
    reason = (
        "etcd is the default because it is the only store installed besides embedded:"
        " plugin.backend names another store"
    )
    assert reason in (result.stderr + result.stdout).decode()
    result = without(OTHERS, *words, "--backend", "etcd")
    assert result.returncode == Status.UNAVAILABLE
    assert "default" not in (result.stderr + result.stdout).decode()


def test_a_default_store_that_lacks_a_setting_is_named_with_the_reason(shell: Shell) -> None:
    shell.write({"plugin.etcd.user": "u"})
    result = without(OTHERS, "leader", "s")
    assert result.returncode == Status.USAGE
    assert "etcd is the default because" in result.stderr.decode()
