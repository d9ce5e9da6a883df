"""Renewing, replacing and giving up claims, which members and leaders have in common."""

import contextlib
import math
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TypeVar

from kip30.driver import Context
from kip30.driver.kit.following import all_of, attempt, or_unknown, then
from kip30.driver.kit.futures import Completed, fail, failed, mapped, succeed
from kip30.driver.records import Claim, Entry
from kip30.errors import ClosedError
from kip30_backends.cassandra.errors import closed
from kip30_backends.cassandra.partition_queue import ClaimQueues, Work
from kip30_backends.cassandra.request import Answer, Ask, Calls
from kip30_backends.cassandra.session import (
    ClaimRow,
    Holding,
    Parcel,
    Session,
    Sessions,
    Table,
    parcels,
)

T = TypeVar("T")

_CLOSING = 0.8
"""For how much of the operation timeout a close may give up claims."""


class Claims:
    """Posts and the session they are held under.

    Attributes:
        sessions: The sessions.
        table: The statements about posts.
    """

    def __init__(self, context: Context, calls: Calls, interval: float) -> None:
        """Renew every *interval* seconds."""
        self._calls = calls
        self._clock = context.clock
        self._queues = ClaimQueues(calls.pulse)
        self._renewal_seconds = context.session_timeout_seconds / 2
        self.sessions = Sessions(context, calls.pulse, self._renewed, interval)
        self.table = Table(calls.statements, calls.root, self.sessions.row_seconds)

    def now(self) -> float:
        """Return the time by the clock of leases."""
        return self._clock.now()

    def in_turn(self, place: tuple[str, str], work: Work[T], until: float = math.inf) -> Future[T]:
        """Return what becomes of *work*, done when nothing else of ours is done at *place*."""
        return self._queues.take(place, work, min(until, self._calls.until()))

    def again(self, claim_row: ClaimRow, nonce: str) -> Claim | None:
        """Return the claim to *claim_row* that is held under *nonce* already, if any."""
        found = self.sessions.find(claim_row, nonce)
        return None if found is None else self._claim(claim_row.name, *found)

    def taken(self, holding: Holding, until: float) -> Future[Claim | None]:
        """Return the claim of *holding*, whose row there is; None if it is gone meanwhile.

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
        """Give *claim* another record; None if it is gone."""
        holding: Holding = claim.handle
        entry = Entry(holding.entry.version, nonce, data)

        def work(until: float) -> Future[Claim | None]:
            holding.doubtful[nonce] = entry
            return then(self._write(holding, entry, until), replaced)

        def replaced(is_there: bool) -> Future[Claim | None]:  # noqa: FBT001  a future's result
            new = claim._replace(entry=entry, order=self._calls.orders.tell())
            return Completed(new if is_there else None)

        return self.in_turn(holding.claim_row.place, work)

    def give_up(self, claim: Claim) -> Future[None]:
        """Delete what *claim* has, if it still has it."""
        holding: Holding = claim.handle
        self.sessions.forget(holding)
        return self.delete(holding)

    def clear(self, nonce: str, until: float) -> Future[None] | None:
        """Delete the row with *nonce* if an ended session of ours has left it; None if not.

        To be done in the turn of that place.
        """
        left = self.sessions.former(nonce)
        return None if left is None else self._deleted(left, until)

    def delete(self, holding: Holding, until: float = math.inf) -> Future[None]:
        """Delete a row if it is still ours, whether or not the session goes on."""
        return self.in_turn(holding.claim_row.place, partial(self._deleted, holding), until)

    def close(self) -> None:
        """End the lease, and give up all that is held or being claimed, for which this waits."""
        until = time.monotonic() + self._calls.seconds * _CLOSING
        held = self.sessions.close()
        claimed = self._queues.settled(until)
        deleted = [
            self.in_turn(parcel[0].claim_row.place, partial(self._deleted_together, parcel), until)
            for parcel in parcels(held)
        ]
        with contextlib.suppress(TimeoutError):
            all_of([*deleted, claimed]).result(until - time.monotonic())

    def _claim(self, name: str, session: Session, holding: Holding) -> Claim:
        order = self._calls.orders.tell()
        return Claim(name, holding.entry, session.lease, order, holding)

    def _renewed(self, parcel: Parcel) -> Future[Parcel]:
        """Renew what is in one place; return what is gone."""

        def work(until: float) -> Future[Parcel]:
            # What was given up while this waited for its turn is not to be there.
            return self._renew([one for one in parcel if self.sessions.is_held(one)], until)

        return self.in_turn(
            parcel[0].claim_row.place, work, time.monotonic() + self._renewal_seconds
        )

    def _renew(self, parcel: Parcel, until: float) -> Future[Parcel]:
        """Renew all together; if that is refused, halves of it, and so find what is gone."""
        if not parcel:
            return Completed(())
        if len(parcel) == 1:
            (one,) = parcel
            renewal = self._write(one, one.entry, until)
            return mapped(renewal, lambda is_there: () if is_there else parcel)
        sent_at, beat = self.now(), self._calls.revisions.next()
        nonces = {one.entry.nonce for one in parcel}

        def read(answer: Answer) -> Parcel | Future[Parcel]:
            if not answer.applied and not nonces <= _written(answer, beat):
                return self._renew_halves(parcel, until)
            for one in parcel:
                one.renewed(one.entry, sent_at)
            return ()

        statements = [
            self.table.write(one.claim_row, one.entry, one.entry.nonce, beat) for one in parcel
        ]
        together = self._calls.statements.batch(statements)
        return self._calls.send(Ask(together, read, writes=True), until)

    def _renew_halves(self, parcel: Parcel, until: float) -> Future[Parcel]:
        half = len(parcel) // 2

        def go_on(gone: Parcel) -> Future[Parcel]:
            return mapped(self._renew(parcel[half:], until), lambda more: [*gone, *more])

        return then(self._renew(parcel[:half], until), go_on)

    def _write(self, holding: Holding, entry: Entry, until: float) -> Future[bool]:
        """Write *entry* in place of what is held; false if that is gone."""
        sent_at, beat = self.now(), self._calls.revisions.next()

        def read(answer: Answer) -> bool | Future[bool]:
            if answer.applied or entry.nonce in _written(answer, beat):
                holding.renewed(entry, sent_at)
                return True
            if not _resolved(holding, answer):
                return False
            return self._write(holding, entry if is_new else holding.entry, until)

        is_new = entry.nonce != holding.entry.nonce
        statement = self.table.write(holding.claim_row, entry, holding.entry.nonce, beat)
        return self._calls.send(Ask(statement, read, writes=True), until)

    def _deleted_together(self, parcel: Parcel, until: float) -> Future[None]:
        """Delete what is in one place; if something of it is not ours, one after the other."""
        if len(parcel) == 1:
            return self._deleted(parcel[0], until)

        def read(answer: Answer) -> Future[None] | None:
            if answer.applied:
                return None
            return all_of([self._deleted(one, until) for one in parcel])

        statements = [self.table.delete(one.claim_row, one.entry.nonce) for one in parcel]
        together = self._calls.statements.batch(statements)
        return self._calls.send(Ask(together, read, writes=True), until)

    def _deleted(self, holding: Holding, until: float) -> Future[None]:
        def read(answer: Answer) -> Future[None] | None:
            self._calls.orders.tell()
            if answer.applied or not _resolved(holding, answer):
                return None
            return self._deleted(holding, until)

        statement = self.table.delete(holding.claim_row, holding.entry.nonce)
        return self._calls.send(Ask(statement, read, writes=True), until)


def _found(answer: Answer) -> str | None:
    """Return the nonce that a refused write met."""
    found: str | None = answer.rows[0].get("nonce")
    return found


def _written(answer: Answer, beat: int) -> set[str]:
    """Return the nonces that a refused write met which an attempt before it had written."""
    return {row["nonce"] for row in answer.rows if row.get("beat") == beat}


def _resolved(holding: Holding, answer: Answer) -> bool:
    """Say whether a refused write met what had been in doubt; then that is known to be held."""
    found = holding.doubtful.pop(_found(answer) or "", None)
    if found is None:
        return False
    holding.entry = found
    return True


def insist(once: Callable[[], Future[T | None]]) -> Future[T]:
    """Return the first result of *once* that is not None; until then it is called again.

    However often: futures that each wait for the next one would nest as deep.
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
    """Give *target* what *done* has, if that is anything."""
    error = done.exception()
    if error is not None:
        fail(target, error)
        return True
    result = done.result()
    if result is None:
        return False
    succeed(target, result)
    return True
