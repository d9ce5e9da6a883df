import pytest

from kip30.cli._exit_codes import Status

from .shell import Shell

NOTHING = {"services": 0, "groups": 0, "namespaces": 0, "dry_run": False}


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
        "services\t2\ngroups\t0\nnamespaces\t0\n",
    )
    assert shell.json("prune", "--unused", "0s") == [NOTHING]


@pytest.mark.parametrize("time", ["30", "d", "-1d", "1y", "1e9d", "nan s", ""])
def test_a_time_has_a_number_and_a_unit(shell: Shell, time: str) -> None:
    result = shell("prune", f"--unused={time}")
    assert result.exit_code == Status.USAGE
    assert "write a number with s, min, h or d" in result.stderr


def test_there_is_no_time_by_default(shell: Shell) -> None:
    assert shell("prune").exit_code == Status.USAGE
