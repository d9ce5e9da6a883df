"""The number of connections that are kept: as many as there is use for."""

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from kip30.config import Address
from kip30_backends.consul import ConsulSettings
from kip30_backends.consul.client.endpoints import Adapter, Agent, Endpoints
from kip30_conformance.polling import eventually
from kip30_conformance.servers import Ensemble
from tests.unit.clients import connections_to

from .admin import Admin

AT_ONCE = 8
SECONDS = 10.0


@pytest.fixture
def adapter(ensemble: Ensemble) -> Iterator[Adapter]:
    address = Address("127.0.0.1", ensemble.nodes[0].port)
    one = Adapter(address, ConsulSettings(), SECONDS)
    yield one
    one.close()


def _ask(adapter: Adapter) -> None:
    assert adapter.get(lambda answer: answer.code, "/v1/status/leader") == 200


def _ask_at_once(adapter: Adapter) -> None:
    threads = [threading.Thread(target=_ask, args=[adapter]) for _ in range(AT_ONCE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _open(ensemble: Ensemble) -> int:
    """Return how many connections this process has to the server."""
    return connections_to(ensemble.nodes[0].port)


def test_one_after_the_other_takes_one(adapter: Adapter, ensemble: Ensemble) -> None:
    before = _open(ensemble)
    for _ in range(20):
        _ask(adapter)
    assert _open(ensemble) == before + 1


def test_those_of_a_rush_are_given_up(adapter: Adapter, ensemble: Ensemble) -> None:
    before = _open(ensemble)

    def several_are_there() -> bool:
        _ask_at_once(adapter)
        return _open(ensemble) > before + 1

    def one_is_left() -> bool:
        _ask(adapter)
        return _open(ensemble) == before + 1

    eventually(several_are_there)
    eventually(one_is_left)


def test_nothing_is_open_after_the_end(adapter: Adapter, ensemble: Ensemble) -> None:
    before = _open(ensemble)
    _ask_at_once(adapter)
    adapter.close()
    assert _open(ensemble) == before


def test_none_is_kept_to_a_server_that_was_left(
    ensemble: Ensemble, admin: Admin, namespace: str
) -> None:
    address = Address("127.0.0.1", ensemble.nodes[0].port)
    agents = [Agent(address, ConsulSettings(), SECONDS) for _ in range(2)]
    endpoints, first = Endpoints(agents), agents[0].http
    with closing(endpoints):
        before = _open(ensemble)
        eventually(lambda: _is_rushed(first), what="several are kept")
        with _waiting(first, admin, namespace) as waiting:
            endpoints.leave(agents[0])
            assert len(first.connections._open) == 1
            assert waiting.is_alive(), "and goes on"
        assert _open(ensemble) == before
        _ask(first)
        assert _open(ensemble) == before
        endpoints.leave(agents[1])
        _ask(first)
        assert _open(ensemble) == before + 1


def _is_rushed(adapter: Adapter) -> bool:
    _ask_at_once(adapter)
    return len(adapter.connections._idle) > 1


@contextmanager
def _waiting(adapter: Adapter, admin: Admin, namespace: str) -> Iterator[threading.Thread]:
    """Yield the thread of a request that waits for a change, made at the end of the with-block."""
    admin.put(f"{namespace}/k", b"v")
    query = {"index": admin.get(f"{namespace}/k")["ModifyIndex"], "wait": f"{SECONDS}s"}
    codes: list[int] = []

    def ask() -> None:
        codes.append(adapter.get(lambda answer: answer.code, f"/v1/kv/{namespace}/k", query))

    thread = threading.Thread(target=ask)
    idle = len(adapter.connections._idle)
    thread.start()
    eventually(lambda: len(adapter.connections._idle) < idle, what="it has a connection")
    try:
        yield thread
    finally:
        admin.put(f"{namespace}/k", b"w")
        thread.join()
    assert codes == [200]
