"""Blocking queries that are interrupted: while they connect, while they wait, and in between."""

import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from kip30.config import Address
from kip30_backends.consul import ConsulSettings
from kip30_backends.consul.blocking_query import (
    AnswerCallback,
    BlockingQuery,
    QueryConnection,
    QueryWait,
)
from kip30_backends.consul.client.endpoints import Agent, Endpoints
from kip30_backends.consul.client.http import Answer
from kip30_backends.consul.errors import RequestFailedError
from kip30_backends.consul.transactions import index_of, target
from kip30_conformance.polling import eventually, time_scale
from kip30_conformance.servers import Ensemble

from .admin import Admin

SECONDS = 5.0
SOON = SECONDS
PATIENCE = QueryWait(wait=20 * SOON * time_scale(), answer=4 * SOON * time_scale())
NAME = "slow.invalid"


class Resolver:
    """Resolves `NAME` once the test allows it."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.may_answer = threading.Event()
        self._look = socket.getaddrinfo

    def __call__(self, host: str, port: int, *arguments: int, **more: int) -> list[Any]:
        if host == NAME:
            if more.get("flags", 0) & socket.AI_NUMERICHOST:
                raise socket.gaierror("a name")
            self.asked.set()
            self.may_answer.wait(2 * SOON * time_scale())
            host = "127.0.0.1"
        return self._look(host, port, *arguments, **more)


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> Resolver:
    one = Resolver()
    monkeypatch.setattr(socket, "getaddrinfo", one)
    return one


@pytest.fixture
def endpoints(ensemble: Ensemble) -> Iterator[Endpoints]:
    """Yield a server under two names, of which the first is resolved slowly."""
    addresses = [Address(host, ensemble.nodes[0].port) for host in (NAME, "127.0.0.1")]
    one = Endpoints(
        [Agent(address, ConsulSettings(), SOON * time_scale()) for address in addresses]
    )
    yield one
    one.close()


@pytest.fixture
def waiting(admin: Admin, namespace: str) -> str:
    """Return the target of a query that is not answered before something changes."""
    admin.put(f"{namespace}/k", b"v")
    index = admin.get(f"{namespace}/k")["ModifyIndex"]
    return target(f"{namespace}/k", f"&index={index}&wait={round(PATIENCE.wait)}s")


@contextmanager
def _asking(connection: QueryConnection, wanted: str) -> Iterator[Future[Answer]]:
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(connection.ask, wanted, PATIENCE)
        try:
            yield future
        finally:
            connection.interrupt()
            pool.submit(connection.let_go).result()


def _fails_soon(future: Future[Answer]) -> None:
    assert type(future.exception(SOON * time_scale())) is RequestFailedError


def _open(endpoints: Endpoints) -> int:
    return sum(len(agent.http.connections._open) for agent in endpoints._agents)


def test_an_interruption_while_it_connects(
    endpoints: Endpoints, resolver: Resolver, waiting: str
) -> None:
    connection = QueryConnection(endpoints)
    with _asking(connection, waiting) as future:
        assert resolver.asked.wait(SOON * time_scale())
        connection.interrupt()
        resolver.may_answer.set()
        _fails_soon(future)
        assert not _open(endpoints)
    assert endpoints.current.server.startswith(NAME), "which is no reason to leave it"


def test_an_interruption_before_it_is_asked(endpoints: Endpoints, waiting: str) -> None:
    endpoints.leave(endpoints.current)
    connection = QueryConnection(endpoints)
    connection.interrupt()
    with _asking(connection, waiting) as future:
        _fails_soon(future)


def test_an_interruption_fails_only_the_next_request(endpoints: Endpoints, waiting: str) -> None:
    endpoints.leave(endpoints.current)
    connection = QueryConnection(endpoints)
    connection.interrupt()
    with pytest.raises(RequestFailedError):
        connection.ask(waiting, PATIENCE)
    assert index_of(connection.ask(waiting.partition("&")[0], PATIENCE)) > 0
    connection.let_go()


def test_there_and_back_while_it_connects(
    endpoints: Endpoints, resolver: Resolver, waiting: str
) -> None:
    """The server that was asked last is in use, but it is not the one being connected to."""
    slow = endpoints.current
    endpoints.leave(slow)
    plain = endpoints.current
    connection = QueryConnection(endpoints)
    connection.ask(waiting.partition("&")[0], PATIENCE)
    endpoints.leave(plain)
    endpoints.on_move = connection.move
    with _asking(connection, waiting) as future:
        assert resolver.asked.wait(SOON * time_scale())
        endpoints.leave(slow)
        assert endpoints.current is plain
        resolver.may_answer.set()
        _fails_soon(future)


@contextmanager
def _following(endpoints: Endpoints, url: str, hear: AnswerCallback) -> Iterator[BlockingQuery]:
    """Yield a query whose thread the caller starts."""
    one = BlockingQuery(QueryConnection(endpoints), url, PATIENCE, lambda: hear)
    try:
        yield one
    finally:
        one.close()
        one.thread.join(SOON * time_scale())
        assert not one.thread.is_alive()


def test_a_follower_is_closed_while_it_connects(
    endpoints: Endpoints, resolver: Resolver, namespace: str
) -> None:
    heard: list[Answer] = []
    with _following(endpoints, target(f"{namespace}/k"), heard.append) as query:
        query.thread.start()
        assert resolver.asked.wait(SOON * time_scale())
        query.close()
        resolver.may_answer.set()
    assert not heard
    assert not _open(endpoints)


@pytest.mark.parametrize(
    ("end", "times"), [(BlockingQuery.notify_again, 2), (BlockingQuery.close, 1)]
)
def test_a_follower_is_interrupted_while_it_tells(
    endpoints: Endpoints, namespace: str, end: Callable[[BlockingQuery], None], times: int
) -> None:
    endpoints.leave(endpoints.current)
    heard: list[Answer] = []

    def hear(answer: Answer) -> None:
        heard.append(answer)
        if len(heard) == 1:
            end(query)

    with _following(endpoints, target(f"{namespace}/k"), hear) as query:
        query.thread.start()
        eventually(lambda: len(heard) == times, within=SECONDS)
    assert len(heard) == times
