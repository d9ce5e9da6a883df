"""The package that ``kip30 new-backend`` writes: it installs, is in order, and is red."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kip30 import ConfigError
from kip30.cli.program import program
from kip30_conformance.new_backend import write

UNWRITTEN = "store.py: write __init__"

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def package(tmp_path: Path) -> Path:
    write("pg_two", tmp_path / "kip30-pg_two")
    return tmp_path / "kip30-pg_two"


@pytest.fixture
def installed(package: Path, tmp_path: Path) -> Run:
    """Install the package, and return what runs pytest in it."""
    site = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--target", str(site), str(package)], check=True)
    path = os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *words],
            cwd=package,
            env={**os.environ, "PYTHONPATH": path, "XDG_CACHE_HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def test_it_has_a_file_for_each_concern(package: Path) -> None:
    assert {str(one.relative_to(package)) for one in package.rglob("*") if one.is_file()} == {
        *("pyproject.toml", "README.md"),
        *(
            f"kip30_pg_two/{name}.py"
            for name in ("__init__", "backend", "errors", "settings", "store")
        ),
        *(f"tests/{name}.py" for name in ("conftest", "test_conformance", "test_errors")),
    }
    assert "$" not in "".join(one.read_text() for one in package.rglob("*.py"))


def test_it_is_linted_and_typed_as_kip30_is(package: Path) -> None:
    for tool in (["ruff", "format", "--check", "--line-length=100"], ["mypy", "--strict"]):
        found = subprocess.run(
            [sys.executable, "-m", *tool, "kip30_pg_two"],
            cwd=package,
            capture_output=True,
            text=True,
            check=False,
        )
        if "No module named" not in found.stderr:
            assert found.returncode == 0, found.stdout + found.stderr


def test_the_package_installs_and_its_tests_name_the_unwritten_method(installed: Run) -> None:
    ended = installed("-k", "S01 or translate")
    assert ended.returncode == pytest.ExitCode.TESTS_FAILED, ended.stdout + ended.stderr
    assert UNWRITTEN in ended.stdout
    assert "8 passed" in ended.stdout


def test_failed_asserts_show_what_they_compared(installed: Run, package: Path) -> None:
    check = "from kip30_conformance import polling\n\n\ndef test_one():\n    polling.throughout"
    (package / "tests" / "test_one.py").write_text(f"{check}(lambda: {{}} == 7, seconds=1)\n")
    ended = installed("-W", "error::pytest.PytestAssertRewriteWarning", "tests/test_one.py")
    assert "where False = " in ended.stdout, ended.stdout + ended.stderr


def test_the_core_level_is_selected_by_markers(installed: Run) -> None:
    ended = installed("--collect-only", "-qm", "not coordinator and not fault and not heavy")
    found = re.search(r"(\d+)/\d+ tests collected \((\d+) deselected\)", ended.stdout)
    assert found, ended.stdout + ended.stderr
    core, others = map(int, found.groups())
    assert core > others > 50


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("etcd", "is a backend of kip30"),
        ("embedded", "is a backend of kip30"),
        ("Pg", "lower case letters"),
        ("pg-two", "lower case letters"),
        ("pg__two", "lower case letters"),
        ("../pg", "lower case letters"),
    ],
)
def test_a_name_that_cannot_be_used(name: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=said):
        write(name, tmp_path / "there")
    assert not (tmp_path / "there").exists()


def test_a_folder_that_is_there_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("")
    with pytest.raises(ConfigError, match="exists already"):
        write("pg", tmp_path / "mine")


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "new"
    with pytest.raises(SystemExit) as ended:
        program(["new-backend", "pg", "--out", str(target)])
    assert not ended.value.code
    out, err = capsys.readouterr()
    assert str(target / "kip30_pg" / "store.py") in out.splitlines()
    assert f"{target}/README.md" in err
