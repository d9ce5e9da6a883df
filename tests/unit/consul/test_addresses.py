"""Names that stand for several addresses, for none, or for nothing in time."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest

from kip30.config import Address
from kip30_backends.consul.client.http import HttpConnection
from kip30_backends.consul.errors import UNSENT, RequestFailedError
from tests.unit.threads import no_threads

SECONDS = 1.0


@pytest.fixture
def silent() -> Iterator[int]:
    """Yield a port that a socket listens on, which accepts no more connections."""
    with ExitStack() as stack:
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(8):
            waiting = stack.enter_context(socket.socket())
            waiting.settimeout(0)
            waiting.connect_ex(listening.getsockname())
        yield listening.getsockname()[1]


@pytest.fixture
def until() -> float:
    return time.monotonic() + SECONDS


def _stands_for(monkeypatch: pytest.MonkeyPatch, *ports: int) -> None:
    """Resolve every name to one address for each of *ports*."""
    found = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", port)) for port in ports]

    def look(*_arguments: Any, flags: int = 0, **_more: Any) -> list[Any]:
        if flags & socket.AI_NUMERICHOST:
            raise socket.gaierror("a name")
        return found

    monkeypatch.setattr(socket, "getaddrinfo", look)


def _fails(until: float, host: str = "name") -> RequestFailedError:
    with pytest.raises(RequestFailedError) as raised:
        HttpConnection(Address(host, 1), None, until)
    assert raised.value.failure.status == UNSENT
    assert time.monotonic() < until + SECONDS / 2
    return raised.value


def test_all_addresses_have_one_deadline(
    monkeypatch: pytest.MonkeyPatch, silent: int, until: float
) -> None:
    _stands_for(monkeypatch, silent, silent, silent)
    _fails(until)


def test_an_address_behind_a_silent_one_is_reached(
    monkeypatch: pytest.MonkeyPatch, silent: int, until: float
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        _stands_for(monkeypatch, silent, listening.getsockname()[1])
        with closing(HttpConnection(Address("name", 1), None, until)):
            assert time.monotonic() < until


def test_a_name_that_is_not_resolved_in_time(monkeypatch: pytest.MonkeyPatch, until: float) -> None:
    over = threading.Event()

    def look(*_arguments: Any, flags: int = 0, **_more: Any) -> list[Any]:
        if not flags:
            over.wait(5 * SECONDS)
        raise socket.gaierror("no answer")

    monkeypatch.setattr(socket, "getaddrinfo", look)
    assert "no answer in time" in str(_fails(until))
    over.set()


@pytest.mark.parametrize("host", ["a..b", "x" * 70])
def test_an_invalid_host_name_is_reported(host: str, until: float) -> None:
    assert "is not a host name" in str(_fails(until, host))


def test_a_name_is_resolved_without_a_thread_if_none_is_to_be_had(
    monkeypatch: pytest.MonkeyPatch, until: float
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        _stands_for(monkeypatch, listening.getsockname()[1])
        with no_threads(), closing(HttpConnection(Address("name", 1), None, until)) as connection:
            assert connection.is_idle()
