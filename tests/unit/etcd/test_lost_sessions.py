"""Sessions that the store has ended, and renewals that do not count."""

import shutil
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from kip30.driver.kit.futures import mapped
from kip30.driver.records import Claim, Kind, Target, new_nonce
from kip30_backends.etcd.client.channel import RANGE
from kip30_conformance.polling import eventually, time_scale
from kip30_conformance.servers import Ensemble, start
from tests.unit.clients import Open, opening, unused_namespace


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


def test_a_store_that_went_back_does_not_keep_what_was_given_up_since(tmp_path: Path) -> None:
    """The former state has the leader's key, on a lease that its client goes on to renew."""
    timeout = {"plugin.session.timeout.ms": round(6000 * time_scale())}
    with (
        start("etcd", folder=tmp_path) as servers,
        opening(servers, unused_namespace()) as open_one,
    ):
        node, former = servers.nodes[0], tmp_path / "former"
        holder, other = open_one(**timeout).backend, open_one(**timeout).backend
        leader = holder.election.claim("s", "c", new_nonce(), b"").result()
        assert isinstance(leader, Claim)
        node.kill()
        shutil.copytree(node._plan.data, former)
        node.start()
        servers.await_ready()
        eventually(lambda: _is_done(holder.election.release("s", leader)), what="it is released")
        node.kill()
        shutil.rmtree(node._plan.data)
        former.rename(node._plan.data)
        node.start()
        servers.await_ready()
        eventually(
            lambda: _is_done(other.election.claim("s", "d", new_nonce(), b""), Claim),
            within=30,
            what="another candidate leads",
        )


def _is_done(answer: Future[Any], kind: type = object) -> bool:
    return answer.exception() is None and isinstance(answer.result(), kind)


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
