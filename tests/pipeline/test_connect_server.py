"""Spark Connect: what is refused before Spark's client tries for ten minutes."""

import socket
import sys
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from kip30 import UnavailableError, UsageError
from kip30.pipeline.session import open_session


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


def test_a_missing_package(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("pyspark.sql.connect")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "grpc_status", None)
    with pytest.raises(UsageError, match=r"pip install 'pyspark\[connect\]'"):
        open_session(remote=f"sc://127.0.0.1:{port}")
    assert SparkSession.getActiveSession() is None
