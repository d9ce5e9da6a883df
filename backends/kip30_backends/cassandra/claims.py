"""Shared code of members and leaders: rows that are renewed, replaced and given up."""

import contextlib
import math
import time
from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial
from typing import TypeVar

from kip30.driver import Context
from kip30.driver.kit import refusals
from kip30.driver.kit.futures import Completed, all_of, copy, failed
from kip30.driver.kit.operation import Steps, begun, settling
from kip30.driver.records import Claim, Entry
from kip30.errors import ClosedError
from kip30_backends.cassandra.calls import Answer, Calls
from kip30_backends.cassandra.client.connections import Statement
from kip30_backends.cassandra.partition_queue import ClaimQueues, Work
from kip30_backends.cassandra.session import (
    ClaimBatch,
    ClaimRow,
    ClaimStatements,
    HeldClaim,
    Session,
    Sessions,
    renewal_batches,
)

T = TypeVar("T")

_OTHERS_FIRST = 8
"""Number of others that a renewal lets go first. A thousand of them must not end the session, and
as the renewals of one place come one after the other, they do not keep others waiting either."""

_CLOSING = 0.8
"""The share of the operation timeout for which a close may give up claims."""


class Claims:
    """Claims, and the session that they belong to.

    Attributes:
        sessions: The sessions.
        table: The statements about claims.
    """

    def __init__(self, context: Context, calls: Calls, interval: float) -> None:
        """Renew claims every *interval* seconds."""
        self._calls = calls
        self._clock = context.clock
        self._queues = ClaimQueues(calls.timer)
        self._renewal_seconds = context.session_timeout_seconds / 2
        self.sessions = Sessions(context, calls.timer, self._renewed, interval)
        self.statements = ClaimStatements(calls.statements, calls.root, self.sessions.row_seconds)

    def now(self) -> float:
        """Return the time by the clock of leases."""
        return self._clock.now()

    def in_turn(
        self,
        place: tuple[str, str],
        work: Work[T],
        until: float = math.inf,
        *,
        behind: int | None = None,
    ) -> Future[T]:
        """Return the result of *work*, done when this client does nothing else at *place*.

        Its turn comes behind all that wait there, or behind as many of them as given.
        """
        return self._queues.take(place, work, min(until, self._calls.until()), behind=behind)

    def held_already(self, claim_row: ClaimRow, nonce: str) -> Claim | None:
        """Return the claim to *claim_row* that this client already holds under *nonce*, if any."""
        found = self.sessions.find(claim_row, nonce)
        return None if found is None else self._claim(claim_row.name, *found)

    def taken(self, holding: HeldClaim, until: float) -> Steps[Claim | None]:
        """Return the claim of *holding*, whose row exists; None if it has been lost meanwhile.

        If the backend was closed meanwhile, the row is deleted.
        """
        while True:
            try:
                session = self.sessions.current()
            except ClosedError:
                with settling():
                    yield from self._deleted(holding, until)
                raise
            if self.sessions.holds(session, holding):
                return self._claim(holding.claim_row.name, session, holding)
            with settling():
                is_there = yield from self._write(holding, holding.entry, until)
            if not is_there:
                return None

    def replace(self, claim: Claim, nonce: str, data: bytes) -> Future[Claim | None]:
        """Replace the record of *claim*; None if the claim is gone.

        Raises `refusals.other_record` if it has another one.
        """
        holding: HeldClaim = claim.handle
        entry = Entry(holding.entry.version, nonce, data)

        def replaced(until: float) -> Steps[Claim | None]:
            if not holding.has_now(claim.entry.nonce):
                raise refusals.other_record(claim.name)
            # Before it is sent: if its answer is lost, the row may have either nonce.
            holding.doubtful[nonce] = entry
            is_there = yield from self._write(holding, entry, until)
            new = claim._replace(entry=entry, order=self._calls.orders.stamp())
            return new if is_there else None

        return self.in_turn(holding.claim_row.place, replaced)

    def give_up(self, claim: Claim) -> Future[None]:
        """Delete the row of *claim*, if it is still the claim's."""
        holding: HeldClaim = claim.handle
        self.sessions.forget(holding)
        return self.delete(holding)

    def give_up_all(self, claims: Sequence[Claim]) -> list[Future[None]]:
        """Delete the row of each of *claims*, if it is still the claim's, in few statements."""
        held: list[HeldClaim] = [claim.handle for claim in claims]
        given_up = {one: Future[None]() for one in held}
        for one in given_up:
            self.sessions.forget(one)
        for batch in renewal_batches(given_up):
            deleting = self.in_turn(
                batch[0].claim_row.place, partial(self._deleted_together, batch)
            )
            answers = [given_up[one] for one in batch]
            deleting.add_done_callback(partial(_deal, answers))
        return [given_up[one] for one in held]

    def cleared(self, nonce: str, version: int, until: float) -> Steps[bool]:
        """Delete the row of a claim if an ended session of this client left it; return whether.

        To be called in the turn of that place.
        """
        left = self.sessions.former(nonce, version)
        if left is not None:
            yield from self._deleted(left, until)
        return left is not None

    def delete(self, holding: HeldClaim, until: float = math.inf) -> Future[None]:
        """Delete a row if it is still this client's, whether or not the session has ended."""
        return self.in_turn(holding.claim_row.place, partial(self._deleted, holding), until)

    def expire_session(self) -> None:
        """Delete all claims, as if they had expired, without notifying this client."""
        all_of([self.delete(one) for one in self.sessions.held()]).result()

    def close(self) -> None:
        """End the lease, and delete all claims; wait until that is done.

        That includes claims that are under way, and those that an ended session has left.
        """
        until = time.monotonic() + self._calls.seconds * _CLOSING
        # From here on no claim is granted: one that is under way deletes its row (`taken`).
        held, left = self.sessions.close()
        claimed = self._queues.settled(until)
        deleted = [
            self.in_turn(batch[0].claim_row.place, partial(self._deleted_together, batch), until)
            for batch in [*renewal_batches(held), *renewal_batches(left)]
        ]
        with contextlib.suppress(TimeoutError):
            all_of([*deleted, claimed]).result(until - time.monotonic())

    def _claim(self, name: str, session: Session, holding: HeldClaim) -> Claim:
        order = self._calls.orders.stamp()
        return Claim(name, holding.entry, session.lease, order, holding)

    def _renewed(self, batch: ClaimBatch) -> Future[ClaimBatch]:
        """Renew the claims of one place; return those that are gone."""

        def renewed(until: float) -> Steps[ClaimBatch]:
            # Claims that were given up while this waited for its turn must not be renewed.
            return self._renew([one for one in batch if self.sessions.is_held(one)], until)

        until = time.monotonic() + self._renewal_seconds
        return self.in_turn(batch[0].claim_row.place, renewed, until, behind=_OTHERS_FIRST)

    def _renew(self, batch: ClaimBatch, until: float) -> Steps[ClaimBatch]:
        """Renew all together; if that is refused, retry in halves, to find those that are gone."""
        if not batch:
            return ()
        if len(batch) == 1:
            (one,) = batch
            is_there = yield from self._write(one, one.entry, until)
            return () if is_there else batch
        sent_at, beat = self.now(), self._calls.revisions.next()
        nonces = {one.entry.nonce for one in batch}
        answer = yield from self._sent_together(
            [
                self.statements.write(one.claim_row, one.entry, one.entry.nonce, beat)
                for one in batch
            ],
            until,
        )
        if not answer.applied and not nonces <= _written(answer, beat):
            half = len(batch) // 2
            gone = yield from self._renew(batch[:half], until)
            return [*gone, *(yield from self._renew(batch[half:], until))]
        for one in batch:
            one.renewed(one.entry, sent_at)
        return ()

    def _write(self, holding: HeldClaim, entry: Entry, until: float) -> Steps[bool]:
        """Write *entry* over the row of *holding*; false if that is gone."""
        is_new = entry.nonce != holding.entry.nonce
        while True:
            sent_at, beat = self.now(), self._calls.revisions.next()
            statement = self.statements.write(holding.claim_row, entry, holding.entry.nonce, beat)
            answer = yield from self._calls.write(statement, until)
            if answer.applied or entry.nonce in _written(answer, beat):
                holding.renewed(entry, sent_at)
                return True
            if not _resolved(holding, answer):
                return False
            # An earlier replacement has arrived after all. Whether this one comes after that, its
            # caller knows.
            if is_new:
                raise refusals.other_record(holding.claim_row.name)
            entry = holding.entry

    def _deleted_together(self, batch: ClaimBatch, until: float) -> Steps[Sequence[Future[None]]]:
        """Delete the claims of one place together; one by one if some are not this client's.

        Returns the outcome of each.
        """
        if len(batch) > 1:
            deletions = [self.statements.delete(one.claim_row, one.entry) for one in batch]
            if (yield from self._sent_together(deletions, until)).applied:
                self._calls.orders.stamp()
                return [Completed(None) for _ in batch]
        outcomes = [begun(self._deleted(one, until)) for one in batch]
        yield all_of(outcomes)
        return outcomes

    def _deleted(self, holding: HeldClaim, until: float) -> Steps[None]:
        while True:
            statement = self.statements.delete(holding.claim_row, holding.entry)
            answer = yield from self._calls.write(statement, until)
            self._calls.orders.stamp()
            if answer.applied or not _resolved(holding, answer):
                return

    def _sent_together(self, statements: Sequence[Statement], until: float) -> Steps[Answer]:
        return self._calls.write(self._calls.statements.batch(statements), until)


def _deal(answers: Sequence[Future[None]], deleting: Future[Sequence[Future[None]]]) -> None:
    """Give each of *answers* its outcome, or the error of all."""
    error = deleting.exception()
    outcomes = [failed(error) for _ in answers] if error is not None else deleting.result()
    for answer, outcome in zip(answers, outcomes, strict=True):
        copy(outcome, answer)


def _found(answer: Answer) -> str | None:
    """Return the nonce that a refused write found."""
    found: str | None = answer.rows[0].get("nonce")
    return found


def _written(answer: Answer, beat: int) -> set[str]:
    """Return the nonces found by a refused write which an earlier attempt of it had written."""
    return {row["nonce"] for row in answer.rows if row.get("beat") == beat}


def _resolved(holding: HeldClaim, answer: Answer) -> bool:
    """Return whether a refused write found a nonce in doubt; it is then known to be held."""
    found = holding.doubtful.pop(_found(answer) or "", None)
    if found is None:
        return False
    holding.entry = found
    return True
