import json

from kip30.cli.status import Status

from .shell import Shell


def test_a_case_that_passes_is_reported(shell: Shell) -> None:
    result = shell.finish("conform", "--case", "S03", "--out", "report", "--seed", "7")
    assert result.returncode == Status.OK, result.stderr.decode()
    report = json.loads((shell.folder / "report" / "report.json").read_text())
    assert report["seed"] == 7


def test_a_case_that_is_not_known_is_a_usage_error(shell: Shell) -> None:
    result = shell.finish("conform", "--case", "Z99")
    assert result.returncode == Status.USAGE
    assert b"Z99" in result.stderr


def test_a_wrong_configuration_is_a_usage_error(shell: Shell) -> None:
    assert shell("conform", "--set", "plugin.nonsense=1").exit_code == Status.USAGE
