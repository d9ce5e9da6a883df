"""A real HAProxy, for tests; without it they are skipped, and fail in CI."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def find_haproxy() -> str:
    """Return where HAProxy is; skip the test without it."""
    program = shutil.which("haproxy")
    if program is None:
        assert "CI" not in os.environ, "install HAProxy"
        pytest.skip("HAProxy is not installed")
    return program


@contextmanager
def haproxy(configuration: str, folder: Path) -> Iterator[None]:
    """Run HAProxy with *configuration*, which is kept in *folder*."""
    program = find_haproxy()
    file = folder / "haproxy.cfg"
    file.write_text(configuration)
    with subprocess.Popen([program, "-db", "-f", file], stderr=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.kill()
