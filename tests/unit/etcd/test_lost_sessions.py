"""Sessions that the store has ended, and renewals that do not count."""

from concurrent.futures import Future
from typing import Any

import pytest

from kip30.driver.kit.futures import mapped
from kip30.driver.records import Claim, Kind, Target, new_nonce
from kip30_backends.etcd.client.channel import RANGE
from kip30_conformance.polling import eventually
from kip30_conformance.servers import Ensemble
from tests.unit.clients import Open


def test_a_claim_of_an_ended_session_is_released_without_a_request(
    open_client: Open, ensemble: Ensemble
) -> None:
    backend: Any = open_client().backend
    member = backend.membership.claim("g", "m", new_nonce(), b"").result()
    leader = backend.election.claim("s", "c", new_nonce(), b"").result()
    assert isinstance(leader, Claim)
    backend.faults.expire_session()
    backend.membership.claim("g", "other", new_nonce(), b"").result()
    assert not leader.lease.is_valid()
    with ensemble.frozen():
        backend.membership.release("g", member).result()
        backend.election.release("s", leader).result()
    groups = backend.observe.snapshot(Target(Kind.GROUP, "g")).result()
    assert groups.entries.keys() == {"other"}
    assert not backend.observe.snapshot(Target(Kind.SERVICE, "s")).result().entries


def test_a_renewal_counts_only_if_a_read_in_the_same_term_follows(
    open_client: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend: Any = open_client(**{"plugin.session.timeout.ms": 6000}).backend
    lease = backend.membership.claim("g", "m", new_nonce(), b"").result().lease
    calls = backend._resources.calls
    send, refused = calls.send, list[object]()

    def in_another_term(ask: Any, *arguments: Any) -> Future[Any]:
        answer = send(ask, *arguments)
        return mapped(answer, after_an_election) if ask.path == RANGE else answer

    def after_an_election(answer: Any) -> Any:
        answer.header.raft_term += 1
        refused.append(answer)
        return answer

    with monkeypatch.context() as patch:
        patch.setattr(calls, "send", in_another_term)
        eventually(lambda: refused, what="a renewal has been sent")
        before = lease.deadline
        eventually(lambda: len(refused) > 3, what="it is sent again")
        assert lease.deadline == before
    eventually(lambda: lease.deadline > before, what="the lease is renewed")
    assert lease.is_valid()


def test_the_log_of_a_lost_session_has_the_last_error_of_a_renewal(
    open_client: Open, ensemble: Ensemble, caplog: pytest.LogCaptureFixture
) -> None:
    with ensemble.link() as link:
        client = open_client(**link.settings())
        assert client.leader_election("s").nominate("c", "")
        link.cut()
        lost = eventually(lambda: _records(caplog), within=30, what="the session is lost")
    (record,) = lost
    assert record.kip30_renewal_error
    assert record.kip30_reason == f"not renewed in time: {record.kip30_renewal_error}"
    assert record.getMessage() == f"session lost: {record.kip30_reason}"


def _records(caplog: pytest.LogCaptureFixture) -> list[Any]:
    return [one for one in caplog.records if one.name == "kip30.sessions"]
