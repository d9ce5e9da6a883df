"""The requests of one member to the store, and the state of those whose answer was lost."""

from concurrent.futures import Future
from typing import NamedTuple

from kip30.driver.kit import refusals
from kip30.driver.kit.refusals import OtherRecordError
from kip30.driver.records import Claim, Kind, Snapshot, Target, new_nonce
from kip30.errors import (
    AuthenticationError,
    BannedError,
    ClosedError,
    DefiniteError,
    Kip30Error,
    MemberExistsError,
    OutcomeUnknownError,
    StoreError,
)
from kip30.runtime.ban_watch import BanWatch
from kip30.runtime.late_claims import SEARCH_PAUSE, forget_at, search_pause
from kip30.runtime.lost_answers import Wait, given_back, insist
from kip30.runtime.open_store import OpenStore

_NOT_ALLOWED = (BannedError, AuthenticationError, StoreError)


class Granted(NamedTuple):
    """A claim; *shows_data* is false if its record may have an earlier request's data."""

    claim: Claim
    shows_data: bool


class _Attempt(NamedTuple):
    """The content of a claim request."""

    nonce: str
    data: bytes


class MemberClaims:
    """Claims, replaces and releases one id. Only one thread at a time may call what sends.

    Attributes:
        id: The id.
    """

    def __init__(
        self, store: OpenStore, group: str, member_id: str, bans: BanWatch | None = None
    ) -> None:
        """Claim nothing yet, and nothing of which *bans* has a ban."""
        self._store = store
        self._bans = bans
        self._driver = store.drivers.membership
        self._group = group
        self.id: str = member_id
        # The newest claim, while the store may have granted it and its answer was lost.
        self._unresolved: _Attempt | None = None
        # A claim of which a request was never answered: that request may arrive late, even after
        # later ones were answered, so it is never forgotten.
        self._unanswered: _Attempt | None = None
        # Until when a late claim is searched for, on the lease clock; set by the first search.
        self._forget_at: float | None = None

    def claim(self, data: bytes) -> Granted:
        """Claim the id until the answer is known; a retry finds its own success by the nonce.

        A claim that is granted counts only once the bans have been read after it: that reading has
        every ban that was acknowledged before.

        Raises:
            MemberExistsError: Another live claim holds the id.
            BannedError: An operator has banned the id.
            DefiniteError: This request was not granted; an earlier one may have been.
            OutcomeUnknownError: It may have been granted.
        """
        # An earlier claim that may have been granted must be found, and be given back.
        if self._bans is not None and self._unresolved is None:
            self._bans.check_before_claim(self.id)
        earlier = self._unresolved or self._unanswered
        attempt = _Attempt(earlier.nonce if earlier else new_nonce(), data)
        was_resolved = self._unresolved is None
        self._unresolved = attempt
        wait = self._store.asking()
        try:
            claim = insist(lambda: self._request(attempt, wait), wait)
        except MemberExistsError:
            self._unresolved = self._unanswered
            raise
        except DefiniteError:
            self._unresolved = self._unanswered if was_resolved else self._unresolved
            raise
        self._check_bans(claim)
        self._unresolved = None
        return Granted(claim, shows_data=earlier is None)

    def replace(self, claim: Claim, data: bytes, wait: Wait) -> Claim:
        """Give *claim* a record with *data*; if the answer is lost, read whether it is there.

        Raises:
            NotMemberError: The store knows no such claim.
            DefiniteError: Nothing was written.
            OutcomeUnknownError: It may have been written.
        """
        nonce = new_nonce()
        while claim.entry.nonce != nonce:
            try:
                return wait(self._driver.replace(self._group, claim, nonce, data))
            except OtherRecordError:
                # An earlier request has arrived, whose answer was lost. No later one is under way:
                # one thread at a time calls.
                claim = self._as_it_is(claim, wait)
            except OutcomeUnknownError as error:
                return self._look_up(claim, nonce, wait, error)
        return claim

    def release(self, claim: Claim) -> bool:
        """Release the id; false if the store did not confirm it, but the lease has ended anyway."""
        ask = self._store.asking
        return given_back(lambda: ask()(self._driver.release(self._group, claim)), claim.lease)

    def holder(self) -> str | None:
        """Return the nonce of the claim that has the id in the store; None if there is none."""
        return self._holder(self._store.asking())

    def may_have(self, nonce: str) -> bool:
        """Return whether a claim with *nonce*, whose answer was lost, may be granted by now."""
        attempts = self._unresolved, self._unanswered
        return any(one is not None and one.nonce == nonce for one in attempts)

    def give_back_shown(self) -> None:
        """Release a claim whose answer was lost, if the store shows that it was granted.

        Call it again: it may be granted later.
        """
        late = self._unresolved or self._unanswered
        if late is not None:
            self._give_back_shown(late, self._store.asking())

    def take_back_late(self) -> float | None:
        """Release a claim that was granted but whose answer was lost; no other claim may follow.

        A delayed request may still arrive (`kip30.runtime.late_claims`). So this returns the pause
        in seconds before the next search, or None if nothing can arrive any longer.
        """
        if self._forget_at is None:
            self._forget_at = forget_at(self._store.context)
        late = self._unresolved = self._unresolved or self._unanswered
        if late is None:
            return None
        context = self._store.context
        pause = search_pause(context, self._forget_at - context.clock.now())
        wait = self._store.asking()
        nonces = wait(self._store.late_claim_reads.nonces(self._group, pause or SEARCH_PAUSE))
        # That may be from before a release, and then the look-up would claim again: so it is read
        # again.
        if nonces.get(self.id) == late.nonce:
            self._give_back_shown(late, wait)
        return pause

    def _give_back_shown(self, late: _Attempt, wait: Wait) -> None:
        if self._holder(wait) == late.nonce:
            self.release(wait(self._send(late)))

    def _check_bans(self, claim: Claim) -> None:
        """Return if *claim*, which was granted, may be used; else give it back.

        If the bans cannot be read it stays unresolved, so that a retry finds it.
        """
        if self._bans is None:
            return
        try:
            self._bans.check_now(self.id)
        except _NOT_ALLOWED:
            self.release(claim)
            self._unresolved = None
            raise
        except ClosedError:
            raise
        except Kip30Error as error:
            raise OutcomeUnknownError(
                f"{self.id!r} is not known to be free of bans yet: {error}"
            ) from error

    def _request(self, attempt: _Attempt, wait: Wait) -> Claim:
        try:
            return wait(self._send(attempt))
        except OutcomeUnknownError:
            self._unanswered = attempt
            raise

    def _send(self, attempt: _Attempt) -> Future[Claim]:
        return self._driver.claim(self._group, self.id, attempt.nonce, attempt.data)

    def _look_up(self, claim: Claim, nonce: str, wait: Wait, error: OutcomeUnknownError) -> Claim:
        """Find out whether a replacement whose answer was lost has happened."""
        try:
            snapshot = self._snapshot(wait)
        except Kip30Error as failure:
            raise error from failure
        entry = snapshot.entries.get(self.id)
        if entry is None or entry.nonce != nonce:
            raise error
        return claim._replace(entry=entry, order=snapshot.order)

    def _as_it_is(self, claim: Claim, wait: Wait) -> Claim:
        """Return *claim* with the record that it has in the store."""
        snapshot = self._snapshot(wait)
        entry = snapshot.entries.get(self.id)
        if entry is None or entry.version != claim.entry.version:
            raise refusals.not_member(self._group, self.id)
        return claim._replace(entry=entry, order=snapshot.order)

    def _holder(self, wait: Wait) -> str | None:
        entry = self._snapshot(wait).entries.get(self.id)
        return None if entry is None else entry.nonce

    def _snapshot(self, wait: Wait) -> Snapshot:
        target = Target(Kind.MEMBER, self._group, self.id)
        return wait(self._store.drivers.observe.snapshot(target))
