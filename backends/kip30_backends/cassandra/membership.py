"""Members: a row per id in the partition of the group, with a time to live."""

import time
from concurrent.futures import Future
from typing import NamedTuple

from typing_extensions import override

from kip30.driver import MembershipDriver
from kip30.driver.kit import refusals
from kip30.driver.kit.future_chaining import or_unknown, then
from kip30.driver.kit.futures import Completed, failed, mapped
from kip30.driver.records import Claim, Entry, Version
from kip30.errors import UnavailableError
from kip30_backends.cassandra.calls import Answer, Ask, Calls, acknowledged, is_applied
from kip30_backends.cassandra.claims import Claims, insist
from kip30_backends.cassandra.session import ClaimRow, Holding
from kip30_backends.cassandra.tombstone_folding import Folds

# Of a row found, not written now: too old to be valid before it is renewed.
_LONG_AGO = float("-inf")


class _Bid(NamedTuple):
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

    def __init__(self, calls: Calls, claims: Claims, folds: Folds) -> None:
        """Keep members under the session of *claims*."""
        self._calls = calls
        self._folds = folds
        self._claims = claims

    @override
    def claim(self, group: str, member_id: str, nonce: str, data: bytes) -> Future[Claim]:
        self._calls.gate.check()
        claim_row = ClaimRow("members", group, member_id)
        bid = _Bid(claim_row, nonce, data, self._calls.until())

        def work(until: float) -> Future[Claim | None]:
            again = self._claims.held_already(claim_row, nonce)
            if again is not None:
                return Completed(again)
            self._claims.sessions.current()
            return self._claim(bid._replace(until=until))

        # A turn for each attempt: renewals of the same group do not wait until this claim succeeds.
        return insist(lambda: self._claims.in_turn(claim_row.place, work, bid.until))

    @override
    def replace(self, group: str, claim: Claim, nonce: str, data: bytes) -> Future[Claim]:
        self._calls.gate.check()

        def replaced(answer: Claim | None) -> Claim:
            if answer is None:
                raise refusals.not_member(group, claim.name)
            return answer

        return mapped(self._claims.replace(claim, nonce, data), replaced)

    @override
    def release(self, group: str, claim: Claim) -> Future[None]:
        self._calls.gate.check()
        return self._claims.give_up(claim)

    def _claim(self, bid: _Bid) -> Future[Claim | None]:
        """Insert a row unless it exists; None if the claim must be retried.

        Its version is a revision of the partition, so that it is greater than that of any row
        before it, and an attempt that arrives late is refused.
        """
        if time.monotonic() >= bid.until:
            raise UnavailableError(
                f"gave up claiming {bid.claim_row.name!r} in {bid.claim_row.scope!r}: other clients"
                " keep writing the group; nothing was claimed"
            )
        calls, claims = self._calls, self._claims
        sent_at, rev = claims.now(), calls.revisions.next(bid.claim_row.place)

        def read(answer: Answer) -> Future[Claim | None]:
            if answer.applied:
                self._folds.noted(
                    "members", bid.claim_row.scope, 1
                )  # each row that is written expires
                return self._taken(bid, rev, sent_at)
            return self._refused(bid, rev, sent_at, answer)

        advance = calls.statements.bind(
            "advance_members", rev, calls.root, bid.claim_row.scope, rev
        )
        insert = claims.table.insert(bid.claim_row, bid.entry(rev), calls.revisions.next())
        statement = calls.statements.batch([advance, insert])
        return calls.send(Ask(statement, read, writes=True), bid.until)

    def _refused(self, bid: _Bid, rev: int, sent_at: float, answer: Answer) -> Future[Claim | None]:
        """Continue from the state found: this client's row, another client's, or none."""
        met = answer.rows[0]
        found = next((row for row in answer.rows if row.get("nonce")), None)
        if found is None:
            return self._prepared(bid, rev, answer)
        cleared = self._claims.clear(found["nonce"], found["version"], bid.until)
        if cleared is not None:
            return mapped(cleared, lambda _: None)
        if found["nonce"] == bid.nonce:
            version: int = found["version"]
            return self._taken(bid, version, sent_at if version == rev else _LONG_AGO)
        refusal = refusals.member_exists(bid.claim_row.scope, bid.claim_row.name)
        if answer.is_sure or (met.get("rev") or 0) >= rev:
            raise refusal
        return self._barred(bid, rev, failed(refusal))

    def _barred(self, bid: _Bid, rev: int, end: Future[Claim | None]) -> Future[Claim | None]:
        """Return *end*, once an unanswered attempt under *rev* can no longer succeed.

        If it has succeeded, claim again at once, in the same turn, to find its row.
        """
        calls = self._calls

        def go_on(is_barred: bool) -> Future[Claim | None]:  # noqa: FBT001  a future's result
            return end if is_barred else self._claim(bid)

        bar = calls.statements.bind("advance_members", rev, calls.root, bid.claim_row.scope, rev)
        return then(or_unknown(calls.send(Ask(bar, is_applied, writes=True), bid.until)), go_on)

    def _taken(self, bid: _Bid, version: int, sent_at: float) -> Future[Claim | None]:
        return self._claims.taken(Holding(bid.claim_row, bid.entry(version), sent_at), bid.until)

    def _prepared(self, bid: _Bid, rev: int, answer: Answer) -> Future[Claim | None]:
        """Prepare a revision above the one found; if there is none, begin the partition.

        That also lets an unanswered attempt succeed.
        """
        calls, met = self._calls, answer.rows[0].get("rev")
        if met is not None:
            calls.revisions.observe(bid.claim_row.place, met)
            return Completed(None)
        begin = calls.statements.bind("begin_members", calls.root, bid.claim_row.scope)
        begun = calls.send(Ask(begin, acknowledged, writes=True), bid.until)
        if answer.is_sure:
            return then(begun, lambda _: Completed(None))
        return then(or_unknown(begun), lambda _: self._barred(bid, rev, Completed(None)))
