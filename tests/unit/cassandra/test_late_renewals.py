"""Renewals that arrive late, and those whose answer is lost."""

from collections.abc import Callable, Sequence

import pytest

from kip30 import PluginLocator
from kip30.driver.records import Claim, new_nonce
from kip30_backends.cassandra import CassandraBackend
from kip30_backends.cassandra.client.connections import Row
from kip30_backends.cassandra.errors import Failure
from kip30_conformance.polling import eventually, time_scale
from tests.unit.clients import Open

Send = Callable[..., None]
Make = Callable[[CassandraBackend], Sequence[Claim]]

WITHIN = 10
MEMBERS = 3


class Renewals:
    """Sends everything, keeps what was sent, and can lose an answer."""

    def __init__(self, send: Send) -> None:
        self.lose_answer = False
        self.sent = list[Callable[[Send], None]]()
        self._send = send

    def send(self, statement: object, node: object, answered: Send, failed: Send) -> None:
        def lose(_: Sequence[Row]) -> None:
            failed(Failure("ConnectionShutdown", "lost on its way"))

        def again(hear: Send) -> None:
            self._send(statement, node, hear, failed)

        self.sent.append(again)
        lost, self.lose_answer = self.lose_answer, False
        self._send(statement, node, lose if lost else answered, failed)


def members(backend: CassandraBackend) -> Sequence[Claim]:
    joining = [
        backend.membership.claim("g", f"m{number}", new_nonce(), b"") for number in range(MEMBERS)
    ]
    return [one.result(WITHIN * time_scale()) for one in joining]


def member(backend: CassandraBackend) -> Sequence[Claim]:
    return [backend.membership.claim("g", "m", new_nonce(), b"").result(WITHIN * time_scale())]


def leader(backend: CassandraBackend) -> Sequence[Claim]:
    claim = backend.election.claim("s", "c", new_nonce(), b"").result(WITHIN * time_scale())
    assert isinstance(claim, Claim)
    return [claim]


@pytest.fixture
def client(open_client: Open) -> PluginLocator:
    return open_client()


@pytest.fixture
def backend(client: PluginLocator) -> CassandraBackend:
    backend = client.backend
    assert isinstance(backend, CassandraBackend)
    return backend


@pytest.fixture(params=[member, members, leader])
def claim(request: pytest.FixtureRequest, backend: CassandraBackend) -> Claim:
    """Return one of what is held; nothing else is asked of the store but to renew that."""
    make: Make = request.param
    return make(backend)[0]


@pytest.fixture
def renewals(claim: Claim, backend: CassandraBackend, monkeypatch: pytest.MonkeyPatch) -> Renewals:
    _renewed(claim)
    connections = backend._resources.connections
    renewals = Renewals(connections.send)
    monkeypatch.setattr(connections, "send", renewals.send)
    return renewals


def test_an_older_one_does_not_follow_a_newer_one(claim: Claim, renewals: Renewals) -> None:
    _renewed(claim)
    _renewed(claim)
    late, told = renewals.sent[0], list[Sequence[Row]]()
    late(told.append)
    eventually(lambda: told, what="it has arrived")
    assert not told[0][0]["[applied]"]
    _renewed(claim)


def test_one_whose_answer_is_lost_is_done(claim: Claim, renewals: Renewals) -> None:
    renewals.lose_answer = True
    before = len(renewals.sent)
    _renewed(claim)
    assert len(renewals.sent) == before + 2


def _renewed(claim: Claim) -> None:
    """Wait until the lease of *claim* goes on."""
    before = claim.lease.deadline
    eventually(lambda: claim.lease.deadline > before, what="it is renewed")
    assert claim.lease.is_valid()
