"""One member of one group, from join to leave, over any number of sessions."""

import logging
import random
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import ClassVar

from typing_extensions import override

from kip30.connection import Connection
from kip30.dispatch import Delivery
from kip30.errors import (
    ClosedError,
    DefiniteError,
    Kip30Error,
    LifecycleError,
    MemberExistsError,
    NotMemberError,
    OutcomeUnknownError,
    UnavailableError,
)
from kip30.futures import fail, succeed
from kip30.ghosts import LATE_SECONDS, forget_at
from kip30.records import Claim, Kind, Snapshot, Target, Version, new_nonce
from kip30.settlement import Wait, given_back, insist
from kip30.tenure import Tenure

log: logging.Logger = logging.getLogger(__name__)

_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 1.0


class Member(Tenure):
    """One incarnation of a member. It ends once, and for good; a re-join is a new one."""

    lost_error: ClassVar[type[DefiniteError]] = NotMemberError

    @property
    def id(self) -> str:
        """The member's id."""
        return self.claim.name

    @property
    def incarnation(self) -> Version:
        """A token that grows with every new life of this id, and not with its data."""
        return self.claim.entry.version

    @override
    def __repr__(self) -> str:
        return f"<member {self.id!r}>"


MemberListener = Callable[[Member], object]


class Enrolment:
    """Keeps one id in one group. Joining and updating are done by the caller's thread."""

    def __init__(
        self,
        connection: Connection,
        group: str,
        member_id: str,
        *,
        on_lost: MemberListener | None,
        on_evicted: MemberListener | None,
    ) -> None:
        """Hold nothing before `join`."""
        self.member: Member | None = None
        self._connection = connection
        self._driver = connection.backend.membership
        self._group = group
        self._id = member_id
        self._lost = Delivery(connection.dispatcher, on_lost, "on_lost")
        self._evicted = Delivery(connection.dispatcher, on_evicted, "on_evicted")
        self._task = connection.dispatcher.task(self._step, f"member {member_id!r}")
        self._busy = threading.RLock()
        self._unresolved: tuple[str, bytes] | None = None
        self._unheard: tuple[str, bytes] | None = None
        self._left: Future[None] | None = None
        self._over = False
        self._mourned: Member | None = None
        self._pause = _FIRST_PAUSE
        self._forget_at = 0.0

    def is_over(self) -> bool:
        """Say whether the id has been left, or lost to someone else."""
        return self._over

    def join(self, data: bytes) -> Member:
        """Claim the id; see `GroupMembership.join`."""
        self._connection.keep(self)
        with self._busy:
            try:
                member = self._claim(new_nonce(), data)
            except BaseException:
                self.leave()
                raise
        if self._left is not None:
            raise LifecycleError("closed while joining: ask the locator for another handle")
        return member

    def update(self, data: bytes) -> None:
        """Replace the record; see `GroupMembership.update`."""
        if self.member is None:
            raise NotMemberError(f"{self._id!r} is not a member of {self._group!r}")
        self.member.check()
        wait = self._connection.asking()
        if not self._busy.acquire(timeout=self._connection.context.operation_timeout_seconds):
            raise UnavailableError(f"{self._id!r} is waiting for the store: nothing was changed")
        try:
            self._replace(self.member, new_nonce(), data, wait)
        except NotMemberError:
            self._lose("the store knows no such member")
            raise
        finally:
            self._busy.release()

    def leave(self) -> Future[None]:
        """Stop being a member, locally at once; the future ends when the store knows."""
        self._lost.close()
        self._evicted.close()
        return self._begin_to_leave()

    def close(self) -> None:
        """Stop being a member, locally and at once; the store hears of it otherwise."""
        self._task.close()
        self._lost.close()
        self._evicted.close()
        self._over = True
        if self.member is not None:
            self.member.end("closed")
        if self._left is not None:
            fail(self._left, ClosedError("closed while leaving"))

    def _begin_to_leave(self) -> Future[None]:
        if self._left is None:
            self._left = Future()
        self._over = True
        if self.member is not None:
            self.member.end("left")
        self._forget_at = forget_at(self._connection.context)
        self._task.wake()
        return self._left

    def _claim(self, nonce: str, data: bytes) -> Member:
        """Claim until the answer is known; the same nonce meets its own success."""
        was_resolved = self._unresolved is None
        self._unresolved = (nonce, data)
        wait = self._connection.asking()
        try:
            claim = insist(lambda: self._answer(nonce, data, wait), wait)
        except MemberExistsError:
            self._unresolved = self._unheard
            raise
        except DefiniteError:
            self._unresolved = self._unheard if was_resolved else self._unresolved
            raise
        self._unresolved = None
        return self._hold(claim, data)

    def _answer(self, nonce: str, data: bytes, wait: Wait) -> Claim:
        try:
            return wait(self._asked(nonce, data))
        except OutcomeUnknownError:
            self._unheard = (nonce, data)
            raise

    def _asked(self, nonce: str, data: bytes) -> Future[Claim]:
        return self._driver.claim(self._group, self._id, nonce, data)

    def _hold(self, claim: Claim, data: bytes) -> Member:
        self.member = Member(claim, data, self._task.wake)
        self._connection.sessions.adopt(claim.lease)
        return self.member

    def _replace(self, member: Member, nonce: str, data: bytes, wait: Wait) -> None:
        try:
            claim = wait(self._driver.replace(self._group, member.claim, nonce, data))
        except OutcomeUnknownError as error:
            claim = self._look_up(member.claim, nonce, wait, error)
        member.claim, member.data = claim, data

    def _look_up(self, claim: Claim, nonce: str, wait: Wait, error: OutcomeUnknownError) -> Claim:
        """Find out whether a replacement whose answer was lost has happened."""
        try:
            snapshot = self._snapshot(wait)
        except Kip30Error as failure:
            raise error from failure
        entry = snapshot.entries.get(self._id)
        if entry is None or entry.nonce != nonce:
            raise error
        return claim._replace(entry=entry, order=snapshot.order)

    def _snapshot(self, wait: Wait) -> Snapshot:
        return wait(self._connection.backend.observe.snapshot(Target(Kind.GROUP, self._group)))

    def _step(self) -> None:
        with self._busy:
            try:
                if self._left is not None:
                    self._withdraw(self._left)
                elif not self._over and self.member is not None and not self.member.is_valid():
                    self._rejoin(self.member)
            except MemberExistsError as error:
                self._give_up(error)
            except Exception as error:
                self._retry_later(error)
                if not isinstance(error, Kip30Error):
                    raise
            else:
                self._pause = _FIRST_PAUSE

    def _withdraw(self, left: Future[None]) -> None:
        is_told = True
        if self.member is not None:
            self.member.end("left")
            is_told = self._release(self.member.claim)
            self.member = None
        if not left.done():
            self._tell(left, is_told=is_told)
        self._unresolved = self._unresolved or self._unheard
        if self._unresolved is not None:
            self._take_back(*self._unresolved)
        if self._unresolved is None or self._now() >= self._forget_at:
            self._finish()
        else:
            self._task.wake_at(self._now() + self._look_out())

    def _tell(self, left: Future[None], *, is_told: bool) -> None:
        if is_told:
            succeed(left, None)
            return
        error = OutcomeUnknownError(
            f"{self._id!r} has left {self._group!r}, but the store has not confirmed it: the id"
            " is free when the session is over there"
        )
        fail(left, error)

    def _take_back(self, nonce: str, data: bytes) -> None:
        """Release what was asked for and never answered, should it have been granted.

        A request that was delayed on its way may arrive yet, so this is done again for as long as
        that is possible (`kip30.ghosts`).
        """
        wait = self._connection.asking()
        entry = self._snapshot(wait).entries.get(self._id)
        if entry is not None and entry.nonce == nonce:
            self._release(wait(self._asked(nonce, data)))

    def _look_out(self) -> float:
        """Return in how many seconds to look again: soon, while a request is likeliest to come."""
        session_seconds = self._connection.context.session_timeout_seconds
        is_new = self._forget_at - self._now() > LATE_SECONDS - session_seconds
        return _LONGEST_PAUSE if is_new else max(_LONGEST_PAUSE, session_seconds)

    def _finish(self) -> None:
        self._task.close()
        self._connection.drop(self)

    def _rejoin(self, member: Member) -> None:
        self._lose("not renewed in time")
        self._release(member.claim)
        unheard = self._unresolved or self._unheard
        self._claim(unheard[0] if unheard else new_nonce(), member.data)

    def _give_up(self, error: MemberExistsError) -> None:
        self._over = True
        log.warning("%s did not re-join %r: %s", self._id, self._group, str(error))
        if self.member is not None:
            self._evicted.send(self.member)
        if self._unheard is None:
            self._finish()
        else:
            self._begin_to_leave()

    def _lose(self, reason: str) -> None:
        if self.member is not None and self._mourned is not self.member:
            self._mourned = self.member
            self.member.end(reason)
            self._lost.send(self.member)
            self._task.wake()

    def _release(self, claim: Claim) -> bool:
        """Give the id up; false if the store did not confirm it, and the lease is over anyway."""
        ask = self._connection.asking
        return given_back(lambda: ask()(self._driver.release(self._group, claim)), claim.lease)

    def _retry_later(self, error: Exception) -> None:
        log.info("member %r goes on after: %s", self._id, str(error))
        pause = self._pause * random.uniform(0.5, 1.0)  # noqa: S311  jitter
        self._task.wake_at(self._now() + pause)
        self._pause = min(_LONGEST_PAUSE, 2 * self._pause)

    def _now(self) -> float:
        return self._connection.context.clock.now()
