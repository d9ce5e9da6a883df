"""The member's part, on the polling thread: all calls of the application happen here.

`MemberLoop` asks `member_next` for a step, carries it out, notes the outcome, and asks again, until
it can only wait.
"""

import logging
import math
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, cast

from kip30.coordinator.decisions import MemberFacts, member_next, member_state, steps
from kip30.coordinator.interface import (
    AssignmentMetadata,
    JoinGroupMetadata,
    MemberApplication,
    MemberState,
)
from kip30.coordinator.leader_task import LeaderTask
from kip30.coordinator.records import MEMBER_BYTES, PresentMember, metadata_digest
from kip30.coordinator.shared_member import MemberShare
from kip30.coordinator.store_requests import GroupRequests
from kip30.coordinator.voting import Vote, check_offer
from kip30.driver.kit.retry import Retry
from kip30.errors import (
    ClosedError,
    KeyExistsError,
    KeyMissingError,
    Kip30Error,
    MemberExistsError,
    NotMemberError,
    OutcomeUnknownError,
    UnavailableError,
    UsageError,
    ValueTooLargeError,
    VersionConflictError,
)
from kip30.runtime.member import MemberListener

log: logging.Logger = logging.getLogger(__name__)

_HEAD_BYTES = 8 * 1024
"""The largest size of a member's record besides what the application offers."""
_RETRIED = (
    UnavailableError,
    OutcomeUnknownError,
    MemberExistsError,
    KeyExistsError,
    KeyMissingError,
    VersionConflictError,
)


class MemberEndedError(Exception):
    """The member has ended for good, with the error that is its cause."""

    def __init__(self, error: Kip30Error) -> None:
        """Keep *error*, which is raised to the application."""
        super().__init__(error)
        self.error = error


class MemberLoop:
    """Carries out the steps of one member. Only one thread at a time may call `run`."""

    def __init__(  # noqa: PLR0913  the parts of one coordinator, which makes them all
        self,
        application: MemberApplication,
        share: MemberShare,
        requests: GroupRequests,
        leader: LeaderTask,
        *,
        operation_timeout_seconds: float,
        heartbeat_seconds: float,
        closing: threading.Event,
        on_session_lost: MemberListener,
        share_changed: Callable[[], None],
        listen: Callable[[], None],
    ) -> None:
        """Call *application*.

        Args:
            application: The coordinator.
            share: The facts of its member.
            requests: The requests to the store.
            leader: What asks for assignments.
            operation_timeout_seconds: How much longer than requested a run may take.
            heartbeat_seconds: How often `refresh` asks the application whether something has
            changed.
            closing: Set when the member is to end.
            on_session_lost: For `GroupMembership.join`.
            share_changed: Called when the state or the share may have changed.
            listen: Registers the listener of the state.
        """
        self._activity = share.activity
        self._application = application
        self._share = share
        self._requests = requests
        self._leader = leader
        self._clock = requests.clock
        self._patience = operation_timeout_seconds
        self._heartbeat = heartbeat_seconds
        self._closing = closing
        self._on_session_lost = on_session_lost
        self._share_changed = share_changed
        # Registers the listener of the state; None once it is registered.
        self._listen: Callable[[], None] | None = listen
        self._retry = Retry(requests.clock)
        # The error for which the last request is tried again. Only the polling thread writes it.
        self.last_error: Kip30Error | None = None
        # When to ask the application next whether something has changed.
        self._refresh_at = 0.0
        # Whether request_rejoin was called since the metadata was last collected. Any thread sets
        # it.
        self._rejoin_wanted = threading.Event()
        # Whether the application raised when it was asked for that, and whether it is being called,
        # or raised in the last call. Only the polling thread reads and writes these two.
        self._has_raised = False
        self._is_in_application = False

    def request_rejoin(self) -> None:
        """Collect the metadata before the next step, and ask for a round if it has changed."""
        self._rejoin_wanted.set()
        self._share.signal()

    def is_stable(self) -> bool:
        """Return whether the member has taken up its share of the newest known generation."""
        with self._share.changed:
            if self._share.is_offered():
                return False  # on_join_complete has not returned, and may raise
            return member_state(self._share.current()) is MemberState.STABLE

    def run(self, until: float, *, ends_when_stable: bool = False) -> bool:
        """Carry steps out until the clock shows *until*; return whether the member is then stable.

        Raises:
            MemberEndedError: It has ended for good.
            ClosedError: It is being closed.
            Exception: What the application raised.
        """
        with self._activity.polling():
            while True:
                if self._closing.is_set():
                    raise ClosedError("the coordinator is closed")
                if not self._is_ready(until):
                    return False
                step = self._next_step()
                if ends_when_stable and self.is_stable():
                    return True
                if isinstance(step, steps.WaitForChange):
                    if not self._wait(step, until):
                        return self.is_stable()
                elif not self._carry_out(step) and self._clock.now() >= until:
                    return False
                if self._clock.now() >= until + self._patience:
                    return self.is_stable()

    def _is_ready(self, until: float) -> bool:
        """Return whether a step may be tried with the listener there; false if not by *until*."""
        while self._may_try(until):
            if self._listen is None or self._closing.is_set() or self._tried(self._register):
                return True
            if self._clock.now() >= until:
                return False
        return False

    def _may_try(self, until: float) -> bool:
        """Wait for the end of the backoff after a failure; false if *until* comes first."""
        now = self._clock.now()
        due = self._retry.due
        while now < due < math.inf:
            if now >= until or self._closing.is_set():
                return self._closing.is_set()
            self._share.next_facts()
            self._share.wait(min(due, until))
            now = self._clock.now()
        return True

    def _next_step(self) -> steps.MemberStep:
        vote = self._leader.take_vote()
        if vote is not None:
            self._assign(vote)
        facts = self._share.next_facts()
        if self._rejoin_wanted.is_set() and self._may_consider_rejoin(facts):
            self._consider_rejoin()
            facts = self._share.next_facts()
        return member_next(facts)

    def _may_consider_rejoin(self, facts: MemberFacts) -> bool:
        """Return whether metadata may be asked for; if it raised last, only between other steps."""
        return not self._has_raised or isinstance(member_next(facts), steps.WaitForChange)

    def _carry_out(self, step: steps.MemberStep) -> bool:
        """Carry *step* out; false if the store failed, so that it is retried."""
        return self._tried(lambda: self._steps[type(step)](self, step))

    def _register(self) -> None:
        if self._listen is not None:
            self._listen()
            self._listen = None

    def _tried(self, request: Callable[[], None]) -> bool:
        self._is_in_application = False
        try:
            request()
        except _RETRIED as error:
            if self._is_in_application:
                raise
            log.info("group member %s tries again after: %s", self._member_id(), error)
            self.last_error = error
            self._retry.failed()
            return False
        self.last_error = None
        self._retry.succeeded()
        return True

    def _wait(self, step: steps.WaitForChange, until: float) -> bool:
        """Wait for a change; false if there is none before *until*."""
        self._refresh_if_due()
        facts = self._share.current()
        waits_for_group = facts.group is not None and facts.record is None
        moments = [until] if step.until is None else [until, step.until]
        moments.append(self._clock.now() + self._heartbeat)
        self._share.wait(min(moments))
        if waits_for_group:
            self._share.note(lambda facts: facts.read_group(None))
        return self._share.has_signal() or self._clock.now() < until

    def _refresh_if_due(self) -> None:
        now = self._clock.now()
        if now < self._refresh_at or not self.is_stable():
            return
        self._refresh_at = now + self._heartbeat
        with self._application_call():
            self._application.refresh()

    def _member_id(self) -> str:
        return self._share.current().profile.member_id

    # -- calls of the application

    @contextmanager
    def _application_call(self) -> Generator[None]:
        """Call the application in the block: silence, and its exceptions are not the store's.

        An application may raise any error of kip30 itself: its listener may use another store.
        """
        self._is_in_application = True
        with self._activity.callback():
            yield
        self._is_in_application = False

    def _prepare(self, step: steps.PrepareJoin) -> None:
        try:
            with self._application_call():
                self._application.on_join_prepare(step.generation, step.member_id)
        finally:
            self._share.note(lambda facts: facts.prepared())

    def _collect(self, _step: steps.CollectMetadata) -> None:
        with self._application_call():
            offered = self._offered()
            digest = metadata_digest(tuple(self._application.lasting_metadata(offered)))
        self._share.note(lambda facts: facts.collected(offered, digest))

    def _take_up(self, step: steps.TakeUp) -> None:
        self._share.offer(step.assignment)
        try:
            if self._share.is_unconfirmed():
                # A state from a listener confirms nothing, and work that begins in on_join_complete
                # must find its share valid.
                self._share.deliver(self._requests.read_state())
            with self._application_call():
                self._application.on_join_complete(
                    step.generation, self._member_id(), step.protocol, step.assignment.share
                )
        except BaseException:
            self._share.withdraw_offer()
            raise
        self._share.note(lambda facts: facts.taken_up(step.assignment))
        self._share_changed()

    def _lose(self, step: steps.ReportLoss) -> None:
        member_id = self._member_id()
        log.warning("group member %s has lost its share: %s", member_id, step.reason)
        self._share.note(lambda facts: facts.lost())  # first: in on_lost the share is not valid
        self._share_changed()
        with self._application_call():
            self._application.on_lost(step.generation, member_id)

    def _assign(self, vote: Vote) -> None:
        """Perform the assignment that the leader's task asks for; an exception fails the round."""
        members = [_assignment_metadata(member, vote) for member in vote.accepted]
        try:
            with self._application_call():
                shares = _checked(
                    self._application.perform_assignment(self._member_id(), vote.protocol, members)
                )
                follow_up = bool(self._application.follow_up())
        except BaseException as error:
            log.exception("perform_assignment raised")
            self._leader.failed(vote, f"perform_assignment raised {error!r:.200}")
            if not isinstance(error, Exception):
                raise
            return
        self._leader.assigned(vote, shares, follow_up=follow_up)

    def _consider_rejoin(self) -> None:
        """Ask for a round unless nothing has changed; the leader may always ask for one (K18)."""
        facts = self._share.current()
        self._rejoin_wanted.clear()
        if facts.record is not None:
            try:
                with self._application_call():
                    offered = self._offered()
            except BaseException:
                self._rejoin_wanted.set()  # it is not known whether something has changed
                self._has_raised = True
                raise
            self._has_raised = False
            if offered == facts.record.protocols and not self._leader.is_leading():
                return
        self._share.note(lambda facts: facts.wanting_rejoin())

    def _offered(self) -> tuple[JoinGroupMetadata, ...]:
        """Return what the application offers.

        Raises:
            UsageError: It cannot be used. Checked here, because a record with it would be retried
            without limit.
        """
        offered = check_offer(self._application.protocol_type(), self._application.metadata())
        size = sum(len(one.metadata) + len(one.name.encode()) for one in offered)
        limit = min(MEMBER_BYTES, self._requests.value_bytes) - _HEAD_BYTES
        if size > limit:
            raise ValueTooLargeError(f"metadata() offers {size} bytes: {limit} is the limit")
        return offered

    # -- requests

    def _read_state(self, _step: steps.ReadState) -> None:
        self._share.deliver(self._requests.read_state())
        self._share_changed()

    def _read_group(self, _step: steps.ReadGroup) -> None:
        _, members, unreadable = self._requests.read_group()
        self._share.note(lambda facts: facts.read_group(members, unreadable=unreadable))

    def _claim(self, _step: steps.ClaimInstance) -> None:
        version = self._requests.claim_instance()
        self._share.note(lambda facts: facts.claimed(version))

    def _join(self, step: steps.JoinGroup) -> None:
        member = self._requests.join(step.record, self._on_session_lost)
        self._share.joined(member, step.record)
        self._share_changed()

    def _update(self, step: steps.UpdateRecord) -> None:
        self._share.note(lambda facts: facts.written(step.record, acknowledged=False))
        try:
            self._requests.update(step.record)
        except NotMemberError:
            self._share.note(lambda facts: facts.session_over())
        else:
            self._share.note(lambda facts: facts.written(step.record))

    def _fetch(self, step: steps.FetchPart) -> None:
        part = self._requests.fetch_part(step.attempt, step.number)
        self._share.note(lambda facts: facts.fetched(step.attempt, part))

    def _end(self, step: steps.EndMember) -> None:
        self._share.failure = step.error
        raise MemberEndedError(step.error)

    _steps: ClassVar[dict[type, Callable[[Any, Any], None]]] = {
        steps.ReadState: _read_state,
        steps.ReadGroup: _read_group,
        steps.ClaimInstance: _claim,
        steps.PrepareJoin: _prepare,
        steps.CollectMetadata: _collect,
        steps.JoinGroup: _join,
        steps.UpdateRecord: _update,
        steps.FetchPart: _fetch,
        steps.TakeUp: _take_up,
        steps.ReportLoss: _lose,
        steps.EndMember: _end,
    }


def _assignment_metadata(member: PresentMember, vote: Vote) -> AssignmentMetadata:
    record = member.record
    metadata = next(one.metadata for one in record.protocols if one.name == vote.protocol)
    instance = record.instance if record.is_static else None
    is_present = member.member_id not in vote.absent
    return AssignmentMetadata(member.member_id, instance, metadata, is_present)


def _checked(shares: object) -> dict[str, bytes]:
    """Return the checked result of perform_assignment.

    Raises:
        UsageError: It is no mapping of member ids to bytes.
    """
    if not isinstance(shares, Mapping):
        raise UsageError(f"it must return a mapping, not {type(shares).__name__}")
    found = cast("Mapping[object, object]", shares)
    for member_id, share in found.items():
        if not isinstance(member_id, str) or not isinstance(share, bytes | bytearray | memoryview):
            raise UsageError(f"it must map member ids to bytes, not {member_id!r:.60}")
    return {str(name): bytes(cast("bytes", share)) for name, share in found.items()}
