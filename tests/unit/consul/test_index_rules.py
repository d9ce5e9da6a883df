"""Blocking queries: the index sent after each response, and the indexes that are reported."""

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, suppress

import pytest

from kip30.config import Address
from kip30_backends.consul import ConsulSettings
from kip30_backends.consul.blocking_query import BlockingQuery, QueryConnection, QueryWait
from kip30_backends.consul.client.endpoints import Agent, Endpoints
from kip30_backends.consul.client.http import Answer
from kip30_backends.consul.transactions import index_of
from kip30_conformance.polling import eventually

URL = "/v1/kv/k?consistent"


class Server:
    """Sends one response after the other, each a status and an index, and then none."""

    def __init__(self, *script: tuple[int, int | None]) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._script = iter(script)
        self.asked: list[str] = []
        self.address = Address("127.0.0.1", self._listening.getsockname()[1])
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                threading.Thread(target=self._serve, args=[connection], daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with closing(connection):
            while request := connection.recv(4096):
                self.asked.append(request.split(b" ")[1].decode().removeprefix(URL))
                answer = next(self._script, None)
                if answer is not None:
                    connection.sendall(_http(*answer))

    def close(self) -> None:
        self._listening.close()


def _http(status: int, index: int | None) -> bytes:
    header = "" if index is None else f"X-Consul-Index: {index}\r\n"
    return f"HTTP/1.1 {status} Told\r\n{header}Content-Length: 0\r\n\r\n".encode()


class Listener:
    """Follows *server* by a blocking query, and keeps the indexes that are reported."""

    def __init__(self, server: Server) -> None:
        self.heard: list[int] = []
        agents = [Agent(server.address, ConsulSettings(), 1.0) for _ in range(2)]
        self.endpoints = Endpoints(agents)
        connection, query_wait = QueryConnection(self.endpoints), QueryWait(3.0, 1.0)
        self.query = BlockingQuery(connection, URL, query_wait, lambda: self._hear)
        self.query.thread.start()

    def _hear(self, answer: Answer) -> None:
        self.heard.append(index_of(answer))

    def close(self) -> None:
        self.query.close()
        self.query.thread.join()


@pytest.fixture
def script(request: pytest.FixtureRequest) -> tuple[tuple[int, int | None], ...]:
    answers: tuple[tuple[int, int | None], ...] = request.param
    return answers


@pytest.fixture
def server(script: tuple[tuple[int, int | None], ...]) -> Iterator[Server]:
    with closing(Server(*script)) as one:
        yield one


@pytest.fixture
def listener(server: Server) -> Iterator[Listener]:
    with closing(Listener(server)) as one:
        yield one


def _since(index: int) -> str:
    return f"&index={index}&wait=3000ms"


@pytest.mark.parametrize(
    ("script", "asked", "heard"),
    [
        ([(200, 5), (200, 9)], ["", _since(5), _since(9)], [5, 9]),
        ([(200, 5), (200, 5), (200, 6)], ["", _since(5), _since(5), _since(6)], [5, 5, 6]),
        ([(404, 5), (404, 7)], ["", _since(5), _since(7)], [5, 7]),
        ([(200, 9), (200, 3), (200, 3)], ["", _since(9), "", _since(3)], [9, 3, 3]),
        ([(200, 0), (200, 4)], ["", _since(1), _since(4)], [1, 4]),
        ([(200, None), (200, 4)], ["", _since(1), _since(4)], [1, 4]),
        ([(200, 5), (500, None), (200, 5)], ["", _since(5), "", _since(5)], [5, 5]),
    ],
    ids=["grows", "times out", "absent", "went back", "zero", "none", "trouble"],
    indirect=["script"],
)
def test_indexes(server: Server, listener: Listener, asked: list[str], heard: list[int]) -> None:
    eventually(lambda: len(server.asked) == len(asked), what="all is asked")
    assert server.asked == asked
    assert listener.heard == heard


@pytest.mark.parametrize("script", [[(200, 5), (200, 9)]], indirect=True)
def test_notify_again_reads_from_the_start_at_the_same_server(
    server: Server, listener: Listener
) -> None:
    eventually(lambda: server.asked[-1:] == [_since(9)])
    used = listener.endpoints.current
    listener.query.notify_again()
    eventually(lambda: server.asked[-1] == "", what="it asks for everything")
    assert listener.endpoints.current is used


@pytest.mark.parametrize("script", [[(200, 5)]], indirect=True)
def test_the_query_leaves_a_server_that_does_not_respond(
    server: Server, listener: Listener
) -> None:
    used = listener.endpoints.current
    eventually(lambda: server.asked[-1:] == [_since(5)])
    eventually(lambda: server.asked[-1] == "", within=6, what="the wait and the answer took long")
    assert listener.heard == [5]
    assert listener.endpoints.current is not used
