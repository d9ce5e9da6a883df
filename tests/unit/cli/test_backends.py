import os
from pathlib import Path

import pytest

from kip30.cli._exit_codes import Status

from .shell import Shell

METADATA = "Metadata-Version: 2.1\nName: lacking\nVersion: 1.0\n"


@pytest.fixture
def lacking(shell: Shell) -> Shell:
    """A shell that finds a store whose library is not installed."""
    site = shell.folder / "site"
    info = site / "lacking-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(METADATA)
    (info / "entry_points.txt").write_text("[kip30.backends]\nlacking = lacking:Lacking\n")
    (site / "lacking.py").write_text("import no_such_library\n")
    shell.configure(plugin_additional_paths=site)
    return shell


def test_a_store_is_listed_with_its_capabilities_and_value_limit(shell: Shell) -> None:
    found = {one["name"]: one for one in shell.json("backends")}
    assert found["embedded"]["installed"]
    assert "fencing" in found["embedded"]["capabilities"]
    assert found["embedded"]["value_bytes"] == 256 * 1024


def test_a_pipe_gets_a_line_for_each(shell: Shell) -> None:
    rows = [line.split("\t") for line in shell("backends").stdout.splitlines()]
    (embedded,) = [row for row in rows if row[0] == "embedded"]
    assert embedded[1] == "yes"
    assert embedded[4] == "256 KiB"


def test_a_terminal_gets_a_table(shell: Shell) -> None:
    screen, terminal = os.openpty()
    assert shell.finish("backends", stdout=terminal).returncode == Status.OK
    os.close(terminal)
    with os.fdopen(screen, "rb", buffering=0) as shown:
        told = shown.read(10_000)
    assert b"embedded" in told
    assert b"\x1b[1m" in told


def test_a_store_that_lacks_its_library_is_listed_with_the_error(lacking: Shell) -> None:
    words = ("backends", "--load-plugins")
    (found,) = [one for one in lacking.json(*words) if one["name"] == "lacking"]
    assert found["installed"] is False
    assert "no_such_library" in found["problem"]
    result = lacking(*words)
    assert result.exit_code == Status.OK
    assert "no: backend 'lacking' cannot be imported" in result.stdout


def test_a_store_in_an_additional_path_is_listed_and_not_loaded(lacking: Shell) -> None:
    (lacking.folder / "site" / "lacking.py").write_text("raise SystemExit")
    (found,) = [one for one in lacking.json("backends") if one["name"] == "lacking"]
    assert found["installed"] is None
    assert "`--load-plugins` runs it" in found["problem"]
    assert "lacking\tnot loaded: " in lacking("backends").stdout


def test_using_it_is_a_usage_error(lacking: Shell) -> None:
    assert lacking("kv", "list", "--backend", "lacking").exit_code == Status.USAGE


def test_nothing_is_opened(shell: Shell) -> None:
    shell("backends")
    assert not Path(shell.folder / "store").exists()
