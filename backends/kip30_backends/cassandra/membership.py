"""Members: a row per id in the partition of the group, with a time to live."""

import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import NamedTuple

from typing_extensions import override

from kip30.driver import MembershipDriver
from kip30.driver.kit import refusals
from kip30.driver.kit.operation import Steps, begun, settling
from kip30.driver.records import Claim, Entry, Version
from kip30.errors import UnavailableError
from kip30_backends.cassandra.calls import Answer, Calls
from kip30_backends.cassandra.claims import Claims
from kip30_backends.cassandra.client.connections import Statement
from kip30_backends.cassandra.session import ClaimRow, HeldClaim
from kip30_backends.cassandra.tombstone_folding import FoldingQueue

# Of a row found, not written now: too old to be valid before it is renewed.
_LONG_AGO = float("-inf")


class _ClaimRequest(NamedTuple):
    """The id to claim, and the deadline of the claim."""

    claim_row: ClaimRow
    nonce: str
    data: bytes
    until: float

    def entry(self, version: int) -> Entry:
        return Entry(Version(version), self.nonce, self.data)


class CassandraMembership(MembershipDriver):
    """Ids in groups."""

    # A renewal writes the row again, if it exists.
    removal_ends_lease = True

    def __init__(self, calls: Calls, claims: Claims, folding: FoldingQueue) -> None:
        """Keep members under the session of *claims*."""
        self._calls = calls
        self._folding = folding
        self._claims = claims

    @override
    def claim(self, group: str, member_id: str, nonce: str, data: bytes) -> Future[Claim]:
        self._calls.gate.check()
        wanted = _ClaimRequest(
            ClaimRow("members", group, member_id), nonce, data, self._calls.until()
        )
        return begun(self._claimed(wanted))

    @override
    def replace(self, group: str, claim: Claim, nonce: str, data: bytes) -> Future[Claim]:
        self._calls.gate.check()
        return begun(self._replaced(group, claim, nonce, data))

    @override
    def release(self, group: str, claim: Claim) -> Future[None]:
        self._calls.gate.check()
        return self._claims.give_up(claim)

    @override
    def release_many(self, group: str, claims: Sequence[Claim]) -> list[Future[None]]:
        self._calls.gate.check()
        return self._claims.give_up_all(claims)

    def _replaced(self, group: str, claim: Claim, nonce: str, data: bytes) -> Steps[Claim]:
        replaced: Claim | None = yield self._claims.replace(claim, nonce, data)
        if replaced is None:
            raise refusals.not_member(group, claim.name)
        return replaced

    def _claimed(self, wanted: _ClaimRequest) -> Steps[Claim]:
        claim: Claim | None = None
        # A turn for each attempt: renewals of the same group do not wait until this claim succeeds.
        while claim is None:
            claim = yield self._claims.in_turn(
                wanted.claim_row.place, lambda until: self._attempt(wanted, until), wanted.until
            )
        return claim

    def _attempt(self, wanted: _ClaimRequest, until: float) -> Steps[Claim | None]:
        again = self._claims.held_already(wanted.claim_row, wanted.nonce)
        if again is not None:
            return again
        self._claims.sessions.current()
        return (yield from self._claim(wanted._replace(until=until)))

    def _claim(self, wanted: _ClaimRequest) -> Steps[Claim | None]:
        """Insert a row unless it exists; None if the claim must be retried.

        Its version is a revision of the partition, so that it is greater than that of any row
        before it, and an attempt that arrives late is refused.
        """
        if time.monotonic() >= wanted.until:
            raise UnavailableError(
                f"gave up claiming {wanted.claim_row.name!r} in {wanted.claim_row.scope!r}:"
                " other clients keep writing the group; nothing was claimed"
            )
        calls, claims = self._calls, self._claims
        sent_at, rev = claims.now(), calls.revisions.next(wanted.claim_row.place)
        advance = self._advanced_to(wanted, rev)
        beat = calls.revisions.next()
        insert = claims.statements.insert(wanted.claim_row, wanted.entry(rev), beat)
        answer = yield from calls.write(calls.statements.batch([advance, insert]), wanted.until)
        if answer.applied:
            # Each row that is written expires.
            self._folding.noted("members", wanted.claim_row.scope, 1)
            return (yield from self._taken(wanted, rev, sent_at))
        return (yield from self._refused(wanted, rev, sent_at, answer))

    def _refused(
        self, wanted: _ClaimRequest, rev: int, sent_at: float, answer: Answer
    ) -> Steps[Claim | None]:
        """Continue from the state found: this client's row, another client's, or none."""
        met = answer.rows[0]
        found = next((row for row in answer.rows if row.get("nonce")), None)
        if found is None:
            return (yield from self._prepared(wanted, rev, answer))
        if (yield from self._claims.cleared(found["nonce"], found["version"], wanted.until)):
            return None
        if found["nonce"] == wanted.nonce:
            version: int = found["version"]
            return (
                yield from self._taken(wanted, version, sent_at if version == rev else _LONG_AGO)
            )
        never_done = answer.is_sure or (met.get("rev") or 0) >= rev
        if never_done or (yield from self._barred(wanted, rev)):
            raise refusals.member_exists(wanted.claim_row.scope, wanted.claim_row.name)
        return (yield from self._claim(wanted))

    def _barred(self, wanted: _ClaimRequest, rev: int) -> Steps[bool]:
        """Let an unanswered attempt under *rev* no longer succeed; false if it has succeeded.

        Then its row is found by another claim, to be made at once, in the same turn.
        """
        with settling():
            bar = self._advanced_to(wanted, rev)
            return (yield from self._calls.write(bar, wanted.until)).applied

    def _advanced_to(self, wanted: _ClaimRequest, rev: int) -> Statement:
        calls = self._calls
        return calls.statements.bind(
            "advance_members", rev, calls.root, wanted.claim_row.scope, rev
        )

    def _taken(self, wanted: _ClaimRequest, version: int, sent_at: float) -> Steps[Claim | None]:
        return self._claims.taken(
            HeldClaim(wanted.claim_row, wanted.entry(version), sent_at), wanted.until
        )

    def _prepared(self, wanted: _ClaimRequest, rev: int, answer: Answer) -> Steps[Claim | None]:
        """Prepare a revision above the one found; if there is none, begin the partition.

        That also lets an unanswered attempt succeed.
        """
        calls, met = self._calls, answer.rows[0].get("rev")
        if met is not None:
            calls.revisions.observe(wanted.claim_row.place, met)
            return None
        begin = calls.statements.bind("begin_members", calls.root, wanted.claim_row.scope)
        if answer.is_sure:
            yield from calls.write(begin, wanted.until)
            return None
        with settling():
            yield from calls.write(begin, wanted.until)
        return None if (yield from self._barred(wanted, rev)) else (yield from self._claim(wanted))
