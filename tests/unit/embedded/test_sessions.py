"""Sessions that end and begin: the cost of waiting, and leftovers that the next one finds."""

import threading
from typing import Any

from kip30.driver.records import Claim, Kind, Target, new_nonce
from kip30_backends.embedded import EmbeddedBackend
from kip30_conformance.polling import eventually, throughout, time_scale
from tests.embedded_faults import faults_of

_RENEWAL_THREAD = "kip30-embedded-renewal"


def test_a_claim_of_an_ended_session_is_released_without_a_write(
    open_backend: Any, locked: Any, took: Any
) -> None:
    backend = open_backend()
    member, leader = _claims(backend)
    _lose_session(backend, member)
    backend.membership.claim("g", "other", "n2", b"").result()
    with locked():
        assert took(lambda: backend.membership.release("g", member).result()) < 1
        assert took(lambda: backend.election.release("s", leader).result()) < 1
    assert backend.observe.snapshot(Target(Kind.GROUP, "g")).result().entries.keys() == {"other"}
    assert not backend.observe.snapshot(Target(Kind.SERVICE, "s")).result().entries


def test_a_claim_of_an_ended_session_is_free_for_the_next_one(open_backend: Any) -> None:
    backend = open_backend()
    for _ in range(50):
        member, leader = _claims(backend)
        _lose_session(backend, member)
        assert not leader.lease.is_valid()


def test_a_claim_is_free_although_its_session_ended_while_the_store_was_locked(
    open_backend: Any, locked: Any
) -> None:
    backend = open_backend()
    member, _ = _claims(backend)
    faults_of(backend).renewals_paused = True
    with locked():
        eventually(lambda: backend._resources.sessions.session is None)
    faults_of(backend).renewals_paused = False
    backend.membership.release("g", member).result()
    assert _claims(backend)[0].lease.is_valid()


def test_waiting_for_the_lock_costs_a_new_session_no_time(open_backend: Any, locked: Any) -> None:
    backend = open_backend(session=2, operation=5)
    claimed: list[Claim] = []
    thread = threading.Thread(
        target=lambda: claimed.append(backend.membership.claim("g", "m", "n", b"").result())
    )
    with locked():
        thread.start()
        throughout(lambda: not claimed, seconds=1.6 * time_scale())
    thread.join()
    assert claimed[0].lease.remaining_seconds() > 1.0 * time_scale()


def test_the_renewal_thread_ends_with_the_session(open_backend: Any) -> None:
    backend = open_backend()
    member, _ = _claims(backend)
    assert _renewal_threads() == 1
    _lose_session(backend, member)
    eventually(lambda: not _renewal_threads())
    _claims(backend)
    assert _renewal_threads() == 1
    backend.close()
    assert not _renewal_threads()


def _claims(backend: EmbeddedBackend) -> tuple[Claim, Claim]:
    nonce = new_nonce()
    member = backend.membership.claim("g", "m", nonce, b"").result()
    leader = backend.election.claim("s", "c", nonce, b"").result()
    assert isinstance(leader, Claim)
    return member, leader


def _lose_session(backend: EmbeddedBackend, claim: Claim) -> None:
    faults_of(backend).expire_session()
    eventually(lambda: not claim.lease.is_valid())


def _renewal_threads() -> int:
    return [thread.name for thread in threading.enumerate()].count(_RENEWAL_THREAD)
