"""Outcomes of requests that are under way when their backend closes."""

from kip30 import ClosedError, OutcomeUnknownError
from kip30.driver.records import Condition, Write
from kip30.names import Key
from kip30_backends.consul import ConsulBackend
from kip30_conformance.polling import eventually
from kip30_conformance.servers import Ensemble
from tests.unit.clients import Open

KEY = Key("closing", "k")
PUT = Write(KEY, "00" * 16, b"v", Condition.ANY)
PATIENT = {"plugin.session.timeout.ms": 12_000, "plugin.operation.timeout.ms": 6000}


def test_a_write_that_was_sent_may_have_been_done(ensemble: Ensemble, open_client: Open) -> None:
    backend = open_client(**PATIENT).backend
    assert isinstance(backend, ConsulBackend)
    connections = backend._resources.calls.endpoints.current.http.connections
    with ensemble.frozen():
        write, read = backend.storage.write(PUT), backend.storage.read([KEY])
        assert not write.done()
        assert not read.done()
        eventually(lambda: len(connections._open) > 1, what="both are sent")
        backend.close()
        assert type(write.exception()) is OutcomeUnknownError
        assert type(read.exception()) is ClosedError
    assert type(backend.storage.write(PUT).exception()) is ClosedError
