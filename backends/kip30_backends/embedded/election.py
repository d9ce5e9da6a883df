"""Leaders: one row per service, which outlives them and counts their epochs."""

from concurrent.futures import Future
from functools import partial
from typing import NamedTuple

from typing_extensions import override

from kip30.driver import ElectionDriver
from kip30.driver.records import Claim, Entry, HeldByOther, Kind, Snapshot
from kip30_backends.embedded.calls import Answers
from kip30_backends.embedded.database import Database, Transaction
from kip30_backends.embedded.liveness import SessionLiveness
from kip30_backends.embedded.service_pruning import NO_NAME
from kip30_backends.embedded.session import Session, Sessions
from kip30_backends.embedded.target_states import UNREADABLE, entry, foreign

_FIND = """
SELECT epoch, rev, candidate, nonce, data, session FROM service WHERE root = ? AND scope = ?
"""
_LEAD = """
INSERT OR REPLACE INTO service (epoch, rev, candidate, nonce, data, session, root, scope)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
"""
_RELEASE = """
UPDATE service SET candidate = NULL, nonce = NULL, data = NULL, session = NULL,
rev = 1 + (SELECT max(rev) FROM change)
WHERE root = ? AND scope = ? AND epoch = ? AND session = ?
"""
"""The revision is that of the change which is noted next: see `service_pruning`."""
_REV = "SELECT max(rev) FROM change"


class ClaimRequest(NamedTuple):
    """The candidate and its service."""

    service: str
    candidate: str
    nonce: str
    data: bytes


class ServiceRow(NamedTuple):
    """A service; the last four are None while it has no leader."""

    epoch: int = 0
    rev: int = 0
    candidate: bytes | None = None
    nonce: str | None = None
    data: bytes | None = None
    session: str | None = None


class EmbeddedElection(ElectionDriver):
    """Services and their leaders."""

    def __init__(
        self,
        database: Database,
        root: int,
        sessions: Sessions,
        liveness: SessionLiveness,
        answers: Answers,
    ) -> None:
        """Keep services of *root*."""
        self._database = database
        self._root = root
        self._sessions = sessions
        self._liveness = liveness
        self._answers = answers

    @override
    def claim(
        self, service: str, candidate: str, nonce: str, data: bytes
    ) -> Future[Claim | HeldByOther]:
        work = partial(self._claim, ClaimRequest(service, candidate, nonce, data))
        return self._answers.give(lambda: self._sessions.within(work, durable=True))

    @override
    def release(self, service: str, claim: Claim) -> Future[None]:
        return self._answers.give(lambda: self._give_up(service, claim))

    def _claim(
        self, wanted: ClaimRequest, tx: Transaction, session: Session
    ) -> Claim | HeldByOther:
        place = (self._root, wanted.service.encode())
        row = ServiceRow(*(tx.execute(_FIND, place).fetchone() or ()))
        if row.session == session.ident and row.nonce == wanted.nonce:
            return _claim(row, session)
        if row.session is not None and self._liveness.is_alive_else_end(tx, row.session):
            return _held(wanted.service, row, tx)
        if not row.epoch:  # never led, or its row was removed: see `service_pruning`
            row = ServiceRow(*(tx.execute(_FIND, (self._root, NO_NAME)).fetchone() or ()))
        if type(row.epoch) is not int:
            raise foreign(f"the epoch of {wanted.service!r}", "it is no number")
        candidate = wanted.candidate.encode()
        rev = tx.change(self._root, Kind.SERVICE, place[1], candidate)
        won = ServiceRow(row.epoch + 1, rev, candidate, wanted.nonce, wanted.data, session.ident)
        tx.execute(_LEAD, (*won, *place))
        return _claim(won, session)

    def _give_up(self, service: str, claim: Claim) -> None:
        if not self._sessions.has_ended(claim.handle):
            self._database.write(partial(self._release, service, claim))

    def _release(self, service: str, claim: Claim, tx: Transaction) -> None:
        place = (self._root, service.encode())
        epoch = claim.entry.version.major
        if tx.execute(_RELEASE, (*place, epoch, claim.handle)).rowcount:
            tx.change(self._root, Kind.SERVICE, place[1], claim.name.encode())


def _leader(row: ServiceRow) -> tuple[str, Entry]:
    return (row.candidate or b"").decode(), entry(row.epoch, row.nonce or "", row.data or b"")


def _claim(row: ServiceRow, session: Session) -> Claim:
    name, entry = _leader(row)
    return Claim(name, entry, session.lease, row.rev, session.ident)


def _held(service: str, row: ServiceRow, tx: Transaction) -> HeldByOther:
    rev: int = tx.execute(_REV).fetchone()[0]
    try:
        return HeldByOther(Snapshot(rev, dict([_leader(row)])))
    except UNREADABLE as error:  # another program wrote it; it still counts as the leader
        raise foreign(f"the leader of {service!r}", "it is no record of a leader") from error
