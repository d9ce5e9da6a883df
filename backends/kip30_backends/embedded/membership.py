"""Members: one row per id, tied to a session."""

from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial
from typing import NamedTuple

from typing_extensions import override

from kip30.driver import MembershipDriver
from kip30.driver.kit import refusals
from kip30.driver.records import Claim, Entry, Kind, Version
from kip30.errors import DefiniteError
from kip30_backends.embedded.calls import Answers
from kip30_backends.embedded.database import Database, Transaction
from kip30_backends.embedded.liveness import SessionLiveness
from kip30_backends.embedded.session import Session, Sessions

_FIND = """
SELECT rev, nonce, data, born, session FROM member WHERE root = ? AND scope = ? AND id = ?
"""
_TAKE = """
INSERT INTO member (rev, nonce, data, born, session, root, scope, id)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
"""
_REPLACE = """
UPDATE member SET rev = ?, nonce = ?, data = ?
WHERE root = ? AND scope = ? AND id = ? AND session = ? AND born = ? AND nonce = ?
"""
_RELEASE = """
DELETE FROM member WHERE root = ? AND scope = ? AND id = ? AND session = ? AND born = ?
"""

_BATCH = 500
"""Number of claims released in one transaction, so that other writers wait some ms only."""


class ClaimRequest(NamedTuple):
    """The id to claim or keep, and its group."""

    group: str
    member_id: str
    nonce: str
    data: bytes


class HeldMember(NamedTuple):
    """Hold of a claim on its id: the session, and the revision it was taken at."""

    session: str
    born: int


class EmbeddedMembership(MembershipDriver):
    """Ids in groups."""

    def __init__(
        self,
        database: Database,
        root: int,
        sessions: Sessions,
        liveness: SessionLiveness,
        answers: Answers,
    ) -> None:
        """Keep members of *root*."""
        self._database = database
        self._root = root
        self._sessions = sessions
        self._liveness = liveness
        self._answers = answers

    @override
    def claim(self, group: str, member_id: str, nonce: str, data: bytes) -> Future[Claim]:
        work = partial(self._claim, ClaimRequest(group, member_id, nonce, data))
        return self._answers.give(lambda: self._sessions.within(work))

    @override
    def replace(self, group: str, claim: Claim, nonce: str, data: bytes) -> Future[Claim]:
        work = partial(self._replace, ClaimRequest(group, claim.name, nonce, data), claim)
        return self._answers.give(lambda: self._database.write(work))

    @override
    def release(self, group: str, claim: Claim) -> Future[None]:
        return self._answers.give(lambda: self._give_up(group, claim))

    @override
    def release_many(self, group: str, claims: Sequence[Claim]) -> list[Future[None]]:
        answers: list[Future[None]] = []
        for start in range(0, len(claims), _BATCH):
            some = claims[start : start + _BATCH]
            answers += [self._release_some(group, some)] * len(some)
        return answers

    def _release_some(self, group: str, claims: Sequence[Claim]) -> Future[None]:
        """Release *claims* in one transaction; the future is that of each."""
        work = partial(self._give_up_all, group, claims)
        return self._answers.give(work)

    def _claim(self, wanted: ClaimRequest, tx: Transaction, session: Session) -> Claim:
        place = (self._root, wanted.group.encode(), wanted.member_id.encode())
        row = tx.execute(_FIND, place).fetchone()
        if row is not None and row[4] == session.ident and row[1] == wanted.nonce:
            return _claim(wanted, row[0], session, row[3])
        if row is not None and self._liveness.is_alive_else_end(tx, row[4]):
            raise refusals.member_exists(wanted.group, wanted.member_id)
        rev = tx.change(self._root, Kind.GROUP, place[1], place[2])
        tx.execute(_TAKE, (rev, wanted.nonce, wanted.data, rev, session.ident, *place))
        return _claim(wanted, rev, session, rev)

    def _replace(self, wanted: ClaimRequest, claim: Claim, tx: Transaction) -> Claim:
        place = (self._root, wanted.group.encode(), wanted.member_id.encode())
        rev = tx.change(self._root, Kind.GROUP, place[1], place[2])
        alive = self._sessions.holds(tx, claim.handle.session)
        values = (rev, wanted.nonce, wanted.data, *place, *claim.handle, claim.entry.nonce)
        if not alive or not tx.execute(_REPLACE, values).rowcount:
            raise self._irreplaceable(wanted, claim, tx, is_alive=alive)
        return claim._replace(entry=_entry(claim.handle.born, wanted), order=rev)

    def _irreplaceable(
        self, wanted: ClaimRequest, claim: Claim, tx: Transaction, *, is_alive: bool
    ) -> DefiniteError:
        row = tx.execute(
            _FIND, (self._root, wanted.group.encode(), wanted.member_id.encode())
        ).fetchone()
        if is_alive and row is not None and (row[4], row[3]) == claim.handle:
            return refusals.other_record(wanted.member_id)
        return refusals.not_member(wanted.group, wanted.member_id)

    def _give_up(self, group: str, claim: Claim) -> None:
        if not self._sessions.has_ended(claim.handle.session):
            self._database.write(partial(self._release, group, claim))

    def _give_up_all(self, group: str, claims: Sequence[Claim]) -> None:
        held = [one for one in claims if not self._sessions.has_ended(one.handle.session)]
        if held:
            self._database.write(partial(self._release_each, group, held))

    def _release_each(self, group: str, claims: Sequence[Claim], tx: Transaction) -> None:
        for claim in claims:
            self._release(group, claim, tx)

    def _release(self, group: str, claim: Claim, tx: Transaction) -> None:
        place = (self._root, group.encode(), claim.name.encode())
        if tx.execute(_RELEASE, (*place, *claim.handle)).rowcount:
            tx.change(self._root, Kind.GROUP, place[1], place[2])


def _claim(wanted: ClaimRequest, rev: int, session: Session, born: int) -> Claim:
    handle = HeldMember(session.ident, born)
    return Claim(wanted.member_id, _entry(born, wanted), session.lease, rev, handle)


def _entry(born: int, wanted: ClaimRequest) -> Entry:
    return Entry(Version(born), wanted.nonce, wanted.data)
