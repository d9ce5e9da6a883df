"""Members and leaders of a store that keeps each under a key, which ends with its owner's session.

A store writes a `KeyClaims`: how a key is taken, replaced and given up.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Generic, NamedTuple, Protocol, TypeVar

from typing_extensions import override

from kip30.driver.contract import ElectionDriver, MembershipDriver
from kip30.driver.kit import refusals
from kip30.driver.kit.futures import mapped
from kip30.driver.record_format import EnvelopeContent, seal
from kip30.driver.records import Claim, Entry, HeldByOther, Snapshot, Version

K = TypeVar("K")
T = TypeVar("T")


class ClaimRequest(NamedTuple, Generic[K]):
    """A request for a key by *name*; the record has *label* if the key does not show the name.

    Attributes:
        at: The key, as the store has it.
        name: The id of the member, or the candidate.
        nonce: That of the claim.
        data: The member's or candidate's own.
        label: The name, or empty if the key has it.
    """

    at: K
    name: str
    nonce: str
    data: bytes
    label: str = ""

    def sealed(self) -> bytes:
        """Return the record as it is stored."""
        return seal(self.nonce, self.data, name=self.label)

    def entry(self, created: int) -> Entry:
        """Return the record as the holder of the key since *created* has it."""
        return Entry(Version(created), self.nonce, self.data)


class Refused(NamedTuple):
    """The record that holds the key instead, its order, and the revision of its creation."""

    order: int
    holder: EnvelopeContent
    created: int

    def held(self) -> HeldByOther:
        """Return the answer to a candidate whose claim found this leader."""
        nonce, candidate, data = self.holder
        leader = Entry(Version(self.created), nonce, data)
        return HeldByOther(Snapshot(self.order, {candidate: leader}))


class KeyClaims(Protocol[K]):
    """Keys with an owner, of one store. Thread-safe."""

    def take(self, wanted: ClaimRequest[K], meaning: Callable[[Claim | Refused], T]) -> Future[T]:
        """Take a key if it is free; *meaning* turns the outcome into the answer."""
        ...

    def replace(self, wanted: ClaimRequest[K], claim: Claim) -> Future[Claim | None]:
        """Replace the record that *claim* has; None if the claim is gone.

        Raises `refusals.other_record` if it has another one.
        """
        ...

    def give_up(self, at: K, claim: Claim) -> Future[None]:
        """Delete the key if *claim* still has it."""
        ...

    def give_up_all(self, held: Sequence[tuple[K, Claim]]) -> list[Future[None]]:
        """Delete each key that its claim still has, in few requests."""
        ...


class KeyMembership(MembershipDriver, Generic[K]):
    """Ids in groups, a key each, whose creation is the incarnation: it grows over all keys."""

    def __init__(self, claims: KeyClaims[K], key: Callable[[str, str], K]) -> None:
        """Keep members as *claims*, that of an id in a group at the *key* of the two."""
        self._claims = claims
        self._key = key

    @override
    def claim(self, group: str, member_id: str, nonce: str, data: bytes) -> Future[Claim]:
        def joined(answer: Claim | Refused) -> Claim:
            if isinstance(answer, Refused):
                raise refusals.member_exists(group, member_id)
            return answer

        return self._claims.take(
            ClaimRequest(self._key(group, member_id), member_id, nonce, data), joined
        )

    @override
    def replace(self, group: str, claim: Claim, nonce: str, data: bytes) -> Future[Claim]:
        def replaced(answer: Claim | None) -> Claim:
            if answer is None:
                raise refusals.not_member(group, claim.name)
            return answer

        wanted = ClaimRequest(self._key(group, claim.name), claim.name, nonce, data)
        return mapped(self._claims.replace(wanted, claim), replaced)

    @override
    def release(self, group: str, claim: Claim) -> Future[None]:
        return self._claims.give_up(self._key(group, claim.name), claim)

    @override
    def release_many(self, group: str, claims: Sequence[Claim]) -> list[Future[None]]:
        return self._claims.give_up_all([(self._key(group, one.name), one) for one in claims])


class KeyElection(ElectionDriver, Generic[K]):
    """Services, a key each, whose creation is the epoch."""

    def __init__(self, claims: KeyClaims[K], key: Callable[[str], K]) -> None:
        """Keep leaders as *claims*, that of a service at its *key*."""
        self._claims = claims
        self._key = key

    @override
    def claim(
        self, service: str, candidate: str, nonce: str, data: bytes
    ) -> Future[Claim | HeldByOther]:
        wanted = ClaimRequest(self._key(service), candidate, nonce, data, label=candidate)
        return self._claims.take(wanted, _won_or_held)

    @override
    def release(self, service: str, claim: Claim) -> Future[None]:
        return self._claims.give_up(self._key(service), claim)


def _won_or_held(answer: Claim | Refused) -> Claim | HeldByOther:
    return answer.held() if isinstance(answer, Refused) else answer
