"""Shared code of members and leaders: rows that are renewed, replaced and given up."""

import contextlib
import math
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TypeVar

from kip30.driver import Context
from kip30.driver.kit import refusals
from kip30.driver.kit.future_chaining import all_of, attempt, or_unknown, then
from kip30.driver.kit.futures import Completed, fail, failed, mapped, succeed
from kip30.driver.records import Claim, Entry
from kip30.errors import ClosedError
from kip30_backends.cassandra.calls import Answer, Ask, Calls
from kip30_backends.cassandra.errors import closed
from kip30_backends.cassandra.partition_queue import ClaimQueues, Work
from kip30_backends.cassandra.session import (
    ClaimBatch,
    ClaimRow,
    ClaimStatements,
    Holding,
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
        self.table = ClaimStatements(calls.statements, calls.root, self.sessions.row_seconds)

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

    def taken(self, holding: Holding, until: float) -> Future[Claim | None]:
        """Return the claim of *holding*, whose row exists; None if it has been lost meanwhile.

        If the backend was closed meanwhile, the row is deleted.
        """
        name = holding.claim_row.name
        try:
            session = self.sessions.current()
        except ClosedError:
            return then(or_unknown(self._deleted(holding, until)), lambda _: failed(closed()))
        if self.sessions.holds(session, holding):
            return Completed(self._claim(name, session, holding))

        def renewed(is_there: bool) -> Future[Claim | None]:  # noqa: FBT001  a future's result
            return self.taken(holding, until) if is_there else Completed(None)

        renewal = self._write(holding, holding.entry, until)
        return then(or_unknown(renewal), renewed)

    def replace(self, claim: Claim, nonce: str, data: bytes) -> Future[Claim | None]:
        """Replace the record of *claim*; None if the claim is gone.

        Raises `refusals.other_record` if it has another one.
        """
        holding: Holding = claim.handle
        entry = Entry(holding.entry.version, nonce, data)

        def work(until: float) -> Future[Claim | None]:
            if not holding.has_now(claim.entry.nonce):
                return failed(refusals.other_record(claim.name))
            # Before it is sent: if its answer is lost, the row may have either nonce.
            holding.doubtful[nonce] = entry
            return then(self._write(holding, entry, until), replaced)

        def replaced(is_there: bool) -> Future[Claim | None]:  # noqa: FBT001  a future's result
            new = claim._replace(entry=entry, order=self._calls.orders.stamp())
            return Completed(new if is_there else None)

        return self.in_turn(holding.claim_row.place, work)

    def give_up(self, claim: Claim) -> Future[None]:
        """Delete the row of *claim*, if it is still the claim's."""
        holding: Holding = claim.handle
        self.sessions.forget(holding)
        return self.delete(holding)

    def clear(self, nonce: str, version: int, until: float) -> Future[None] | None:
        """Delete the row of a claim if an ended session of this client left it; None if not.

        To be called in the turn of that place.
        """
        left = self.sessions.former(nonce, version)
        return None if left is None else self._deleted(left, until)

    def delete(self, holding: Holding, until: float = math.inf) -> Future[None]:
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

    def _claim(self, name: str, session: Session, holding: Holding) -> Claim:
        order = self._calls.orders.stamp()
        return Claim(name, holding.entry, session.lease, order, holding)

    def _renewed(self, batch: ClaimBatch) -> Future[ClaimBatch]:
        """Renew the claims of one place; return those that are gone."""

        def work(until: float) -> Future[ClaimBatch]:
            # Claims that were given up while this waited for its turn must not be renewed.
            return self._renew([one for one in batch if self.sessions.is_held(one)], until)

        until = time.monotonic() + self._renewal_seconds
        return self.in_turn(batch[0].claim_row.place, work, until, behind=_OTHERS_FIRST)

    def _renew(self, batch: ClaimBatch, until: float) -> Future[ClaimBatch]:
        """Renew all together; if that is refused, retry in halves, to find those that are gone."""
        if not batch:
            return Completed(())
        if len(batch) == 1:
            (one,) = batch
            renewal = self._write(one, one.entry, until)
            return mapped(renewal, lambda is_there: () if is_there else batch)
        sent_at, beat = self.now(), self._calls.revisions.next()
        nonces = {one.entry.nonce for one in batch}

        def read(answer: Answer) -> ClaimBatch | Future[ClaimBatch]:
            if not answer.applied and not nonces <= _written(answer, beat):
                return self._renew_halves(batch, until)
            for one in batch:
                one.renewed(one.entry, sent_at)
            return ()

        statements = [
            self.table.write(one.claim_row, one.entry, one.entry.nonce, beat) for one in batch
        ]
        together = self._calls.statements.batch(statements)
        return self._calls.send(Ask(together, read, writes=True), until)

    def _renew_halves(self, batch: ClaimBatch, until: float) -> Future[ClaimBatch]:
        half = len(batch) // 2

        def go_on(gone: ClaimBatch) -> Future[ClaimBatch]:
            return mapped(self._renew(batch[half:], until), lambda more: [*gone, *more])

        return then(self._renew(batch[:half], until), go_on)

    def _write(self, holding: Holding, entry: Entry, until: float) -> Future[bool]:
        """Write *entry* over the row of *holding*; false if that is gone."""
        sent_at, beat = self.now(), self._calls.revisions.next()

        def read(answer: Answer) -> bool | Future[bool]:
            if answer.applied or entry.nonce in _written(answer, beat):
                holding.renewed(entry, sent_at)
                return True
            if not _resolved(holding, answer):
                return False
            # An earlier replacement has arrived after all. Whether this one comes after that, its
            # caller knows.
            if is_new:
                return failed(refusals.other_record(holding.claim_row.name))
            return self._write(holding, holding.entry, until)

        is_new = entry.nonce != holding.entry.nonce
        statement = self.table.write(holding.claim_row, entry, holding.entry.nonce, beat)
        return self._calls.send(Ask(statement, read, writes=True), until)

    def _deleted_together(self, batch: ClaimBatch, until: float) -> Future[None]:
        """Delete the claims of one place together; one by one if some are not this client's."""
        if len(batch) == 1:
            return self._deleted(batch[0], until)

        def read(answer: Answer) -> Future[None] | None:
            if answer.applied:
                return None
            return all_of([self._deleted(one, until) for one in batch])

        statements = [self.table.delete(one.claim_row, one.entry) for one in batch]
        together = self._calls.statements.batch(statements)
        return self._calls.send(Ask(together, read, writes=True), until)

    def _deleted(self, holding: Holding, until: float) -> Future[None]:
        def read(answer: Answer) -> Future[None] | None:
            self._calls.orders.stamp()
            if answer.applied or not _resolved(holding, answer):
                return None
            return self._deleted(holding, until)

        statement = self.table.delete(holding.claim_row, holding.entry)
        return self._calls.send(Ask(statement, read, writes=True), until)


def _found(answer: Answer) -> str | None:
    """Return the nonce that a refused write found."""
    found: str | None = answer.rows[0].get("nonce")
    return found


def _written(answer: Answer, beat: int) -> set[str]:
    """Return the nonces found by a refused write which an earlier attempt of it had written."""
    return {row["nonce"] for row in answer.rows if row.get("beat") == beat}


def _resolved(holding: Holding, answer: Answer) -> bool:
    """Return whether a refused write found a nonce in doubt; it is then known to be held."""
    found = holding.doubtful.pop(_found(answer) or "", None)
    if found is None:
        return False
    holding.entry = found
    return True


def insist(once: Callable[[], Future[T | None]]) -> Future[T]:
    """Return the first result of *once* that is not None; until then it is called again.

    This takes any number of calls: futures that each wait for the next would nest as deep.
    """
    target: Future[T] = Future()

    def go_on(done: Future[T | None]) -> None:
        if not _has_ended(done, target):
            try_()

    def try_() -> None:
        while (done := attempt(once)).done():
            if _has_ended(done, target):
                return
        done.add_done_callback(go_on)

    try_()
    return target


def _has_ended(done: Future[T | None], target: Future[T]) -> bool:
    """Pass the result of *done* to *target*, if it has one."""
    error = done.exception()
    if error is not None:
        fail(target, error)
        return True
    result = done.result()
    if result is None:
        return False
    succeed(target, result)
    return True
