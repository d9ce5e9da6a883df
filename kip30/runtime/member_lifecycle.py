"""One member of one group, from join to leave, over any number of sessions."""

import logging
import math
import threading
import time
from concurrent.futures import Future
from typing import NamedTuple

from kip30.driver.kit.futures import fail, succeed
from kip30.driver.kit.retry import Retry
from kip30.driver.records import Claim
from kip30.errors import (
    ClosedError,
    Kip30Error,
    LifecycleError,
    MemberExistsError,
    NotMemberError,
    OutcomeUnknownError,
    UnavailableError,
)
from kip30.runtime.ban_watch import BanWatch
from kip30.runtime.bans import Ban
from kip30.runtime.lost_answers import Wait
from kip30.runtime.member import Member, MemberCallbacks, MemberListener
from kip30.runtime.member_claims import MemberClaims
from kip30.runtime.member_phases import MemberPhases, Phase, Update
from kip30.runtime.open_store import OpenStore
from kip30.runtime.own_record_watch import OwnRecordWatch
from kip30.runtime.term_work import TermWork

__all__ = ["Member", "MemberCallbacks", "MemberLifecycle", "MemberListener"]

log: logging.Logger = logging.getLogger(__name__)

_JOINS_PER_TIMEOUT = 20
_LONGEST_JOIN_PAUSE = 0.5
_REASONS = {
    Phase.EVICTED: ": another client has taken the id",
    Phase.ENDED: ": its session was lost, and it joined with rejoin=False",
}


class PendingUpdate(NamedTuple):
    """An update that the member's task completes.

    Attributes:
        update: The data.
        until: How long its caller waits for that, as a time of `time.monotonic`.
        error: Why the request of the caller itself is not enough; None if the session is lost.
    """

    update: Update
    until: float
    error: OutcomeUnknownError | None = None


class MemberLifecycle:
    """Keeps one id in one group; `kip30.runtime.member_phases` has the table of its phases.

    Callers join and update on their own threads; one task re-joins, releases, and publishes data
    that was passed while the session was lost. Another task detects a lost session without a
    request, so that on_lost never queues behind tasks that wait for a store that does not respond.
    """

    def __init__(  # noqa: PLR0913, PLR0917  made in one place
        self,
        store: OpenStore,
        group: str,
        member_id: str,
        phases: MemberPhases,
        callbacks: MemberCallbacks,
        bans: BanWatch,
    ) -> None:
        """Claim nothing before `join`. *phases* is this member's alone, with its first data.

        *bans* are those of the group.
        """
        self._store = store
        self._group = group
        self._id = member_id
        self._callbacks = callbacks
        callbacks.start(store.dispatcher, member_id)
        self._task = store.dispatcher.task(
            self._step, f"member {member_id!r}", waits_for_store=True
        )
        self._incarnations = store.dispatcher.task(
            self._watch_incarnation, f"incarnations of {member_id!r}"
        )
        self._watch = OwnRecordWatch(store, group, member_id, self._incarnations)
        self._phases = phases
        self._claims = MemberClaims(store, group, member_id, bans)
        self._bans = bans
        # Held during every request, so that requests of one member never overlap.
        self._busy = threading.RLock()
        # The newest incarnation, perhaps ended; None before the first and after the last one.
        # Written under _busy, and an incarnation begins and is lost under _turning.
        self.member: Member | None = None
        self._turning = threading.Lock()
        # Done when the store has confirmed that the member left; fails with the reason if it will
        # not.
        self._left: Future[None] = Future()
        # The newest incarnation whose record was found removed. Set before that incarnation is
        # ended.
        self._removed: Member | None = None
        # The newest incarnation whose claim the store has released before a re-join. Written under
        # _busy.
        self._given_back: Member | None = None
        # The ban that has ended the newest incarnation; None if another cause has, or it lasts.
        # Written under _turning.
        self._obeyed: Ban | None = None
        # Keeps an incarnation that was banned from being released before a lease margin has passed,
        # and until when that is, on the lease clock. Set before the phase shows the end, so that
        # who closes it sees this.
        self._kept: TermWork | None = None
        self._kept_until = math.inf
        # When a ban is looked at again, on the lease clock. Written by the task.
        self._next_look = -math.inf
        # Whether the claim was released with those of other members. Written by `released`.
        self._is_released = False
        self._retry = Retry(store.context.clock)

    def is_over(self) -> bool:
        """Return whether the id has been left, or lost for good, by the clock and at this moment.

        The clock may show this to the caller before the task notices.
        """
        self._end_if_late()
        return self._phases.is_over()

    def join(self, *, stays_wanted: tuple[type[Kip30Error], ...] = ()) -> Member:
        """Claim the id; see `GroupMembership.join`.

        After an error of *stays_wanted* call this again, or `leave`; after others it has left.
        """
        try:
            return self._attempt_to_join(stays_wanted)
        except MemberExistsError as error:
            self.leave()
            raise self._taken(error) from error

    def join_by(self, until: float) -> Member | None:
        """Claim the id as `join` does, but return None if it is taken before *until*.

        Then call this again after `join_pause`, or `leave`. *until* is a time of `time.monotonic`.
        """
        try:
            return self._attempt_to_join()
        except MemberExistsError as error:
            if time.monotonic() < until:
                return None
            self.leave()
            raise self._taken(error) from error

    def _attempt_to_join(self, stays_wanted: tuple[type[Kip30Error], ...] = ()) -> Member:
        self._store.register(self)
        newest = self._phases.newest()
        with self._busy:
            try:
                # Under _busy: the task that withdraws what was claimed waits for it. If it has
                # already finished, it would not release a later claim.
                self._check_is_wanted()
                self._bans.begin(self._incarnations)
                member = self._claim(newest)
            except BaseException as error:
                if not isinstance(error, (MemberExistsError, *stays_wanted)):
                    self.leave()
                raise
        self._check_is_wanted()
        return member

    def join_pause(self, until: float) -> float:
        """Return how long to wait before the next `join_by`, in seconds."""
        session_seconds = self._store.context.session_timeout_seconds
        pause = min(session_seconds / _JOINS_PER_TIMEOUT, _LONGEST_JOIN_PAUSE)
        return max(0.0, min(pause, until - time.monotonic()))

    def _taken(self, error: MemberExistsError) -> MemberExistsError:
        seconds = self._store.context.session_timeout_seconds
        return MemberExistsError(
            f"{error}: if the process that has joined has crashed, the id is free after its session"
            f" timeout at the latest, {seconds:g} s by this client's settings; wait_seconds waits"
        )

    def _check_is_wanted(self) -> None:
        phase = self._phases.phase
        if phase is Phase.CLOSED:
            raise ClosedError("closed while joining")
        if phase is Phase.LEAVING:
            self._store.unregister(self)
            raise LifecycleError(f"{self._id!r} has left, or its handle was closed, while joining")

    def update(self, data: bytes) -> None:
        """Replace the record, or let the re-join write *data*; see `GroupMembership.update`."""
        pending = self.begin_update(data)
        if pending is None:
            return
        if not self._phases.wait_until_shown(pending.update, pending.until):
            raise self.not_shown(pending)

    def begin_update(self, data: bytes) -> PendingUpdate | None:
        """Begin the same; return what the member's task completes, if it is not done.

        Waits for the store, but not for the task, for which there may be no thread meanwhile.
        """
        until = time.monotonic() + self._store.context.operation_timeout_seconds
        if self._is_joined():
            pending = self._update_record(data, until)
        else:
            pending = PendingUpdate(self._phases.number(data), until)
        if pending is None:
            return None
        if pending.error is None and not self._phases.keep(pending.update):
            raise self._not_a_member()
        self._task.wake()
        return pending

    def shown(self, pending: PendingUpdate) -> Future[bool]:
        """See `MemberPhases.shown`; `forget` the future, too."""
        return self._phases.shown(pending.update)

    def forget(self, shown: Future[bool]) -> None:
        """See `MemberPhases.forget`."""
        self._phases.forget(shown)

    def not_shown(self, pending: PendingUpdate) -> Kip30Error:
        """Return the error of an update that was not shown in time, or in a final phase."""
        if pending.error is not None:
            return pending.error
        if self._phases.phase is Phase.CLOSED:
            return ClosedError("closed while waiting for the re-join")
        if self._phases.is_over():
            return self._not_a_member()
        ban = self._bans.ban_of(self._id)
        why = "has lost its session" if ban is None else f"is {ban},"
        return OutcomeUnknownError(
            f"{self._id!r} {why} and has not re-joined {self._group!r} yet: it will re-join with"
            " this data, or with newer data"
        )

    def leave(self) -> Future[None]:
        """Stop being a member, locally at once; the future ends when the store confirms it."""
        if self.end_locally():
            self._task.wake()
        return self._left

    def end_locally(self) -> bool:
        """Stop being a member, locally and at once; nothing is sent before `begin_leave`.

        Return false if it has left already or is over.
        """
        self._callbacks.close()
        if not self._phases.enter(Phase.LEAVING):
            return False
        member = self.member
        if member is not None:
            member.end("left")
            self._store.work.end_own(member)
        return True

    def begin_leave(self) -> Claim | None:
        """Leave as `leave` does, but let the caller release the claim; then call `released`.

        None if a request is in flight, or work goes on under the claim: then this member releases
        its claim itself.
        """
        self.end_locally()
        if self._phases.phase is not Phase.LEAVING:
            return None
        if self._is_held(self.member):
            self._task.wake()
            return None
        # The only request that begins in this phase releases the claim; the task sends it when
        # woken.
        claim = self._quiet_claim()
        if claim is None:
            self._task.wake()
        else:  # a release that is never answered must not keep the member
            self._task.wake_at(self._now() + self._store.context.operation_timeout_seconds)
        return claim

    def _quiet_claim(self) -> Claim | None:
        """Return the held claim; None if there is none, or a request is in flight."""
        if not self._busy.acquire(blocking=False):
            return None
        try:
            # Read here: the last request may have been a re-join.
            member = self.member
            return None if member is None or self._has_no_claim(member) else member.claim
        finally:
            self._busy.release()

    def waits_for_caller(self) -> bool:
        """Return whether the release cannot be sent before the caller goes on."""
        member = self.member
        return member is not None and self._store.work.holds_caller(member)

    def _is_held(self, member: Member | None) -> bool:
        return member is not None and self._store.work.is_held(member)

    def released(self, release: Future[None]) -> None:
        """Continue leaving: *release* is the release of the claim that `begin_leave` returned.

        If it failed, this member releases its claim itself.
        """
        self._is_released = not release.cancelled() and release.exception() is None
        self._task.wake()

    @property
    def left(self) -> Future[None]:
        """Done once the store has confirmed that the member left."""
        return self._left

    def close(self) -> None:
        """Stop being a member, locally and at once; the end of the session informs the store."""
        self._task.close()
        self._incarnations.close()
        self._callbacks.close()
        self._phases.enter(Phase.CLOSED)
        if self.member is not None:
            self.member.end("closed")
        self._keep_no_longer()
        fail(self._left, ClosedError("closed while leaving"))

    def _is_joined(self) -> bool:
        member = self.member
        is_joined = self._phases.phase is Phase.JOINED
        return is_joined and member is not None and member.is_valid()

    def _update_record(self, data: bytes, until: float) -> PendingUpdate | None:
        """Replace the record; return what must wait if the session is lost, or the answer.

        After a lost answer the task replaces the record again: newer data or a lost session may
        follow.
        """
        wait = self._store.asking()
        if not self._busy.acquire(timeout=self._store.context.operation_timeout_seconds):
            raise UnavailableError(f"{self._id!r} is waiting for the store: nothing was changed")
        is_shown, unanswered = False, None
        try:
            update = self._phases.number(data)
            try:
                is_shown = self._is_joined() and self._replace(update, wait)
            except OutcomeUnknownError as error:
                unanswered = error
        finally:
            self._busy.release()
        return None if is_shown else PendingUpdate(update, until, unanswered)

    def _not_a_member(self) -> NotMemberError:
        phase, ban = self._phases.phase, self._obeyed
        reason = _REASONS.get(phase, "")
        if phase is Phase.ENDED and ban is not None:
            reason = f": it was {ban}, and it joined with rejoin=False"
        return NotMemberError(f"{self._id!r} is not a member of {self._group!r}{reason}")

    def _claim(self, update: Update, *, is_rejoin: bool = False) -> Member:
        """Begin an incarnation with the data of *update*."""
        claim, shows_data = self._claims.claim(update.data)
        wake, future = self._incarnations.wake, self._store.future
        member = Member(claim, update.data, wake, future)
        self._store.lease_tracker.adopt(claim.lease)
        with self._turning:  # so that nothing reports this incarnation lost before it has begun
            self.member, self._obeyed = member, None
            is_joined = self._phases.enter(Phase.JOINED)
            if is_joined and shows_data:
                self._phases.acknowledge(update)
            if is_joined and is_rejoin:
                self._callbacks.rejoined(member)
        if is_joined:
            self._watch.member_began()
            # Since the grant their events may have found no member to end.
            if self._watch.shows_loss_of(claim) or self._bans.ban_of(self._id) is not None:
                self._incarnations.wake()
        else:  # left or closed while the claim was under way
            member.end(self._phases.phase.value)
        return member

    def _replace(self, update: Update, wait: Wait) -> bool:
        """Replace the record; false if the store knows no such member, so that it must re-join.

        Data that may have been written is kept for a re-join; data that was not written is not.
        """
        member = self.member
        if member is None:
            return False
        try:
            claim = self._claims.replace(member.claim, update.data, wait)
        except NotMemberError:
            self._lose_removed(member)
            return False
        except OutcomeUnknownError:
            self._phases.keep(update)
            raise
        member.claim, member.data = claim, update.data
        self._phases.acknowledge(update)
        return True

    def _step(self) -> None:
        self._bans.report()
        with self._busy:
            try:
                self._advance()
            except MemberExistsError as error:
                self._give_up(error)
            except Exception as error:
                log.info("retrying member %r after: %s", self._id, str(error))
                if self._retry.failed():
                    self._task.wake_at(self._retry.due)
                if not isinstance(error, Kip30Error):
                    raise
            else:
                self._retry.succeeded()

    def _advance(self) -> None:
        self._end_kept()
        phase = self._phases.phase
        if phase in {Phase.LEAVING, Phase.ENDED}:
            self._withdraw()
        elif phase is Phase.EVICTED:
            self._take_back_late_claim()
        elif self.member is not None and phase is not Phase.JOINING:
            self._stay(self.member)

    def _stay(self, member: Member) -> None:
        if not member.is_valid():
            self._rejoin(member)
        if self._phases.is_behind():
            self._replace(self._phases.newest(), self._store.asking())

    def _withdraw(self) -> None:
        is_confirmed = True
        member = self.member
        if member is not None:
            member.end("left")
            if self._is_held(member):  # it wakes the task when the work lets go
                self._task.wake_at(member.held_until)
                return
            is_confirmed = self._is_released or self._release(member)
            self.member = None
        if self._phases.phase is Phase.ENDED:  # before the thread that ends it comes to that
            fail(self._left, self._not_a_member())
        elif not self._left.done():
            self._end_leave(is_confirmed=is_confirmed)
        self._take_back_late_claim()

    def _take_back_late_claim(self) -> None:
        pause = self._claims.take_back_late()
        if pause is None:
            self._finish()
        else:
            self._task.wake_at(self._now() + pause)

    def _end_leave(self, *, is_confirmed: bool) -> None:
        if is_confirmed:
            succeed(self._left, None)
            return
        error = OutcomeUnknownError(
            f"{self._id!r} has left {self._group!r}, but the store has not confirmed it: the id"
            " is free when the session is over there"
        )
        fail(self._left, error)

    def _finish(self) -> None:
        self._task.close()
        self._incarnations.close()
        self._watch.close()
        self._bans.end(self._incarnations)
        self._store.unregister(self)

    def _end_kept(self) -> None:
        """Let an incarnation that was banned be released once the margin has passed."""
        kept = self._kept
        if kept is None:
            return
        until = min(self._kept_until, kept.term.held_until)
        if self._now() < until:
            self._task.wake_at(until)
        else:
            self._keep_no_longer()

    def _keep_no_longer(self) -> None:
        kept, self._kept = self._kept, None
        if kept is not None:
            self._store.work.end(kept)

    def _rejoin(self, member: Member) -> None:
        self._lose(member, member.lease.end_reason or member.lease.lateness)
        if self._phases.is_over():
            return  # it has left meanwhile, or is not to re-join: the next step releases it
        if self._is_held(member):  # banned, and on_lost has not returned, or the margin lasts
            self._task.wake_at(member.held_until)
            return
        if member is not self._given_back and self._release(member):
            self._given_back = member
        ban = self._bans.ban_of(self._id)
        if ban is not None:
            self._claims.give_back_shown()
            self._look_again_at(self._bans.next_look(ban))
            return
        try:
            self._claim(self._phases.newest(), is_rejoin=True)
        except MemberExistsError as error:
            self._check_is_evicted(error)
            raise

    def _look_again_at(self, moment: float) -> None:
        """Look at a ban again at *moment*, unless that is to be done before.

        Each look sets the timer of the next one. So a timer for each `update` would never end.
        """
        if not self._now() < self._next_look <= moment:
            self._next_look = moment
            self._task.wake_at(moment)

    def _check_is_evicted(self, error: MemberExistsError) -> None:
        """Return if another client has the id, which was refused with *error*.

        An earlier join of this client, whose answer was lost, may have it for a moment: it is
        claimed and released when the store shows it (`MemberClaims.take_back_late`).

        Raises:
            UnavailableError: No other client has it, so a retry may get it.
        """
        holder = self._claims.holder()
        if holder is None or self._is_of_this_client(holder):
            raise UnavailableError(f"{self._id!r} was not free for a moment") from error

    def _is_of_this_client(self, nonce: str) -> bool:
        others = (one for one in self._store.active_claims() if isinstance(one, MemberLifecycle))
        return any(one.may_have_claimed(self._group, self._id, nonce) for one in others)

    def may_have_claimed(self, group: str, member_id: str, nonce: str) -> bool:
        """Return whether this may have claimed *member_id* in *group* with *nonce*.

        Any thread may call.
        """
        return (group, member_id) == (self._group, self._id) and self._claims.may_have(nonce)

    def _give_up(self, error: MemberExistsError) -> None:
        """Do not re-join; the next step searches for a claim that was never answered.

        If the member is leaving, the next step continues with that.
        """
        self._task.wake()
        if self.member is not None and self._phases.enter(Phase.EVICTED):
            log.warning("%s did not re-join %r: %s", self._id, self._group, str(error))
            self._callbacks.evicted(self.member)
            fail(self._left, self._not_a_member())

    def _watch_incarnation(self) -> None:
        """End an incarnation that is no longer valid; the other task then does the rest."""
        self._end_if_late()
        member = self.member
        if member is not None and member.is_valid():
            if self._watch.shows_loss_of(member.claim):
                self._lose_removed(member)
            elif (ban := self._bans.ban_of(self._id)) is not None:
                self._lose(member, str(ban), ban)
        self._task.wake()

    def _end_if_late(self) -> None:
        member = self.member
        if member is not None and not member.is_valid():
            self._lose(member, member.lease.end_reason or member.lease.lateness)

    def _release(self, member: Member) -> bool:
        """Release the claim of *member*; false if the store did not confirm it.

        By now another client may hold the id of one that has none, and a store that can only
        compare how often a record was written would remove that client's record.
        """
        return self._has_no_claim(member) or self._claims.release(member.claim)

    def _has_no_claim(self, member: Member) -> bool:
        """Return whether the record of *member* was removed, or given back and that confirmed."""
        return member is self._removed or member is self._given_back

    def _lose_removed(self, member: Member) -> None:
        """End *member*, whose record another client has removed."""
        self._removed = member
        self._lose(member, "the store has no such member")

    def _lose(self, member: Member, reason: str, ban: Ban | None = None) -> None:
        """End *member*, unless another thread has; on_lost is queued before the next on_rejoined.

        Only the present incarnation is lost: by the time the lock is acquired there may be another.
        With a *ban* it is released once on_lost has returned and a lease margin has passed: the
        program may act on an answer of just before its end.
        """
        with self._turning:
            if self.member is not member:
                return
            if ban is not None:  # first: a step that sees the end must not release it
                self._kept_until = math.inf
                self._kept = self._store.work.begin(member)
            phase = self._phases.lose()
            if phase is not None:
                self._obeyed = ban
                member.end(reason)
                self._kept_until = self._now() + self._store.context.margin_seconds
                self._callbacks.lost(member, None if ban is None else self._store.work)
            elif ban is not None:
                self._keep_no_longer()
        if phase is None:
            return
        log.info("lost member %r of %r: %s", self._id, self._group, reason)
        if phase is Phase.ENDED:
            fail(self._left, self._not_a_member())
        self._task.wake()

    def _now(self) -> float:
        return self._store.context.clock.now()
