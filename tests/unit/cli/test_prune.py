import time
from typing import Any

import pytest

from kip30 import AuthenticationError, PluginLocator
from kip30.cli._exit_codes import Status
from kip30.codecs import BYTES
from kip30.runtime.directives import decode_directives, directives_key, encode_directives
from kip30.storage import Storage
from tests.unit.unreadable_leader import add_unreadable_leader

from .shell import Shell

NOTHING = {"services": 0, "groups": 0, "namespaces": 0, "directives": 0, "dry_run": False}


def led(shell: Shell, service: str) -> None:
    assert shell.finish("run", "--once", "--service", service, "--", "true").returncode == Status.OK


def test_unused_services_are_removed_and_counted(shell: Shell) -> None:
    for name in ("a", "b"):
        led(shell, name)
    dry = shell.json("prune", "--unused", "0s", "--dry-run")
    assert dry == [{**NOTHING, "services": 2, "dry_run": True}]
    assert shell.json("prune", "--unused", "30d") == [NOTHING]
    result = shell("prune", "--unused", "0s")
    assert (result.exit_code, result.stdout) == (
        Status.OK,
        "services\t2\ngroups\t0\nnamespaces\t0\ndirectives\t0\n",
    )
    assert shell.json("prune", "--unused", "0s") == [NOTHING]


def test_directives_that_ask_nothing_go_with_their_service(shell: Shell) -> None:
    for service in ("over", "paused", "led", "recent", "damaged"):
        shell("pause", service)
        shell("resume", service)
    shell("pause", "paused")
    shell("kv", "set", "kip30.directives/damaged", "no directives")
    now = time.time()
    with PluginLocator().startup(str(shell.properties)) as locator:
        storage = locator.storage(BYTES)
        for service in ("over", "paused", "led"):
            key = str(directives_key(service))
            found = storage.get(key)
            assert found is not None
            directives = decode_directives(service, found.value)
            log = tuple(one._replace(at=now - 3 * 86_400) for one in directives.log)
            storage.set(key, encode_directives(directives._replace(log=log)))
        locator.leader_election("led").nominate("host-1", "")
        dry = shell.json("prune", "--unused", "2d", "-n")
        assert dry == [{**NOTHING, "directives": 1, "dry_run": True}]
        assert shell.json("prune", "--unused", "2d") == [{**NOTHING, "directives": 1}]
        assert shell.json("prune", "--unused", "2d") == [NOTHING]
    kept = shell("kv", "list", "kip30.directives").stdout.split()
    assert sorted(key.rpartition("/")[2] for key in kept) == ["damaged", "led", "paused", "recent"]


def test_directives_of_a_leader_that_cannot_be_read_stay(shell: Shell) -> None:
    shell("pause", "s")
    shell("resume", "s")
    with PluginLocator().startup(str(shell.properties)) as locator:
        locator.group_membership("g").join("m", "")
        add_unreadable_leader(shell.folder / "store", "s")
        assert shell.json("prune", "--unused", "0s") == [NOTHING]
    assert shell("kv", "list", "kip30.directives").stdout.split() == ["kip30.directives/s"]


def test_directives_that_may_not_be_removed_are_an_error_after_all_others(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    for service in ("a", "b", "c"):
        shell("pause", service)
        shell("resume", service)
    delete = Storage.delete

    def forbidding(self: Storage[bytes], key: str, **options: Any) -> None:
        if key.endswith("/a"):
            raise AuthenticationError("permission denied")
        delete(self, key, **options)

    monkeypatch.setattr(Storage, "delete", forbidding)
    result = shell("prune", "--unused", "0s")
    assert (result.exit_code, result.stdout) == (Status.UNAVAILABLE, "")
    assert "permission denied" in result.stderr
    assert shell("kv", "list", "kip30.directives").stdout.split() == ["kip30.directives/a"]


def test_directives_of_a_service_that_led_lately_stay(shell: Shell) -> None:
    led(shell, "s")
    shell("pause", "s")
    shell("resume", "s")
    (old,) = shell.json("terms", "s", "--directives")[-1:]
    with PluginLocator().startup(str(shell.properties)) as locator:
        storage, key = locator.storage(BYTES), str(directives_key("s"))
        found = storage.get(key)
        assert found is not None
        directives = decode_directives("s", found.value)
        log = tuple(one._replace(at=old["at"] - 3 * 86_400) for one in directives.log)
        storage.set(key, encode_directives(directives._replace(log=log)))
    assert shell.json("prune", "--unused", "2d") == [NOTHING]
    assert shell.json("prune", "--unused", "0s")[0]["directives"] == 1


@pytest.mark.parametrize("given", ["30", "d", "-1d", "1y", "1e9d", "nan s", ""])
def test_a_time_has_a_number_and_a_unit(shell: Shell, given: str) -> None:
    result = shell("prune", f"--unused={given}")
    assert result.exit_code == Status.USAGE
    assert "write a number with s, min, h or d" in result.stderr


def test_there_is_no_time_by_default(shell: Shell) -> None:
    assert shell("prune").exit_code == Status.USAGE
