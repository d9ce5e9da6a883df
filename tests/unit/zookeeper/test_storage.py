"""Several writes that travel as one."""

from collections.abc import Iterator

import pytest

from kip30 import BYTES
from kip30.driver import Backend
from kip30.driver.records import Condition, Write, new_nonce
from kip30.names import Key
from kip30_backends.zookeeper import ZookeeperBackend
from kip30_conformance.polling import time_scale
from kip30_conformance.servers import Ensemble, start
from tests.unit.clients import PATIENT, Open


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
    return current.client.progress
