"""The services that a client has claimed, and remembers."""

import pytest

from kip30.driver.records import Claim, HeldByOther, new_nonce
from kip30_backends.cassandra import CassandraBackend, election
from kip30_backends.cassandra.target_states import Service
from kip30_conformance.polling import time_scale
from tests.unit.clients import PATIENT, Open

WITHIN = 10
MOST = 3


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(election, "_MOST_KNOWN", MOST)


def test_the_services_used_last_are_known_without_data() -> None:
    known = election.KnownServices()
    for number in range(MOST):
        known.put(f"s{number}", Service(number, candidate="c", nonce="n", data=b"data"))
    assert known.get("s0") == Service(0, candidate="c", nonce="n")
    known.put("other", Service(9))
    assert [known.get(f"s{number}").epoch for number in range(MOST)] == [0, None, 2]
    known.forget("s0")
    known.forget("s0")
    assert known.get("s0") == Service()


def test_services_that_were_forgotten_are_claimed_as_before(open_client: Open) -> None:
    backend = open_client(**PATIENT).backend
    assert isinstance(backend, CassandraBackend)
    services = [f"s{number}" for number in range(2 * MOST)]
    first = {service: _claimed(backend, service) for service in services}
    for service, claim in first.items():
        assert isinstance(_claim(backend, service), HeldByOther)
        backend.election.release(service, claim).result(WITHIN * time_scale())
    for service in services:
        assert _claimed(backend, service).entry.version > first[service].entry.version
    driver = backend.election
    assert isinstance(driver, election.CassandraElection)
    assert len(driver._known._states) == MOST


def _claimed(backend: CassandraBackend, service: str) -> Claim:
    claim = _claim(backend, service)
    assert isinstance(claim, Claim)
    return claim


def _claim(backend: CassandraBackend, service: str) -> Claim | HeldByOther:
    claiming = backend.election.claim(service, "c", new_nonce(), b"data")
    return claiming.result(WITHIN * time_scale())
