import json
import secrets
from contextlib import closing
from pathlib import Path

import psutil

from kip30.cli._exit_codes import Status
from kip30_conformance.clients.run_processes import Arena

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
    assert not (shell.folder / "conform-report").exists()


def test_a_wrong_configuration_is_a_usage_error(shell: Shell) -> None:
    assert shell("conform", "--set", "plugin.nonsense=1").exit_code == Status.USAGE


def test_no_setting_is_in_the_command_line_of_a_runner(shell: Shell, tmp_path: Path) -> None:
    secret = "hunter2-" + secrets.token_hex(4)
    properties = {
        "plugin.backend": "embedded",
        "plugin.embedded.directory": str(shell.folder / "store"),
        "plugin.namespace": secret,
    }
    with closing(Arena(tmp_path, properties)) as arena:
        runner = arena.start(*arena.ticker())
        arena.await_term()
        processes = [
            psutil.Process(runner.pid),
            *psutil.Process(runner.pid).children(recursive=True),
        ]
        seen = [Path(f"/proc/{one.pid}/cmdline").read_bytes() for one in processes]
    assert len(seen) > 1
    assert all(seen)
    assert not [line for line in seen if secret.encode() in line]
    assert not [path for path in tmp_path.iterdir() if path.is_file() and _holds(path, secret)]


def _holds(path: Path, secret: str) -> bool:
    return secret.encode() in path.read_bytes()
