"""Members: one key per id, tied to the lease."""

from collections.abc import Sequence
from concurrent.futures import Future

from typing_extensions import override

from kip30.driver import MembershipDriver
from kip30.driver.key_layout import Paths
from kip30.driver.kit.futures import mapped
from kip30.driver.records import Claim
from kip30.errors import MemberExistsError, NotMemberError
from kip30_backends.etcd.claims import Bid, Claims, Refused


class EtcdMembership(MembershipDriver):
    """Ids in groups."""

    def __init__(self, paths: Paths, claims: Claims) -> None:
        """Keep members where *paths* places them."""
        self._paths = paths
        self._claims = claims

    @override
    def claim(self, group: str, member_id: str, nonce: str, data: bytes) -> Future[Claim]:
        def joined(answer: Claim | Refused) -> Claim:
            if isinstance(answer, Refused):
                raise MemberExistsError(f"{member_id!r} is a member of {group!r} already")
            return answer

        return self._claims.take(self._bid(group, member_id, nonce, data), joined)

    @override
    def replace(self, group: str, claim: Claim, nonce: str, data: bytes) -> Future[Claim]:
        gone = NotMemberError(f"{claim.name!r} is no member of {group!r} any more")

        def replaced(answer: Claim | None) -> Claim:
            if answer is None:
                raise gone
            return answer

        bid = self._bid(group, claim.name, nonce, data)
        return mapped(self._claims.replace(bid, claim), replaced)

    @override
    def release(self, group: str, claim: Claim) -> Future[None]:
        return self._claims.give_up(self._key(group, claim.name), claim)

    @override
    def release_many(self, group: str, claims: Sequence[Claim]) -> list[Future[None]]:
        return self._claims.give_up_all([(self._key(group, one.name), one) for one in claims])

    def _bid(self, group: str, member_id: str, nonce: str, data: bytes) -> Bid:
        return Bid(self._key(group, member_id), member_id, nonce, data)

    def _key(self, group: str, member_id: str) -> bytes:
        return self._paths.member(group, member_id).encode()
