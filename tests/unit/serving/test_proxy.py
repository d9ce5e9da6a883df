"""The page behind a real HAProxy, with the configuration of its document."""

import http.client
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest

from benchmarks.balancer.haproxy import free_port
from kip30.serving import http_server, live_overview
from kip30_conformance.polling import eventually, time_scale
from tests.snippets import snippets
from tests.unit.haproxy import haproxy

from .conftest import server_threads
from .raw_client import PATIENCE_SECONDS, RawClient
from .stored import Looked
from .test_page_server import BEARER, Page, serving

DOCUMENT = Path(__file__).parents[3] / "docs" / "serve.md"
HOST = {"Host": "status.example.com"}

pytestmark = pytest.mark.large  # where the gate runs there need not be HAProxy


class Proxied(NamedTuple):
    """A page, and the port of the proxy in front of it."""

    page: Page
    port: int
    timeout_seconds: float

    def connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(
            "127.0.0.1", self.port, timeout=PATIENCE_SECONDS * time_scale()
        )

    def status(self, path: str, fields: Mapping[str, str]) -> int:
        with closing(self.connection()) as connection:
            connection.request("GET", path, headers=fields)
            return connection.getresponse().status

    def is_up(self) -> bool:
        try:
            return self.status("/store/", HOST) == http.HTTPStatus.OK
        except OSError:
            return False


def of_document(port: int, server: int, timeout_seconds: float) -> str:
    (found,) = [one.text for one in snippets(DOCUMENT) if one.language == "haproxy"]
    changes = {
        r"bind :443 ssl .*": f"bind 127.0.0.1:{port}",
        r"127\.0\.0\.1:8030": f"127.0.0.1:{server}",
        r"60s": f"{round(1000 * timeout_seconds)}ms",
    }
    for pattern, text in changes.items():
        found, count = re.subn(pattern, text, found)
        assert count
    return found


@pytest.fixture
def proxied(
    looked: Looked, ended_threads: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Proxied]:
    del ended_threads  # after the server
    monkeypatch.setattr(live_overview, "COMMENT_SECONDS", 0.05)
    monkeypatch.setattr(http_server, "REQUEST_SECONDS", 0.2 * time_scale())
    timeout_seconds = 2 * time_scale()
    for page in serving(looked, hosts=["status.example.com"]):
        port = free_port()
        with haproxy(of_document(port, page.port, timeout_seconds), tmp_path):
            proxied = Proxied(page, port, timeout_seconds)
            eventually(proxied.is_up, what="the proxy is up")
            yield proxied


def test_requests_reach_the_page_below_the_prefix(proxied: Proxied) -> None:
    forwarded = {"X-Forwarded-For": "203.0.113.9", "X-Forwarded-Host": "evil.example.com"}
    with closing(proxied.connection()) as connection:
        for path in ("/store/", "/store/page.js", "/store/api/keys?namespace=a%2Fb&beginning=c"):
            connection.request("GET", path, headers={**HOST, **BEARER, **forwarded})
            response = connection.getresponse()
            assert response.status == http.HTTPStatus.OK
            assert b"evil" not in response.read()
        connection.request("GET", "/store", headers=HOST)
        response = connection.getresponse()
        assert (response.status, response.headers["Location"]) == (302, "/store/")
    assert proxied.status("/store/api/overview", HOST) == http.HTTPStatus.UNAUTHORIZED
    assert proxied.status("/store/", {"Host": "evil.example.com"}) == 421


def test_events_come_at_once_and_outlive_the_timeouts(proxied: Proxied) -> None:
    with closing(proxied.connection()) as connection:
        connection.request("GET", "/store/api/events", headers={**HOST, **BEARER})
        events = connection.getresponse()
        while events.readline() != b"event: overview\n":
            pass
        until = time.monotonic() + 2.5 * proxied.timeout_seconds
        while time.monotonic() < until:
            assert events.readline()
        proxied.page.looked.locator.group_membership("workers").join("w1", "")
        while b'"workers"' not in (line := events.readline()):
            assert line


def test_slow_clients_delay_no_other(proxied: Proxied) -> None:
    crowd = [RawClient(proxied.port) for _ in range(100)]
    for client in crowd:
        client.send(b"GET /store/api/overview HTTP/1.1\r\nHost: status.exam")
    assert proxied.status("/store/api/overview", {**HOST, **BEARER}) == http.HTTPStatus.OK
    for client in crowd:
        client.socket.close()


def test_a_connection_is_kept_when_the_server_has_ended_its_own(
    proxied: Proxied,
) -> None:
    with closing(proxied.connection()) as connection:
        for _ in range(3):
            connection.request("GET", "/store/", headers=HOST)
            response = connection.getresponse()
            assert (response.status, bool(response.read())) == (http.HTTPStatus.OK, True)
            eventually(lambda: server_threads() == 1, what="no connection is left")
            assert connection.sock  # that of the client is
