"""A proxy between a client and the servers that responds in their place."""

import http.client
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from typing_extensions import override

from kip30 import OutcomeUnknownError
from kip30.config import Written
from kip30_conformance.polling import eventually, time_scale
from kip30_conformance.servers import Ensemble
from tests.unit.clients import Open


class Between(ThreadingHTTPServer):
    """Passes requests on to the server at *port*, except those that it answers itself."""

    daemon_threads = True

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.port = port
        self.answers: dict[str, tuple[int, bytes]] = {}
        self.asked: list[str] = []


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Between

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        self.server.asked.append(self.path)
        own = [one for part, one in self.server.answers.items() if part in self.path]
        status, told, index = (*own[0], None) if own else self._passed_on(body)
        self.send_response(status)
        if index is not None:
            self.send_header("X-Consul-Index", index)
        self.send_header("Content-Length", str(len(told)))
        self.end_headers()
        self.wfile.write(told)

    do_PUT = do_GET  # noqa: N815  the name that http.server looks for

    @override
    def log_message(self, *_arguments: Any) -> None:
        """Log nothing."""

    def _passed_on(self, body: bytes) -> tuple[int, bytes, str | None]:
        with closing(http.client.HTTPConnection("127.0.0.1", self.server.port)) as connection:
            connection.request(self.command, self.path, body)
            answer = connection.getresponse()
            return answer.status, answer.read(), answer.getheader("X-Consul-Index")


@contextmanager
def _between(port: int) -> Iterator[Between]:
    with Between(port) as one:
        thread = threading.Thread(target=one.serve_forever, args=[0.05])
        thread.start()
        yield one
        one.shutdown()
        thread.join()


@pytest.fixture
def between(ensemble: Ensemble) -> Iterator[Between]:
    with _between(ensemble.nodes[0].port) as one:
        yield one


@pytest.fixture
def through(between: Between) -> dict[str, Written]:
    return {"plugin.consul.address": f"127.0.0.1:{between.server_address[1]}"}


@pytest.mark.parametrize("part", ["session/renew", "session/info"])
def test_only_consul_ends_a_session(
    open_client: Open, between: Between, through: dict[str, Written], part: str
) -> None:
    client = open_client(**{**through, "plugin.session.timeout.ms": 6000})
    member = client.group_membership("g").join("m", "")
    between.answers[part] = (404, b"<html>no such page</html>")
    asked = len(between.asked)
    eventually(lambda: sum(part in one for one in between.asked[asked:]) > 2)
    del between.answers[part]
    asked = len(between.asked)
    eventually(lambda: sum("session/renew" in one for one in between.asked[asked:]) > 1)
    assert member.is_valid()


def test_a_session_is_seen_to_be_there_before_it_is_renewed(
    open_client: Open, between: Between, through: dict[str, Written]
) -> None:
    # A session that ends while Consul stands still is not replaced before something is claimed.
    open_client(**{**through, "plugin.session.timeout.ms": round(4000 * time_scale())})
    eventually(lambda: sum("session/renew" in one for one in between.asked) > 2)
    kinds = [one.split("/")[3] for one in between.asked if "/info/" in one or "/renew/" in one]
    assert kinds[:6] == ["info", "renew"] * 3


@pytest.mark.parametrize("body", [b"null", b"[]", b'"x"', b"{}x", b'{"Errors":5}'])
def test_a_write_whose_answer_is_not_of_consul(
    open_client: Open, between: Between, through: dict[str, Written], body: bytes
) -> None:
    client = open_client(**through)
    between.answers["v1/txn"] = (200, body)
    with pytest.raises(OutcomeUnknownError):
        client.storage().put("k", "v")
