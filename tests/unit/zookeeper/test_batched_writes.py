"""Several writes that travel as one."""

from collections.abc import Iterator

import pytest

from kip30 import BYTES
from kip30.driver import Backend
from kip30.driver.records import Condition, Write, new_nonce
from kip30.names import Key
from kip30_backends.zookeeper import ZookeeperBackend
from kip30_backends.zookeeper.client.messages import MultiRead
from kip30_conformance.polling import time_scale
from kip30_conformance.servers import Ensemble, start
from tests.unit.clients import PATIENT, Open

_VALUES, _LARGE = 350, 64 * 1024
_MOST_BYTES = 4 * 1024 * 1024


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    """Yield a server of this module alone, because its tests count writes, and stop it."""
    with start("zookeeper", folder=tmp_path_factory.mktemp("storage")) as servers:
        yield servers


def test_a_cancelled_write_does_not_cancel_the_others_in_its_batch(
    open_client: Open, ensemble: Ensemble
) -> None:
    backend = open_client().backend
    assert isinstance(backend, ZookeeperBackend)
    writes = [Write(Key("n", name), new_nonce(), b"", Condition.ABSENT) for name in "abc"]
    with ensemble.frozen():
        given_up, *others = backend.storage.write_many(writes)
        assert given_up.cancel()
    for other in others:
        other.result(5 * time_scale())


def test_large_values_are_read_in_several_requests(
    open_client: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server builds each response in its memory."""
    storage = open_client(**PATIENT).storage(BYTES)
    values = {f"large/{number:03}": bytes(_LARGE) for number in range(_VALUES)}
    storage.put_many(values)
    sizes: list[int] = []
    serialize = MultiRead.serialize

    def counting(request: MultiRead) -> bytes:
        sizes.append(len(request.operations))
        return serialize(request)

    monkeypatch.setattr(MultiRead, "serialize", counting)
    assert storage.fetch_many(values).result() == values
    assert sum(sizes) == _VALUES
    first, *later = sizes
    assert first < _VALUES
    assert max(later) * _LARGE <= _MOST_BYTES


def test_new_namespaces_are_made_together(open_client: Open) -> None:
    client = open_client(**PATIENT)
    storage = client.storage(BYTES)
    storage.put("k", b"")
    before = _zxid(client.backend)
    storage.put_many({f"n{number}/k": b"" for number in range(200)})
    assert _zxid(client.backend) - before < 300  # each namespace is one, each refusal too


def _zxid(backend: Backend) -> int:
    assert isinstance(backend, ZookeeperBackend)
    current = backend._resources.sessions.current
    assert current is not None
    return current.connection.progress
