"""HTTP/1.1 as servers speak it, and as they break it off."""

import socket
import threading
import time
from contextlib import closing, suppress

import pytest

from kip30.config import Address
from kip30.config.tls import ReloadingContext, TlsFiles
from kip30_backends.consul.client.http import HttpConnection
from kip30_backends.consul.errors import NO_ANSWER, UNSENT, RequestFailedError

SECONDS = 5.0
OK = b"HTTP/1.1 200 OK\r\n"


class Server:
    """Answers every connection with the same bytes, once a request is there."""

    def __init__(self, answer: bytes, *, hangs_up: bool = False) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._answer = answer
        self._hangs_up = hangs_up
        self.address = Address("127.0.0.1", self._listening.getsockname()[1])
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        connection, _ = self._listening.accept()
        # The client hangs up at the first line that is not HTTP, while the rest is still sent.
        with closing(connection), suppress(ConnectionError):
            while connection.recv(4096):
                for byte in self._answer:
                    connection.sendall(bytes([byte]))
                if self._hangs_up:
                    return

    def close(self) -> None:
        self._thread.join(SECONDS)
        self._listening.close()


@pytest.fixture
def until() -> float:
    return time.monotonic() + SECONDS


@pytest.mark.parametrize(
    ("headers", "sent", "body"),
    [
        (b"Content-Length: 4", b"body", b"body"),
        (b"X-Other: a: b\r\ncontent-length:0", b"", b""),
        (b"Transfer-Encoding: chunked", b"2\r\nbo\r\n2;x\r\ndy\r\n0\r\n\r\n", b"body"),
        (b"Transfer-Encoding: chunked", b"4\r\nbody\r\n0\r\nT: x\r\n\r\n", b"body"),
    ],
    ids=["length", "empty", "chunks", "trailer"],
)
def test_answers_of_every_form_and_again(
    headers: bytes, sent: bytes, body: bytes, until: float
) -> None:
    answer = OK + headers + b"\r\n\r\n" + sent
    with (
        closing(Server(answer)) as server,
        closing(HttpConnection(server.address, None, until)) as connection,
    ):
        for _ in range(3):
            assert connection.is_idle()
            assert connection.ask(b"GET", until)[::2] == (200, body)
            assert connection.reusable


def test_an_answer_without_a_length_ends_with_the_connection(until: float) -> None:
    answer = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request"
    server = Server(answer, hangs_up=True)
    with closing(server), closing(HttpConnection(server.address, None, until)) as connection:
        assert connection.ask(b"GET", until)[::2] == (400, b"Client sent an HTTP request")
        assert not connection.reusable


def test_a_connection_that_the_server_closes_is_not_reusable(until: float) -> None:
    answer = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    with (
        closing(Server(answer)) as server,
        closing(HttpConnection(server.address, None, until)) as connection,
    ):
        connection.ask(b"GET", until)
        assert not connection.reusable


@pytest.mark.parametrize(
    "answer",
    [b"", OK + b"Content-", OK + b"Content-Length: 9\r\n\r\nbody", b"?\r\n\r\n"],
    ids=["nothing", "half a head", "half a body", "nonsense"],
)
def test_half_an_answer_is_none(answer: bytes, until: float) -> None:
    with (
        closing(Server(answer, hangs_up=True)) as server,
        closing(HttpConnection(server.address, None, until)) as connection,
        pytest.raises(RequestFailedError) as raised,
    ):
        connection.ask(b"GET", until)
    assert raised.value.failure.status == NO_ANSWER
    assert not connection.reusable


def test_no_answer_in_time() -> None:
    until = time.monotonic() + 0.2
    with (
        closing(Server(OK)) as server,
        closing(HttpConnection(server.address, None, until)) as connection,
    ):
        with pytest.raises(RequestFailedError, match="no answer in time"):
            connection.ask(b"GET", until)
        assert time.monotonic() < until + 1


def test_hanging_up_ends_what_is_under_way(until: float) -> None:
    with (
        closing(Server(b"H")) as server,
        closing(HttpConnection(server.address, None, until)) as connection,
    ):
        timer = threading.Timer(0.1, connection.hang_up)
        timer.start()
        with pytest.raises(RequestFailedError):
            connection.ask(b"GET", until)
        timer.join()
    assert time.monotonic() < until


def test_a_refused_connection_is_reported_as_unsent(until: float) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = Address("127.0.0.1", listening.getsockname()[1])
    with pytest.raises(RequestFailedError) as raised:
        HttpConnection(address, None, until)
    assert raised.value.failure.status == UNSENT


def test_an_aborted_handshake_is_reported_as_unsent_and_not_untrusted(until: float) -> None:
    with closing(Server(b"", hangs_up=True)) as server, pytest.raises(RequestFailedError) as raised:
        HttpConnection(server.address, ReloadingContext(TlsFiles(prefix="tls")), until)
    assert raised.value.failure.status == UNSENT


def test_a_server_that_does_not_speak_http_fails_the_request(until: float) -> None:
    server = Server(b"SSH-2.0-x\r\n", hangs_up=True)
    with (
        closing(server),
        closing(HttpConnection(server.address, None, until)) as connection,
        pytest.raises(RequestFailedError, match="the answer is not HTTP"),
    ):
        connection.ask(b"GET", until)
