"""Late arrivals: responses to claims, and requests that no client counts on any more."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from kip30 import MemberExistsError, PluginLocator
from kip30.driver.kit.futures import Completed
from kip30.driver.kit.operation import Steps, begun
from kip30.driver.records import (
    Claim,
    Condition,
    Entry,
    Fence,
    HeldByOther,
    Write,
    new_nonce,
)
from kip30.names import Key
from kip30_backends.cassandra import CassandraBackend
from kip30_backends.cassandra.session import HeldClaim, Session, Sessions
from kip30_conformance.polling import eventually, time_scale
from tests.unit.clients import Open

from .admin import Admin
from .rows import row

WITHIN = 10
_DELETE = "DELETE FROM kip30.members WHERE root = %s AND in_group = 'g' AND id = %s IF EXISTS"
_UPDATE = (
    "UPDATE kip30.members USING TTL 4 SET nonce = %s, data = 0x"
    " WHERE root = %s AND in_group = 'g' AND id = 'm' IF nonce = %s"
)


@pytest.fixture
def backend(open_client: Open) -> CassandraBackend:
    return backend_of(open_client())


def backend_of(client: PluginLocator) -> CassandraBackend:
    backend = client.backend
    assert isinstance(backend, CassandraBackend)
    return backend


def test_a_term_whose_answer_came_late_has_its_fences(
    backend: CassandraBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = _led(backend, "a")
    _write(backend, first)
    backend.election.release("s", first).result(WITHIN * time_scale())
    sessions = backend._resources.claims.sessions
    monkeypatch.setattr(sessions, "holds", _after_rounds(sessions, 2))
    second = _led(backend, "b")
    assert second.entry.version > first.entry.version
    _write(backend, second)


def test_an_update_that_arrives_after_a_renewal_is_ours(
    backend: CassandraBackend, admin: Admin, namespace: str
) -> None:
    claim = _joined(backend, "m")
    late = Entry(claim.entry.version, new_nonce(), b"late")
    claim.handle.doubtful[late.nonce] = late  # as after an update without an answer
    _renewed(claim)
    _overwrite(admin, namespace, claim.entry.nonce, late.nonce)
    _renewed(claim)
    backend.membership.release("g", claim).result(WITHIN * time_scale())
    assert row(admin, namespace) is None
    _joined(backend, "m")


def test_claims_left_by_an_ended_session_do_not_block_new_claims(
    backend: CassandraBackend, admin: Admin, namespace: str
) -> None:
    left, gone, leads = _joined(backend, "m"), _joined(backend, "gone"), _led(backend, "a")
    admin.tell(_DELETE, namespace, "gone")
    eventually(lambda: not gone.lease.is_valid(), what="the session has ended")
    assert row(admin, namespace)
    again = _joined(backend, "m")
    assert again.entry.version > left.entry.version
    assert _led(backend, "b").entry.version > leads.entry.version


@pytest.mark.parametrize("together", [False, True])
def test_a_late_release_of_a_member_keeps_a_later_claim_with_its_nonce(
    backend: CassandraBackend, admin: Admin, namespace: str, *, together: bool
) -> None:
    nonce = new_nonce()
    former, kept = _joined(backend, "m", nonce), _joined(backend, "kept")
    backend.membership.release("g", former).result(WITHIN * time_scale())
    present = _joined(backend, "m", nonce)
    if together:
        late = backend.membership.release_many("g", [former, kept])
    else:
        late = [backend.membership.release("g", former)]
    for one in late:
        one.result(WITHIN * time_scale())
    found = row(admin, namespace)
    assert found is not None
    assert found["version"] == present.entry.version.major
    backend.membership.release("g", present).result(WITHIN * time_scale())
    assert row(admin, namespace) is None


def test_a_late_release_of_a_leader_keeps_a_later_term_with_its_nonce(
    backend: CassandraBackend,
) -> None:
    nonce = new_nonce()
    former = _led(backend, "a", nonce)
    backend.election.release("s", former).result(WITHIN * time_scale())
    present = _led(backend, "a", nonce)
    assert present.entry.version > former.entry.version
    backend.election.release("s", former).result(WITHIN * time_scale())
    _write(backend, present)
    assert isinstance(_claimed(backend, "b", new_nonce()), HeldByOther)


def test_a_claim_with_the_nonce_of_a_former_session_is_refused_to_others(
    backend: CassandraBackend,
) -> None:
    member, leader = new_nonce(), new_nonce()
    former, led = _joined(backend, "m", member), _led(backend, "a", leader)
    sessions = backend._resources.claims.sessions
    session = sessions.current()
    sessions._end(session, "not renewed in time")
    _joined(backend, "other")  # begins the next session, so that the releases find no session
    backend.membership.release("g", former).result(WITHIN * time_scale())
    backend.election.release("s", led).result(WITHIN * time_scale())
    present, term = _joined(backend, "m", member), _led(backend, "a", leader)
    with pytest.raises(MemberExistsError):
        _joined(backend, "m")
    assert isinstance(_claimed(backend, "b", new_nonce()), HeldByOther)
    assert present.lease.is_valid()
    _write(backend, term)


def test_a_member_id_in_use_is_refused_to_every_client(
    backend: CassandraBackend, open_client: Open
) -> None:
    _joined(backend, "m")
    with pytest.raises(MemberExistsError):
        _joined(backend_of(open_client()), "m")
    with pytest.raises(MemberExistsError):
        _joined(backend, "m")


def test_a_join_that_is_tried_again_holds_up_nothing_else_of_the_group(
    backend: CassandraBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    done, refused = list[str](), Future[Claim | None]()
    membership: Any = backend.membership
    claim = membership._claim

    def attempt(wanted: object) -> Steps[Claim | None]:
        done.append("join")
        result: Claim | None = yield refused if len(done) == 1 else begun(claim(wanted))
        return result

    def renew(_until: float) -> Steps[None]:
        done.append("renew")
        yield Completed(None)

    monkeypatch.setattr(membership, "_claim", attempt)
    joining = membership.claim("g", "m", new_nonce(), b"")
    renewed = backend._resources.claims.in_turn(("members", "g"), renew)
    refused.set_result(None)
    renewed.result(WITHIN * time_scale())
    joining.result(WITHIN * time_scale())
    assert done[:3] == ["join", "renew", "join"]


def _joined(backend: CassandraBackend, member_id: str, nonce: str = "") -> Claim:
    claiming = backend.membership.claim("g", member_id, nonce or new_nonce(), b"")
    return claiming.result(WITHIN * time_scale())


def _renewed(claim: Claim) -> None:
    """Wait until *claim* has been renewed twice, by rounds that began from now on."""
    before = claim.lease.deadline
    eventually(lambda: claim.lease.deadline > before + 2, what="it is renewed")
    assert claim.lease.is_valid()


def _overwrite(admin: Admin, namespace: str, old: str, new: str) -> None:
    """Write what an update that arrives now would write."""
    (answer,) = admin.tell(_UPDATE, new, namespace, old)
    assert answer["[applied]"]


def _after_rounds(sessions: Sessions, rounds: int) -> Callable[[Session, HeldClaim], bool]:
    """Return `Sessions.holds`, with an empty round of renewals before its first *rounds* calls."""
    holds, left = sessions.holds, iter(range(rounds))

    def late(session: Session, holding: HeldClaim) -> bool:
        if next(left, None) is not None:
            sessions._prolong(session, sessions._context.clock.now())
        return holds(session, holding)

    return late


def _led(backend: CassandraBackend, candidate: str, nonce: str = "") -> Claim:
    claim = _claimed(backend, candidate, nonce or new_nonce())
    assert isinstance(claim, Claim)
    return claim


def _claimed(backend: CassandraBackend, candidate: str, nonce: str) -> Claim | HeldByOther:
    claiming = backend.election.claim("s", candidate, nonce, b"")
    return claiming.result(WITHIN * time_scale())


def _write(backend: CassandraBackend, claim: Claim) -> None:
    """Write as the leader that holds *claim*."""
    fence = Fence("s", claim.entry.version.major)
    write = Write(Key("n", "k"), new_nonce(), b"", Condition.ANY, fence)
    backend.storage.write(write).result(WITHIN * time_scale())
