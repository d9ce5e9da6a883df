"""Spark Connect: mistakes that are refused before Spark's client retries for ten minutes."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kip30 import UnavailableError, UsageError
from kip30.pipeline.spark.session import open_session
from kip30_conformance.polling import time_scale

WITHOUT_PACKAGE = """
import sys
sys.modules["grpc_status"] = None
from kip30.pipeline.spark.session import open_session
open_session(remote=sys.argv[1])
"""


@pytest.fixture
def port() -> Iterator[int]:
    """Yield a port at which something listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize(
    "address", ["localhost", "http://localhost", "sc://", "sc://h:99999", "sc://h:port", "sc:// h"]
)
def test_no_address(address: str) -> None:
    with pytest.raises(UsageError, match="write the address of the server"):
        open_session(remote=address)


def test_no_server(port: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        closed = other.getsockname()[1]
    assert closed != port
    with pytest.raises(UnavailableError, match=f"no Spark Connect server at 127.0.0.1:{closed}"):
        open_session(remote=f"sc://127.0.0.1:{closed}/;token=x")


def test_a_missing_package(port: int, tmp_path: Path) -> None:
    """In a process of its own: this one may have imported the package."""
    program = tmp_path / "program.py"
    program.write_text(WITHOUT_PACKAGE)
    ended = subprocess.run(
        [sys.executable, program, f"sc://127.0.0.1:{port}"],
        check=False,
        capture_output=True,
        timeout=60 * time_scale(),
    )
    assert b"UsageError: --remote needs more packages" in ended.stderr
    assert b"pip install 'pyspark[connect]'" in ended.stderr
