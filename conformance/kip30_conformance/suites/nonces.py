"""What a claim or a record is known by, below the core: its nonce. L44, M50 and S50.

The core settles lost answers by nonces, so a driver that mixes them up harms only after a fault.
"""

from collections.abc import Callable, Mapping

import pytest

from kip30 import NotMemberError, PluginLocator, Version
from kip30.driver import Backend, Capability, MembershipDriver
from kip30.driver.records import (
    Claim,
    Condition,
    Entry,
    Held,
    Kind,
    Snapshot,
    Target,
    Write,
    new_nonce,
)
from kip30.names import Key
from kip30_conformance.polling import eventually
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
            assert isinstance(refused, Held)
            assert refused.by.entries == {"c": claim.entry}
        backend.election.release("s", again).result()
        assert not _shown(other, Target(Kind.SERVICE, "s")).entries

    @pytest.mark.parametrize("successor", ["same", "other"])
    @pytest.mark.parametrize("release", _RELEASES)
    def test_M50_release_of_a_former_claim(
        self, open_client: OpenClient, release: str, successor: str
    ) -> None:
        """Releasing a former claim of an id does not affect a later one, also of the same client.

        Neither does replacing it.
        """
        first, other = open_client().backend, open_client().backend
        former = first.membership.claim("g", "m", new_nonce(), b"").result()
        kept = first.membership.claim("g", "kept", new_nonce(), b"").result()
        _RELEASES[release](first.membership, former)
        second = first if successor == "same" else other
        present = second.membership.claim("g", "m", new_nonce(), b"later").result()
        _RELEASES[release](first.membership, former)
        with pytest.raises(NotMemberError):
            first.membership.replace("g", former, new_nonce(), b"former").result()
        shown = {"m": present.entry, "kept": kept.entry}
        assert _shown(other, Target(Kind.GROUP, "g")).entries == shown
        _RELEASES[release](second.membership, present)
        assert _shown(other, Target(Kind.GROUP, "g")).entries == {"kept": kept.entry}

    @pytest.mark.parametrize("method", _WRITES)
    def test_S50_record_of_each_write(self, client: PluginLocator, method: str) -> None:
        """After each write the record has its version, its nonce and its data, however it is read.

        Of a write whose answer is lost the nonce tells whether it was done.
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
        return None if isinstance(answer, Held) else answer

    return eventually(claim, within=30, what="the service is free")


def _shown(backend: Backend, target: Target) -> Snapshot:
    return backend.observe.snapshot(target).result()
