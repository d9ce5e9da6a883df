"""The facts of a coordinator's member that all its threads share, and whether its share is valid.

Only the polling thread replaces the facts, and it applies readings of the state only between two
steps: a step may rely on the reading that it was decided by. Until then the readings are queued;
but the deadline always counts all of them, because the application may poll seldom, and the
heartbeat task reads all the time.
"""

import os
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from kip30.coordinator.decisions import MemberFacts, MemberProfile, OwnGeneration, StateReading
from kip30.coordinator.decisions.validity import NEVER
from kip30.coordinator.poll_activity import PollActivity
from kip30.coordinator.records import Assignment, MemberRecord
from kip30.driver.clock import Clock
from kip30.driver.records import Version, new_nonce
from kip30.errors import FencedInstanceError, Kip30Error
from kip30.runtime.member import Member

_MOST_ARRIVED = 256


class _Arrival(NamedTuple):
    """A reading, and when it arrived."""

    at: float
    reading: StateReading


class MemberShare:
    """The facts of one member, its membership, and its share. Thread-safe.

    Attributes:
        changed: Notified whenever there may be something to do for the polling thread. Its lock
            protects all that is in here.
        failure: Why the group has ended the member; None unless it has.
        activity: Whether the application polls: a member that leaves for its silence has no share.
        watcher: Called in any thread whenever anything in here may have changed.
    """

    def __init__(self, profile: MemberProfile, clock: Clock, activity: PollActivity) -> None:
        """Start outside of the group."""
        self.activity = activity
        self.changed: threading.Condition = threading.Condition()
        self.clock = clock
        # Why the group has ended the member for good; None unless it has. Written by the polling
        # thread, before it gives the share up.
        self.failure: Kip30Error | None = None
        # The facts as of the last step. Only the polling thread replaces them.
        self._facts = MemberFacts(now=clock.now(), nonce=new_nonce(), profile=profile)
        # Readings that have arrived since, in order. Any thread appends. If the application no
        # longer polls, the oldest are dropped: that can only shorten the deadline.
        self._arrived: deque[_Arrival] = deque(maxlen=_MOST_ARRIVED)
        # The present membership, or the last one. Replaced by the polling thread.
        self._member: Member | None = None
        # The facts as they will be when on_join_complete has returned, while it runs: the work that
        # it begins may ask at once whether its share is valid.
        self._offered: MemberFacts | None = None
        # The offered facts, or else the known ones, with all readings that have arrived.
        self._view = self._facts
        # When the facts last had no reading: readings sent before are outdated.
        self._unread_since = clock.now()
        # Called with the lock held, so it must not block. Written once, before the member takes
        # part.
        self.watcher: Callable[[], object] = _nothing
        # How often `changed` was notified, and how often by the time of the last step.
        self._signals = 0
        self._seen = 0
        # Set when the present share has ended, and a new one with each share that begins.
        self._lost = threading.Event()
        self._lost.set()
        self._pid = os.getpid()

    # -- any thread

    def deliver(self, reading: StateReading) -> None:
        """Pass *reading* to the polling thread, which applies it before its next step."""
        with self.changed:
            arrival = _Arrival(self.clock.now(), reading)
            self._arrived.append(arrival)
            self._view = self._counted(self._view, arrival)
            self._signal()

    def signal(self) -> None:
        """Wake the polling thread, so that it decides its next step again."""
        with self.changed:
            self._signal()

    def current(self) -> MemberFacts:
        """Return the facts at this moment, with all readings that have arrived."""
        with self.changed:
            facts = self._view
            if facts.record is not None and not self.is_member():
                facts = facts.session_over()
            return self._leased(facts).at(self.clock.now())

    def deadline(self) -> float:
        """Return until when the share is valid by what is known at this moment."""
        if os.getpid() != self._pid:  # another thread may have held the lock at the fork
            return NEVER
        facts = self.current()
        member = self._member
        return facts.deadline if member is not None and member.is_valid() else NEVER

    def is_valid(self) -> bool:
        """Return whether the share is valid at this moment."""
        return self.clock.now() < self.deadline()

    def is_member(self) -> bool:
        """Return whether the group shows this member, by its lease."""
        member = self._member
        return member is not None and member.is_valid()

    def check_instance(self) -> None:
        """Return unless the member has ended because another process has its instance.

        Raises:
            FencedInstanceError: It has. Nothing was done.
        """
        if isinstance(self.failure, FencedInstanceError):
            raise FencedInstanceError(str(self.failure))

    @property
    def lost(self) -> threading.Event:
        """Set once the share that the member has at this moment has ended."""
        return self._lost

    def end_if_late(self) -> float | None:
        """Set `lost` if the share has ended by the clock; return when to check again, if ever."""
        with self.changed:
            facts = self.current()
            if facts.own is None or facts.own.confirmed_at is None:
                return None
            if self.is_valid():
                return facts.deadline
            self._lost.set()
            self._signal()
            return None

    # -- the polling thread

    def next_facts(self) -> MemberFacts:
        """Return the facts for the next step: now, with a new nonce and all that has arrived."""
        with self.changed:
            self._seen = self._signals
            facts = self._facts
            while self._arrived:
                facts = self._counted(facts, self._arrived.popleft())
            if facts.record is not None and not self.is_member():
                facts = facts.session_over()
            facts = self._leased(facts).at(self.clock.now(), new_nonce())
            self._replace(facts)
            return facts

    def note(self, change: Callable[[MemberFacts], MemberFacts]) -> None:
        """Replace the facts by the result of *change*, at this moment."""
        with self.changed:
            self._replace(change(self._leased(self._facts).at(self.clock.now())))

    def joined(self, member: Member, record: MemberRecord) -> None:
        """Note the membership that began with *record*."""
        with self.changed:
            self._member = member
            self.note(lambda facts: facts.joined(record, lease_deadline=member.deadline))

    def offer(self, assignment: Assignment) -> None:
        """Count *assignment* as taken up until the next `note`, and as valid if it is confirmed."""
        with self.changed:
            self._offered = self._facts.taken_up(assignment)
            self._begin_or_end(self._facts.own, self._offered.own)
            self._publish_view(self._offered)

    def is_offered(self) -> bool:
        """Return whether a share is offered that is not taken up yet."""
        return self._offered is not None

    def is_unconfirmed(self) -> bool:
        """Return whether a reading may make the present share valid that is not valid yet."""
        facts = self.current()
        own, state = facts.own, facts.state
        is_waiting = own is not None and own.confirmed_at is None
        return is_waiting and state is not None and not state.is_preparing

    def withdraw_offer(self) -> None:
        """Note that the offered share was not taken up."""
        with self.changed:
            offered, self._offered = self._offered, None
            if offered is not None:
                self._begin_or_end(offered.own, self._facts.own)
                self._publish_view(self._facts)

    def end(self) -> Version | None:
        """Give the share up for good; return the version of the own instance, if it was claimed."""
        with self.changed:
            self.note(lambda facts: facts.lost())
            self._member = None
            return self._facts.claim

    def wait(self, until: float) -> bool:
        """Wait until there may be something to do since the last step; false at *until*."""
        with self.changed:
            while self._signals == self._seen:
                left = until - self.clock.now()
                if left <= 0:
                    return False
                self.clock.wait(self.changed, left)
            return True

    def has_signal(self) -> bool:
        """Return whether there may be something to do since the last step."""
        return self._signals != self._seen

    # -- with the lock

    def _signal(self) -> None:
        self._signals += 1
        self.changed.notify_all()
        self.watcher()

    def _counted(self, facts: MemberFacts, arrival: _Arrival) -> MemberFacts:
        """Return *facts* with a reading, as of its arrival: a later call must not change that."""
        reading = arrival.reading
        if facts.reading is None and (
            reading.sent_at is None or reading.sent_at < self._unread_since
        ):
            return facts  # it may be from before the facts lost their reading
        return self._leased(facts).at(arrival.at).read(reading)

    def _leased(self, facts: MemberFacts) -> MemberFacts:
        """Return *facts* with the newest deadline of the membership: the lease, or its leave."""
        if facts.record is None or self._member is None:
            return facts
        deadline = self._member.deadline if self._member.is_valid() else 0.0
        return replace(facts, lease_deadline=min(deadline, self.activity.leave_at()))

    def _replace(self, facts: MemberFacts) -> None:
        if facts.reading is None and self._facts.reading is not None:
            self._unread_since = self.clock.now()
        known = self._facts if self._offered is None else self._offered
        self._begin_or_end(known.own, facts.own)
        self._facts, self._offered = facts, None
        self._publish_view(facts)

    def _publish_view(self, facts: MemberFacts) -> None:
        for arrival in self._arrived:
            facts = self._counted(facts, arrival)
        self._view = facts
        self.watcher()

    def _begin_or_end(self, old: OwnGeneration | None, new: OwnGeneration | None) -> None:
        """Set `lost` if *old* does not continue in *new*, and use another event for *new*."""
        if new is not None and not new.is_given_up and _goes_on(old, new):
            return
        self._lost.set()
        if new is not None and not new.is_given_up:
            self._lost = threading.Event()


def _goes_on(old: OwnGeneration | None, new: OwnGeneration) -> bool:
    return old is not None and not old.is_given_up and old.assignment.since == new.assignment.since


def _nothing() -> None:
    """Do nothing."""
