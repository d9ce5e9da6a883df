"""The membership that a campaign has in a group of kip30's own, such as a line of candidates."""

import math
from collections.abc import Callable
from collections.abc import Set as AbstractSet

from kip30.driver.records import Claim, new_nonce
from kip30.runtime.member_claims import MemberClaims
from kip30.runtime.open_store import OpenStore


class GroupPlace:
    """A member with a random id, whose claim is given back also if its answer was lost.

    Used by one task alone.

    Attributes:
        claim: The claim of the member while it is known to be granted.
    """

    def __init__(self, store: OpenStore, group: str, wake: Callable[[], None]) -> None:
        """Join nothing yet; call *wake* when the lease of the claim ends."""
        self.claim: Claim | None = None
        self._store = store
        self._group = group
        self._wake = wake
        self._claims: MemberClaims | None = None
        # Members whose claims were never answered, and when to search for each again.
        self._late = dict[MemberClaims, float]()

    def __bool__(self) -> bool:
        """Return whether there is a member, or a claim of one that may still be granted."""
        return self._claims is not None or bool(self._late)

    def is_lost(self) -> bool:
        """Return whether the lease of the claim has ended."""
        return self.claim is not None and not self.claim.lease.is_valid()

    def ids(self) -> AbstractSet[str]:
        """Return the ids of all members that are this client's, or may be."""
        present = () if self._claims is None else (self._claims,)
        return {one.id for one in (*present, *self._late)}

    def take(self, data: bytes) -> Claim:
        """Join the group with *data*, and return the claim.

        Raises:
            Kip30Error: It is not known to be granted. The next call continues.
        """
        if self._claims is None:
            self._claims = MemberClaims(self._store, self._group, new_nonce())
        claim = self.claim = self._claims.claim(data).claim
        claim.lease.on_end(self._wake)
        return claim

    def leave(self) -> None:
        """Leave the group; `search_late` makes sure that nothing is left.

        Raises:
            Kip30Error: The store has not confirmed it. The next call continues.
        """
        if self._claims is not None and self.claim is not None:
            self._claims.release(self.claim)
        if self._claims is not None:
            # Also for a claim that was granted: an earlier request for it may still arrive.
            self._late[self._claims] = -math.inf
        self.forget()

    def forget(self) -> None:
        """Forget the member in this client; send nothing."""
        if self.claim is not None:
            self.claim.lease.forget(self._wake)
        self._claims = self.claim = None

    def search_late(self) -> None:
        """Take back claims that were granted without an answer.

        Raises:
            Kip30Error: The store did not answer. The next call continues.
        """
        now = self._store.context.clock.now()
        for claims, due in list(self._late.items()):
            if now < due:
                continue
            pause = claims.take_back_late()
            if pause is None:
                del self._late[claims]
            else:
                self._late[claims] = now + pause

    def due(self) -> float:
        """Return when `search_late` is due; infinite if there is nothing to search for."""
        return min(self._late.values(), default=math.inf)
