"""Nonces, by which claims and records are identified below the core: L44, M50, M61, M62, S50.

The core settles lost answers by nonces, so a driver that mixes them up harms only after a fault.
"""

from collections.abc import Callable, Mapping

import pytest
from typing_extensions import override

from kip30 import (
    MemberExistsError,
    NotMemberError,
    PluginLocator,
    UnavailableError,
    Version,
)
from kip30.driver import Backend, Capability, MembershipDriver
from kip30.driver.clock import SystemClock
from kip30.driver.records import (
    Claim,
    Condition,
    Entry,
    HeldByOther,
    Kind,
    Snapshot,
    Target,
    Write,
    new_nonce,
)
from kip30.names import Key
from kip30_conformance.evidence import Evidence
from kip30_conformance.harness import Harness
from kip30_conformance.polling import eventually, throughout, time_scale
from kip30_conformance.suite import OpenClient, Suite

_KEY = Key("n", "k")
_RELEASES: Mapping[str, Callable[[MembershipDriver, Claim], object]] = {
    "release": lambda driver, claim: driver.release("g", claim).result(),
    "release_many": lambda driver, claim: driver.release_many("g", [claim])[0].result(),
}
_WRITES: Mapping[str, Callable[[Backend, Write], Version]] = {
    "write": lambda backend, write: backend.storage.write(write).result(),
    "write_many": lambda backend, write: backend.storage.write_many([write])[0].result(),
}


class _JumpingClock(SystemClock):
    """A clock that can be ahead of the system's, as after a suspension that no store notices."""

    def __init__(self) -> None:
        self.jumped_seconds = 0.0

    @override
    def now(self) -> float:
        return super().now() + self.jumped_seconds


def _claim_member(backend: Backend, nonce: str) -> Claim | None:
    try:
        return backend.membership.claim("g", "m", nonce, b"").result()
    except (MemberExistsError, UnavailableError):  # the former session has not ended yet
        return None


def _claim_service(backend: Backend, nonce: str) -> Claim | None:
    try:
        answer = backend.election.claim("g", "m", nonce, b"").result()
    except UnavailableError:
        return None
    return None if isinstance(answer, HeldByOther) else answer


_CLAIMS: Mapping[Kind, Callable[[Backend, str], Claim | None]] = {
    Kind.GROUP: _claim_member,
    Kind.SERVICE: _claim_service,
}


class NonceTests(Suite):
    """A driver distinguishes claims and records by their nonces, not by names or sessions."""

    def test_L44_claim_again(self, open_client: OpenClient) -> None:
        """Claiming a service again with the same nonce answers the claim; another one is refused.

        The claim is then in force as before: its epoch, its data, and its release.
        """
        backend, other = open_client().backend, open_client().backend
        nonce = new_nonce()
        claim = _elected(backend, nonce)
        again = backend.election.claim("s", "c", nonce, b"data").result()
        assert isinstance(again, Claim), "a claim that was granted is refused when repeated"
        assert (again.name, again.entry) == (claim.name, claim.entry)
        assert _shown(other, Target(Kind.SERVICE, "s")).entries == {"c": claim.entry}
        for one in (backend, other):
            refused = one.election.claim("s", "c", new_nonce(), b"data").result()
            assert isinstance(refused, HeldByOther)
            assert refused.by.entries == {"c": claim.entry}
        backend.election.release("s", again).result()
        assert not _shown(other, Target(Kind.SERVICE, "s")).entries

    @pytest.mark.parametrize("successor", ["same", "other", "same_nonce"])
    @pytest.mark.parametrize("release", _RELEASES)
    def test_M50_release_of_a_former_claim(
        self, open_client: OpenClient, release: str, successor: str
    ) -> None:
        """Releasing a former claim of an id does not affect a later one, also of the same client.

        Neither does replacing it. A member whose re-join got no answer claims with the same nonce
        for the rest of its life, so the later claim may have that of the former one.
        """
        first, other = open_client().backend, open_client().backend
        nonce = new_nonce()
        former = first.membership.claim("g", "m", nonce, b"").result()
        kept = first.membership.claim("g", "kept", new_nonce(), b"").result()
        _RELEASES[release](first.membership, former)
        second = other if successor == "other" else first
        later = nonce if successor == "same_nonce" else new_nonce()
        present = second.membership.claim("g", "m", later, b"later").result()
        _RELEASES[release](first.membership, former)
        with pytest.raises(NotMemberError):
            first.membership.replace("g", former, new_nonce(), b"former").result()
        shown = {"m": present.entry, "kept": kept.entry}
        assert _shown(other, Target(Kind.GROUP, "g")).entries == shown
        _RELEASES[release](second.membership, present)
        assert _shown(other, Target(Kind.GROUP, "g")).entries == {"kept": kept.entry}

    @pytest.mark.parametrize("release", _RELEASES)
    def test_M62_release_of_a_replaced_record(self, open_client: OpenClient, release: str) -> None:
        """A claim is released together with the record that has replaced its own.

        If the answer to `replace` is lost, the claim from before is all that the core has.
        """
        first, other = open_client().backend, open_client().backend
        claim = first.membership.claim("g", "m", new_nonce(), b"old").result()
        kept = first.membership.claim("g", "kept", new_nonce(), b"").result()
        first.membership.replace("g", claim, new_nonce(), b"new").result()
        _RELEASES[release](first.membership, claim)
        assert _shown(other, Target(Kind.GROUP, "g")).entries == {"kept": kept.entry}
        next_claim = other.membership.claim("g", "m", new_nonce(), b"").result()
        assert next_claim.entry.version > claim.entry.version

    @pytest.mark.fault
    @pytest.mark.parametrize("kind", [Kind.GROUP, Kind.SERVICE])
    def test_M61_claim_again_after_the_lease(
        self, open_client: OpenClient, harness: Harness, evidence: Evidence, kind: Kind
    ) -> None:
        """A claim that is repeated once its lease has ended is held by the lease that it gets.

        The store may still have the former one, with the same nonce: it would end with the former
        session, while the holder believes in the new lease.
        """
        clock, nonce, claim = _JumpingClock(), new_nonce(), _CLAIMS[kind]
        backend, other = open_client(clock=clock).backend, open_client().backend
        former = eventually(lambda: claim(backend, nonce), within=30, what="it is granted")
        clock.jumped_seconds = former.lease.timeout_seconds
        evidence.saw("ended lease", not former.lease.is_valid())
        again = eventually(lambda: claim(backend, nonce), within=30, what="it is granted again")
        assert again.lease.is_valid()
        shown = Target(kind, "g")
        throughout(
            lambda: _shown(other, shown).entries == {"m": again.entry},
            seconds=harness.crash_patience * time_scale(),
        )

    @pytest.mark.parametrize("method", _WRITES)
    def test_S50_record_of_each_write(self, client: PluginLocator, method: str) -> None:
        """After each write the record has its version, its nonce and its data, however it is read.

        The nonce shows whether a write whose answer is lost was done.
        """
        backend, write = client.backend, _WRITES[method]
        conditions: list[Condition | None] = [Condition.ABSENT, Condition.PRESENT, Condition.ANY]
        if Capability.COMPARE_AND_SET in backend.capabilities:
            conditions.append(None)
        version = Version(0)
        for number, condition in enumerate([*conditions, *conditions[1:]]):
            nonce, data = new_nonce(), str(number).encode()
            version = write(backend, Write(_KEY, nonce, data, condition or version))
            record = Entry(version, nonce, data)
            assert backend.storage.read([_KEY]).result() == [record]
            assert backend.storage.read([Key("n", "absent"), _KEY]).result() == [None, record]
            assert _shown(backend, Target(Kind.VALUE, "n", "k")).entries == {"k": record}


def _elected(backend: Backend, nonce: str) -> Claim:
    """Lead ``s`` as candidate ``c``, after a lock-delay if the store has one."""

    def claim() -> Claim | None:
        answer = backend.election.claim("s", "c", nonce, b"data").result()
        return None if isinstance(answer, HeldByOther) else answer

    return eventually(claim, within=30, what="the service is free")


def _shown(backend: Backend, target: Target) -> Snapshot:
    return backend.observe.snapshot(target).result()
