import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kip30.serving.http_server import Answer, HttpServer
from kip30.serving.listen_address import ListenAddress, OwnHosts, listen_at
from kip30_conformance.polling import eventually

from .raw_client import RawClient
from .stored import Looked, looked_at

Serve = Callable[[Answer], int]
"""Starts a server that answers so, and returns its port."""
Connect = Callable[[], RawClient]


def server_threads() -> int:
    return sum(one.name == "kip30-http" for one in threading.enumerate())


@pytest.fixture(autouse=True)
def ended_threads() -> Generator[None]:
    yield
    eventually(lambda: server_threads() == 0, what="all threads of servers have ended")


@pytest.fixture
def serve(ended_threads: None) -> Iterator[Serve]:
    del ended_threads  # after the servers
    with ExitStack() as servers:

        def begin(answer: Answer) -> int:
            listener = listen_at(ListenAddress("127.0.0.1", 0))
            port: int = listener.getsockname()[1]
            servers.enter_context(HttpServer(listener, answer, OwnHosts(["web1"])))
            return port

        yield begin


@pytest.fixture
def looked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Looked]:
    with looked_at(tmp_path, monkeypatch) as found:
        yield found
