"""Sessions that the client has lost but the store has not: the next claim or a close ends them."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from typing import Any

import pytest

from kip30 import UnavailableError
from kip30.driver.records import Claim
from kip30_backends.consul import ConsulBackend
from kip30_conformance.polling import eventually
from kip30_conformance.servers import Ensemble, Link
from tests.unit.clients import Open, timeouts

from .admin import Admin

NONCE = "00" * 16


@pytest.fixture
def link(ensemble: Ensemble) -> Iterator[Link]:
    with ensemble.link() as one:
        yield one


@pytest.fixture
def loser(open_client: Open, link: Link) -> ConsulBackend:
    """Return a backend that has a member in the store, and has lost the session of it."""
    backend = open_client(**link.settings()).backend
    assert isinstance(backend, ConsulBackend)
    backend.membership.claim("g", "m", NONCE, b"").result()
    _lose(backend)
    return backend


def _lose(backend: ConsulBackend) -> str:
    """Lose the session, and return its id."""
    sessions = backend._resources.sessions
    session = sessions._current.known()
    assert session is not None
    sessions.mark_lost(session)
    return session.ident


def test_it_is_ended_when_the_client_closes(loser: ConsulBackend, admin: Admin) -> None:
    over = loser._resources.sessions._current._former
    assert over is not None
    assert over.ident in _there(admin)
    loser.close()
    assert over.ident not in _there(admin)
    assert not loser._resources.sessions._threads


def test_a_claim_that_was_never_sent_is_certainly_not_made(
    loser: ConsulBackend, link: Link
) -> None:
    link.swallow_answers()
    claim = loser.election.claim("s", "c", NONCE, b"")
    assert type(claim.exception()) is UnavailableError
    link.heal()
    assert isinstance(loser.election.claim("s", "c", NONCE, b"").result(), Claim)


def test_a_lost_session_is_ended_although_a_server_does_not_respond(
    ensemble: Ensemble, open_client: Open, link: Link, admin: Admin
) -> None:
    """Both addresses lead to one server, which has executed the requests twice in the end."""
    addresses = f"{link.settings()['plugin.consul.address']},{ensemble.nodes[0].address}"
    settings = {**link.settings(), "plugin.consul.address": addresses}
    backend = open_client(**settings).backend
    assert isinstance(backend, ConsulBackend)
    backend.membership.claim("g", "m", NONCE, b"").result()
    lost = _lose(backend)
    assert lost in _there(admin)
    link.swallow_answers()
    assert isinstance(backend.election.claim("s", "c", NONCE, b"").result(), Claim)
    assert lost not in _there(admin)
    link.heal()


def test_a_claim_that_a_restored_snapshot_brings_back_is_given_up_again(
    open_client: Open, admin: Admin
) -> None:
    """The session is there again, too, and its client goes on to renew it."""
    settings = timeouts(operation_seconds=3)
    holder, other = open_client(**settings).backend, open_client(**settings).backend
    lead = holder.election.claim("s", "c", NONCE, b"").result()
    member = holder.membership.claim("g", "m", NONCE, b"").result()
    kept = holder.membership.claim("g", "kept", NONCE, b"").result()
    assert isinstance(lead, Claim)
    snapshot = admin.tell_bytes("GET", "snapshot")
    holder.election.release("s", lead).result()
    holder.membership.release_many("g", [member])[0].result()
    admin.tell_bytes("PUT", "snapshot", snapshot)
    for take in (
        lambda: other.election.claim("s", "d", NONCE, b""),
        lambda: other.membership.claim("g", "m", NONCE, b""),
    ):
        eventually(partial(_is_taken, take), what="another client takes it")
    assert kept.lease.is_valid()


def _is_taken(take: Callable[[], Future[Any]]) -> bool:
    answer = take()
    return answer.exception() is None and isinstance(answer.result(), Claim)


def _there(admin: Admin) -> set[str]:
    return {one["ID"] for one in admin.sessions()}
