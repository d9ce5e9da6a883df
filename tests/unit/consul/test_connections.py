"""How many connections are kept: as many as there is use for."""

import threading
from collections.abc import Iterator

import psutil
import pytest

from kip30.config import Address
from kip30_backends.consul import ConsulSettings
from kip30_backends.consul.library import Adapter
from kip30_conformance.patience import eventually
from kip30_conformance.servers import Ensemble

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
    port = ensemble.nodes[0].port
    connections = psutil.Process().net_connections("tcp")
    return sum(bool(one.raddr) and one.raddr.port == port for one in connections)


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
