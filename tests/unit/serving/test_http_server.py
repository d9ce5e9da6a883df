"""The server, and clients that send what no good client sends."""

import errno
import logging
import os
import resource
import socket
import struct
import threading
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack
from functools import partial
from http import HTTPStatus

import psutil
import pytest

from kip30 import UnavailableError
from kip30.serving import http_server
from kip30.serving.http_message import (
    HttpRequest,
    HttpResponse,
    RefusedRequestError,
    StreamedResponse,
    json_response,
)
from kip30.serving.http_server import MOST_CONNECTIONS, Answer, HttpServer
from kip30.serving.listen_address import ListenAddress, OwnHosts, listen_at
from kip30_conformance.polling import eventually, time_scale
from tests.unit.threads import no_threads

from .conftest import Serve, server_threads
from .raw_client import PATIENCE_SECONDS, RawClient, eventually_refused

END = b"\r\n\r\n"
GOOD = b"GET /good HTTP/1.1\r\nHost: 127.0.0.1" + END


def echo(request: HttpRequest) -> HttpResponse:
    return json_response(HTTPStatus.OK, {"path": request.path, "query": request.query})


def line(first: bytes, *fields: bytes) -> bytes:
    return b"\r\n".join([first, *fields, b"", b""])


HOSTILE = {
    "absolute target": (421, line(b"GET http://127.0.0.1/x HTTP/1.1", b"Host: 127.0.0.1")),
    "target of another site": (421, line(b"GET http://evil.example/ HTTP/1.1", b"Host: evil")),
    "another host": (421, line(b"GET / HTTP/1.1", b"Host: evil.example:8008")),
    "another host in 1.0": (421, line(b"GET / HTTP/1.0", b"Host: evil.example")),
    "no host": (400, line(b"GET / HTTP/1.1")),
    "empty host": (400, line(b"GET / HTTP/1.1", b"Host:")),
    "two hosts": (400, line(b"GET / HTTP/1.1", b"Host: localhost", b"host: localhost")),
    "host with a user": (400, line(b"GET / HTTP/1.1", b"Host: a@localhost")),
    "0.9": (400, b"GET /\r\n"),
    "0.9 without an end": (400, b"GET /leader\n"),
    "2.0": (400, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    "no version": (400, line(b"GET / HTTP/1.", b"Host: localhost")),
    "two blanks": (400, line(b"GET  / HTTP/1.1", b"Host: localhost")),
    "TLS": (400, bytes.fromhex("16030100c8010000c40303") + bytes(200)),
    "NUL in a field": (400, line(b"GET / HTTP/1.1", b"Host: localhost", b"X: a\0b")),
    "NULs": (400, bytes(100)),
    "escape": (400, line(b"GET /\x1b[31m HTTP/1.1", b"Host: localhost")),
    "bytes in the target": (400, line(b"GET /\xff HTTP/1.1", b"Host: localhost")),
    "line feeds alone": (400, b"GET / HTTP/1.1\nHost: localhost\n\n"),
    "carriage return alone": (400, line(b"GET / HTTP/1.1", b"Host: localhost", b"X: a\rb: c")),
    "no colon": (400, line(b"GET / HTTP/1.1", b"Host: localhost", b"X")),
    "blank before the colon": (400, line(b"GET / HTTP/1.1", b"Host: localhost", b"X : y")),
    "folded field": (400, line(b"GET / HTTP/1.1", b"Host: localhost", b"X: y", b" z")),
    "no slash": (400, line(b"GET leader HTTP/1.1", b"Host: localhost")),
    "asterisk": (400, line(b"GET * HTTP/1.1", b"Host: localhost")),
    "length no number": (400, line(b"GET / HTTP/1.1", b"Host: localhost", b"Content-Length: x")),
    "body": (400, line(b"GET / HTTP/1.1", b"Host: localhost", b"Content-Length: 5") + b"hello"),
    "large body": (
        400,
        line(b"GET / HTTP/1.1", b"Host: localhost", b"Content-Length: 100000") + bytes(100_000),
    ),
    "negative length": (400, line(b"GET / HTTP/1.1", b"Host: localhost", b"Content-Length: -1")),
    "signed length": (400, line(b"GET / HTTP/1.1", b"Host: localhost", b"Content-Length: +0")),
    "two lengths": (
        400,
        line(b"GET / HTTP/1.1", b"Host: localhost", *[b"Content-Length: 0"] * 2),
    ),
    "chunks": (
        400,
        line(b"GET / HTTP/1.1", b"Host: localhost", b"Transfer-Encoding: chunked") + b"0" + END,
    ),
    "post": (405, line(b"POST / HTTP/1.1", b"Host: localhost", b"Content-Length: 3") + b"a=b"),
    "another method": (405, line(b"get / HTTP/1.1", b"Host: localhost")),
    "proxy": (405, line(b"CONNECT evil.example:443 HTTP/1.1", b"Host: localhost")),
    "large field": (431, line(b"GET / HTTP/1.1", b"Host: localhost", b"X: " + b"y" * 20_000)),
    "many fields": (431, line(b"GET / HTTP/1.1", b"Host: localhost", *[b"X: y"] * 4000)),
    "large target": (431, line(b"GET /" + b"x" * 20_000 + b" HTTP/1.1", b"Host: localhost")),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_bad_request_gets_a_response_and_the_end(serve: Serve, name: str) -> None:
    status, sent = HOSTILE[name]
    port = serve(echo)
    with RawClient(port) as client:
        client.send(sent)
        got = client.read()
        assert (got.status, got.fields["Connection"]) == (status, "close")
        assert list(got.records[0]) == ["error"]
        assert client.is_at_end()
    with RawClient(port) as other:
        assert other.ask("/good").status == 200


@pytest.mark.parametrize("name", ["another host", "large field", "body"])
def test_a_bad_request_by_head_gets_no_body(serve: Serve, name: str) -> None:
    status, sent = HOSTILE[name]
    with RawClient(serve(echo)) as client:
        client.send(sent.replace(b"GET ", b"HEAD ", 1))
        assert client.read(has_body=False).status == status
        assert client.is_at_end()


@pytest.mark.parametrize("host", ["127.0.0.1", "10.9.8.7:80", "[::1]:8008", "localhost", "web1:1"])
def test_an_own_host_is_answered(serve: Serve, host: str) -> None:
    with RawClient(serve(echo)) as client:
        assert client.ask("/a?b", Host=host).records == [{"path": "/a", "query": "b"}]


def test_requests_that_come_together_are_answered_in_their_order(serve: Serve) -> None:
    paths = [f"/{number}" for number in range(500)]
    with RawClient(serve(echo)) as client:
        heads = "\r\n".join(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n" for path in paths)
        client.send(heads.encode())
        assert [client.read().records[0]["path"] for _ in paths] == paths


def test_a_bad_request_behind_good_ones_is_the_last(serve: Serve) -> None:
    with RawClient(serve(echo)) as client:
        client.send(GOOD + GOOD + HOSTILE["another host"][1] + GOOD)
        assert [client.read().status for _ in range(3)] == [200, 200, 421]
        assert client.is_at_end()


def test_a_request_that_comes_a_byte_at_a_time_is_answered(serve: Serve) -> None:
    with RawClient(serve(echo)) as client:
        for number in range(len(GOOD)):
            client.send(GOOD[number : number + 1])
        assert client.read().status == 200


def test_head_and_options_have_no_body(serve: Serve) -> None:
    with RawClient(serve(echo)) as client:
        size = len(client.ask("/x").body)
        assert client.ask("/x", "HEAD").fields["Content-Length"] == str(size)
        options = client.ask("/x", "OPTIONS")
        assert (options.status, options.fields["Content-Length"]) == (200, "0")
        assert options.fields["Allow"] == "GET, HEAD, OPTIONS"
        assert client.ask("*", "OPTIONS").status == 200
        assert client.ask("/x").records[0]["path"] == "/x"  # nothing is left over


def test_a_client_that_asks_for_the_end_gets_it(serve: Serve) -> None:
    with RawClient(serve(echo)) as client:
        assert client.ask("/", Connection="close").fields["Connection"] == "close"
        assert client.is_at_end()


def test_half_a_request_and_silence_is_answered(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "REQUEST_SECONDS", 0.1)
    with RawClient(serve(echo)) as client:
        client.send(GOOD[:-2])
        assert client.read().status == 408
        assert client.is_at_end()


def test_half_a_request_and_the_end_is_answered(serve: Serve) -> None:
    with RawClient(serve(echo)) as client:
        client.send(GOOD[:-2])
        client.socket.shutdown(socket.SHUT_WR)
        assert client.read().status == 400
        assert client.is_at_end()


def test_a_connection_without_requests_is_closed(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "REQUEST_SECONDS", 0.1)
    port = serve(echo)
    with RawClient(port) as idle, RawClient(port) as served:
        assert served.ask("/").status == 200
        assert served.is_at_end()
        assert idle.is_at_end()


def test_bytes_that_trickle_in_extend_no_deadline(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "REQUEST_SECONDS", 0.3)
    with RawClient(serve(echo)) as client:
        client.send(b"GET / HTTP/1.1\r\nX: ")
        client.socket.settimeout(0.05)
        until = time.monotonic() + PATIENCE_SECONDS * time_scale()
        while True:
            assert time.monotonic() < until, "it still waits for the rest"
            client.send(b"y")
            try:
                assert client.read().status == 408
            except TimeoutError:
                continue
            return


def test_clients_that_hang_keep_no_other_out_and_leak_nothing(serve: Serve) -> None:
    """Far more than there are places; each has sent nothing, half a request, or a whole one."""
    _allow_descriptors(2500)
    port = serve(echo)
    with RawClient(port) as client:
        assert client.ask("/").status == 200
    eventually(lambda: server_threads() == 1)
    before = psutil.Process().num_fds()
    with ExitStack() as hanging:
        for number in range(1000):
            client = hanging.enter_context(RawClient(port))
            client.send((b"", GOOD[:20], GOOD)[number % 3])
            if number % 50 == 0:
                with RawClient(port) as probe:
                    assert probe.ask("/good").status == 200
        assert server_threads() <= MOST_CONNECTIONS + 1
    eventually(lambda: server_threads() == 1, what="the threads have ended")
    eventually(lambda: psutil.Process().num_fds() == before, what="the sockets are closed")


def test_clients_that_take_no_response_keep_no_other_out(serve: Serve) -> None:
    large = HttpResponse(HTTPStatus.OK, bytes(50_000_000), "text/plain")
    port = serve(lambda request: large if request.path == "/good" else echo(request))
    with ExitStack() as deaf:
        for _ in range(MOST_CONNECTIONS):
            client = deaf.enter_context(RawClient(port))
            client.send(GOOD)
            assert client.socket.recv(1)  # the response is under way
        with RawClient(port) as probe:
            assert probe.ask("/").status == 200


def test_a_connection_is_refused_in_words_when_all_places_are_at_work(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "_ROOM_SECONDS", 0.01)
    release = threading.Event()
    port = serve(lambda _: partial(_wait_for, release))
    with ExitStack() as clients:
        at_work = [clients.enter_context(RawClient(port)) for _ in range(MOST_CONNECTIONS)]
        for client in at_work:
            client.send(GOOD)
        with RawClient(port) as late:
            assert late.read().status == 503
        release.set()
        assert {client.read().status for client in at_work} == {200}
        with RawClient(port) as client:
            assert client.ask("/").status == 200


def test_requests_are_answered_one_at_a_time(serve: Serve) -> None:
    """Many busy threads would keep the rest of the program from its turn."""
    inside, most = list[HttpRequest](), 0

    def answer(request: HttpRequest) -> HttpResponse:
        nonlocal most
        inside.append(request)
        most = max(most, len(inside))
        time.sleep(0.001)  # others come meanwhile
        inside.pop()
        return echo(request)

    port = serve(answer)
    with ExitStack() as clients:
        started = [clients.enter_context(RawClient(port)) for _ in range(20)]
        for client in started:
            client.send(GOOD * 5)
        for client in started:
            assert [client.read().status for _ in range(5)] == [200] * 5
    assert most == 1


def test_a_slow_response_delays_no_other(serve: Serve) -> None:
    release = threading.Event()

    def answer(request: HttpRequest) -> "HttpResponse | Callable[[], HttpResponse]":
        return partial(_wait_for, release) if request.path == "/slow" else echo(request)

    port = serve(answer)
    with RawClient(port) as slow, RawClient(port) as quick:
        slow.send(GOOD.replace(b"/good", b"/slow"))
        for _ in range(20):
            assert quick.ask("/").status == 200
        release.set()
        assert slow.read().status == 200


def _fail(_request: HttpRequest) -> HttpResponse:
    raise RuntimeError("a secret")


def _refuse(_request: HttpRequest) -> HttpResponse:
    raise RefusedRequestError(HTTPStatus.NOT_FOUND, "no such path")


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (_fail, 500),
        (lambda request: partial(_fail, request), 500),
        (_refuse, 404),
        (lambda request: partial(_refuse, request), 404),
    ],
    ids=["fails", "fails slowly", "refuses", "refuses slowly"],
)
def test_an_answer_that_fails_is_a_response_as_well(
    serve: Serve, caplog: pytest.LogCaptureFixture, answer: Answer, status: int
) -> None:
    caplog.set_level(logging.DEBUG)
    with RawClient(serve(answer)) as client:
        for _ in range(2):  # and the connection goes on
            got = client.ask("/x?token=hidden")
            assert got.status == status
            assert b"secret" not in got.body
    assert "hidden" not in caplog.text


def test_a_client_that_takes_no_response_is_given_up(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "REQUEST_SECONDS", 0.1)
    large = HttpResponse(HTTPStatus.OK, bytes(50_000_000), "text/plain")
    with RawClient(serve(lambda _: large)) as client:
        client.send(GOOD)
        eventually(lambda: server_threads() == 1, what="its thread has ended")


def test_a_client_that_resets_its_connection_harms_no_other(serve: Serve) -> None:
    port = serve(echo)
    for sent in (b"", GOOD[:20], GOOD):
        with RawClient(port) as client:
            client.send(sent)
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    with RawClient(port) as client:
        assert client.ask("/").status == 200


def test_a_system_without_descriptors_delays_the_clients_only(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ECONNABORTED]
    real = socket.socket.accept

    def accept(listener: socket.socket) -> tuple[socket.socket, object]:
        if failures:
            number = failures.pop()
            raise OSError(number, os.strerror(number))
        return real(listener)

    monkeypatch.setattr(socket.socket, "accept", accept)
    with RawClient(serve(echo)) as client:
        assert client.ask("/").status == 200
    assert not failures


def test_a_system_without_threads_is_said_to_the_client(serve: Serve) -> None:
    port = serve(echo)
    for _ in range(MOST_CONNECTIONS + 1):  # each gives its place back
        with no_threads("kip30-http"), RawClient(port) as client:
            assert client.read().status == 503
    with RawClient(port) as client:
        assert client.ask("/").status == 200


def test_a_server_without_a_thread_does_not_begin() -> None:
    listener = listen_at(ListenAddress("127.0.0.1", 0))
    port = listener.getsockname()[1]
    with no_threads("kip30-http"), pytest.raises(UnavailableError, match="no thread to spare"):
        HttpServer(listener, echo, OwnHosts([]))
    eventually_refused(port)


def test_the_end_ends_clients_that_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "_CLOSE_SECONDS", 0.2)
    listener = listen_at(ListenAddress("127.0.0.1", 0))
    port = listener.getsockname()[1]
    large = HttpResponse(HTTPStatus.OK, bytes(50_000_000), "text/plain")
    server = HttpServer(listener, lambda _: large, OwnHosts([]))
    with RawClient(port) as idle, RawClient(port) as half, RawClient(port) as deaf:
        half.send(GOOD[:20])
        deaf.send(GOOD)
        assert deaf.socket.recv(1)  # the response is under way
        server.close()
        server.close()
        assert half.read().status == 503
        assert half.is_at_end()
        assert idle.is_at_end()
        eventually(lambda: server_threads() == 0)
    eventually_refused(port)


def test_the_end_waits_for_no_answer_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "_CLOSE_SECONDS", 0.1)
    listener = listen_at(ListenAddress("127.0.0.1", 0))
    port = listener.getsockname()[1]
    release = threading.Event()
    server = HttpServer(listener, lambda _: partial(_wait_for, release), OwnHosts([]))
    with RawClient(port) as client:
        client.send(GOOD)
        eventually(lambda: server_threads() == 2)
        server.close()  # returns although it is not released
        release.set()


class Stream:
    """A response in parts; it notes whether it was begun, and whether it has ended."""

    def __init__(self, *chunks: bytes, then: threading.Event | None = None) -> None:
        self.chunks = chunks
        self.then = then
        self.is_begun = False
        self.is_ended = threading.Event()

    def answer(self, request: HttpRequest) -> HttpResponse | StreamedResponse:
        is_stream = request.path == "/good"
        return StreamedResponse(self.parts(), "text/plain") if is_stream else echo(request)

    def parts(self) -> Generator[bytes]:
        self.is_begun = True
        try:
            yield from self.chunks
            while self.then is not None and not self.then.wait(0.01):
                yield b"."
        finally:
            self.is_ended.set()


def _read_all(client: RawClient) -> bytes:
    read = b""
    while chunk := client.socket.recv(65_536):
        read += chunk
    return read


def test_a_stream_is_sent_part_by_part_and_ends_its_connection(serve: Serve) -> None:
    go_on = threading.Event()
    stream = Stream(b"one,", b"two", then=go_on)
    with RawClient(serve(stream.answer)) as client:
        client.send(GOOD + GOOD)
        head = client.read(has_body=False)
        assert (head.status, head.fields["Connection"]) == (200, "close")
        assert "Content-Length" not in head.fields
        go_on.set()
        assert (client.received + _read_all(client)).strip(b".") == b"one,two"
    assert stream.is_ended.is_set()


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS"])
def test_a_request_for_the_head_alone_begins_no_stream(serve: Serve, method: str) -> None:
    stream = Stream(b"x")
    with RawClient(serve(stream.answer)) as client:
        client.send(GOOD.replace(b"GET", method.encode()))
        assert client.read(has_body=False).status == 200
        assert client.is_at_end()
    assert not stream.is_begun


def test_a_stream_ends_when_its_client_is_gone(serve: Serve) -> None:
    stream = Stream(then=threading.Event())
    with RawClient(serve(stream.answer)) as client:
        client.send(GOOD)
        client.read(has_body=False)
    eventually(stream.is_ended.is_set)


def test_a_stream_ends_when_its_client_takes_nothing(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "REQUEST_SECONDS", 0.1)
    stream = Stream(*[bytes(10_000_000)] * 10)
    with RawClient(serve(stream.answer)) as client:
        client.send(GOOD)
        eventually(stream.is_ended.is_set)


def test_streams_are_not_pushed_out_by_other_clients(serve: Serve) -> None:
    go_on = threading.Event()
    stream = Stream(then=go_on)
    port = serve(stream.answer)
    with ExitStack() as clients:
        client = clients.enter_context(RawClient(port))
        client.send(GOOD)
        client.read(has_body=False)
        for _ in range(MOST_CONNECTIONS + 5):
            clients.enter_context(RawClient(port)).send(GOOD[:10])
        assert not stream.is_ended.is_set()
        go_on.set()
        eventually(stream.is_ended.is_set)


def test_a_stream_that_fails_ends_its_connection_alone(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    def failing() -> Generator[bytes]:
        yield b"x"
        raise RuntimeError("a secret")

    port = serve(lambda _: StreamedResponse(failing(), "text/plain"))
    for _ in range(2):
        with RawClient(port) as client:
            client.send(GOOD)
            assert _read_all(client).endswith(b"x")
    assert "a connection has failed" in caplog.text


def test_a_forked_child_keeps_no_socket_of_the_server(serve: Serve) -> None:
    port = serve(echo)
    with RawClient(port) as client:
        assert client.ask("/").status == 200
        assert _sockets_at(port) == 2
        if (child := os.fork()) == 0:
            os._exit(_sockets_at(port))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert client.ask("/").status == 200  # the parent goes on


def _sockets_at(port: int) -> int:
    """Return how many sockets of this process listen at *port*, or were accepted there."""
    found = psutil.Process().net_connections("tcp")
    return sum(getattr(one.laddr, "port", None) == port for one in found)


def _wait_for(release: threading.Event) -> HttpResponse:
    assert release.wait(PATIENCE_SECONDS * time_scale())
    return json_response(HTTPStatus.OK, {})


def _allow_descriptors(wanted: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
