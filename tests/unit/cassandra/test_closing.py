"""Requests and claims that are under way when a client is closed."""

import time
from concurrent.futures import Future

import pytest

from kip30 import ClosedError, OutcomeUnknownError
from kip30.driver import Backend
from kip30.driver.records import Claim, Condition, Version, Write, new_nonce
from kip30.names import Key
from kip30_conformance.polling import eventually, time_scale
from kip30_conformance.servers import Link
from tests.unit.clients import Open

from .admin import Admin
from .conftest import OPERATION_SECONDS
from .test_lost_answers import PATIENT

WITHIN = 5
SECONDS = 1.0
A_MOMENT = 0.3


@pytest.fixture
def backend(link: Link, open_client: Open) -> Backend:
    return open_client(**link.settings(), **PATIENT).backend


def test_close_leaves_a_sent_write_unknown_and_other_requests_closed(
    backend: Backend, link: Link, open_client: Open
) -> None:
    other = open_client().storage()
    _put(backend, "before").result(WITHIN * time_scale())
    link.swallow_answers()
    sent, waits = _put(backend, "k"), _put(backend, "waits")
    read = backend.storage.read([Key("elsewhere", "k")])
    eventually(lambda: other.get("n/k"), what="it is done")
    backend.close()
    assert type(sent.exception(WITHIN * time_scale())) is OutcomeUnknownError
    assert type(waits.exception(WITHIN * time_scale())) is ClosedError
    assert type(read.exception(WITHIN * time_scale())) is ClosedError


def test_a_member_that_is_about_to_be_is_given_up(
    backend: Backend, link: Link, admin: Admin, namespace: str
) -> None:
    backend.membership.claim("g", "first", new_nonce(), b"").result(WITHIN * time_scale())
    link.delay(SECONDS)
    joins = backend.membership.claim("g", "m", new_nonce(), b"")
    eventually(lambda: len(_held(admin, namespace)) == 2, what="it is there")
    backend.close()
    assert not _held(admin, namespace)
    assert type(joins.exception(WITHIN * time_scale())) is ClosedError


def test_a_leader_that_is_about_to_be_is_given_up(
    backend: Backend, link: Link, admin: Admin, namespace: str
) -> None:
    link.delay(SECONDS)
    leads = backend.election.claim("s", "c", new_nonce(), b"")
    eventually(lambda: _held(admin, namespace), what="it is there")
    backend.close()
    assert not _held(admin, namespace)
    assert type(leads.exception(WITHIN * time_scale())) is ClosedError


def test_close_deletes_the_claims_that_a_lost_session_has_left(
    open_client: Open, admin: Admin, namespace: str
) -> None:
    backend = open_client(**PATIENT).backend
    claims = [
        backend.membership.claim("g", name, new_nonce(), b"").result(WITHIN * time_scale())
        for name in ("gone", "m", "n")
    ]
    leads = backend.election.claim("s", "c", new_nonce(), b"").result(WITHIN * time_scale())
    assert isinstance(leads, Claim)
    admin.tell(
        "DELETE FROM kip30.members WHERE root = %s AND in_group = 'g' AND id = 'gone' IF EXISTS",
        namespace,
    )
    eventually(lambda: not claims[0].lease.is_valid(), within=30, what="the session has ended")
    backend.membership.claim("g", "m", new_nonce(), b"").result(WITHIN * time_scale())
    assert len(_held(admin, namespace)) == 3
    backend.close()
    assert not _held(admin, namespace)


def test_close_ends_in_time_despite_unanswered_claims(link: Link, open_client: Open) -> None:
    backend = open_client(**link.settings()).backend
    link.swallow_answers()
    joins = backend.membership.claim("g", "m", new_nonce(), b"")
    late = [backend.membership.claim("g", f"m{n}", new_nonce(), b"") for n in range(3)]
    begun = time.monotonic()
    backend.close()
    assert time.monotonic() - begun < OPERATION_SECONDS + A_MOMENT * time_scale()
    assert type(joins.exception(WITHIN * time_scale())) is OutcomeUnknownError
    assert {type(one.exception(WITHIN * time_scale())) for one in late} == {ClosedError}


def _put(backend: Backend, name: str) -> Future[Version]:
    return backend.storage.write(Write(Key("n", name), new_nonce(), b"", Condition.ANY, None))


def _held(admin: Admin, namespace: str) -> list[object]:
    """Return the nonces of the members of ``g`` and of the leader of ``s``."""
    members = admin.tell(
        "SELECT nonce FROM kip30.members WHERE root = %s AND in_group = 'g'", namespace
    )
    leaders = admin.tell(
        "SELECT nonce FROM kip30.leaders WHERE root = %s AND service = 's'", namespace
    )
    return [row["nonce"] for row in (*members, *leaders) if row["nonce"] is not None]
