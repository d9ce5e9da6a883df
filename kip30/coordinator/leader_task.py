"""The leader's part: a task that is woken by the group, the state, timers and its own election.

`LeaderTask` asks `leader_next` for a step, carries it out, notes the outcome, and asks again. It
calls nothing of the application: `perform_assignment` runs on the polling thread, which takes the
vote from here and returns the shares.
"""

import logging
import math
import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, ClassVar

from kip30.coordinator.config import GroupConfig
from kip30.coordinator.decisions import LeaderFacts, LeaderRules, StateReading, leader_next, steps
from kip30.coordinator.packing import PackingLimits
from kip30.coordinator.records import MemberRecord
from kip30.coordinator.store_error_retry import outliving_failures
from kip30.coordinator.store_requests import GroupRequests, group_reading
from kip30.coordinator.voting import Vote
from kip30.driver.kit.retry import Retry
from kip30.driver.records import new_nonce
from kip30.errors import (
    KeyExistsError,
    KeyMissingError,
    Kip30Error,
    OutcomeUnknownError,
    UnavailableError,
    VersionConflictError,
)
from kip30.membership import MembershipChange
from kip30.runtime.candidacy import Leadership
from kip30.runtime.dispatcher import Dispatcher

log: logging.Logger = logging.getLogger(__name__)

_CONFLICTS = (KeyExistsError, KeyMissingError, VersionConflictError)

_Change = Callable[[LeaderFacts], LeaderFacts]


class LeaderTask:
    """The work of a member while it leads. Thread-safe."""

    def __init__(  # noqa: PLR0913  the parts of one coordinator, which makes them all
        self,
        requests: GroupRequests,
        dispatcher: Dispatcher,
        *,
        member_id: str,
        config: GroupConfig,
        session_timeout_seconds: float,
        value_bytes: int,
        ask_application: Callable[[], None],
        resigned: Callable[[float], None],
    ) -> None:
        """Wait for an election.

        Args:
            requests: The group's.
            dispatcher: Runs the task.
            member_id: The member's own.
            config: The member's own.
            session_timeout_seconds: The locator's.
            value_bytes: The largest value that the store takes.
            ask_application: Called when there is a vote to be taken by `take_vote`.
            resigned: Called with the moment before which the member must not stand again.
        """
        self._requests = requests
        self._clock = requests.clock
        self._member_id = member_id
        self._config = config
        self._session_timeout = session_timeout_seconds
        self._limits = PackingLimits(value_bytes=value_bytes)
        self._ask_application = ask_application
        self._resigned = resigned
        self._task = dispatcher.task(self._step, f"leader {member_id!r}", waits_for_store=True)
        self._lock = threading.Lock()
        # The present term; None while another member leads. Written under the lock, by
        # callbacks of the election, the task when it resigns, and `close`.
        self._leadership: Leadership | None = None
        # The facts of the term of `_led`; None between terms. Only the task reads and writes these
        # two.
        self._facts: LeaderFacts | None = None
        self._led: Leadership | None = None
        # The place of the newest view of the group that the facts have. Written by the task.
        self._order = -1
        # The events since the last step, in order. Any thread appends, under the lock; the task
        # removes.
        self._news: deque[_Change] = deque()
        # The vote that the application has not received yet. Written under the lock.
        self._vote: Vote | None = None
        # Whether the group must be read: a listener may have missed an event. Set by the
        # heartbeat task.
        self._group_is_due = False
        self._retry = Retry(self._clock)
        # When the newest timer of the task fires. Written by the task.
        self._timer = -math.inf

    # -- any thread

    def is_leading(self) -> bool:
        """Return whether the member leads, by its lease."""
        leadership = self._leadership
        return leadership is not None and leadership.is_valid()

    def elected(self, leadership: Leadership) -> None:
        """Begin a term."""
        with self._lock:
            self._leadership = leadership
        self._task.wake()

    def lost(self, leadership: Leadership) -> None:
        """End a term, if it is the present one."""
        with self._lock:
            if self._leadership is leadership:
                self._leadership = None
        self._task.wake()

    def saw_state(self, reading: StateReading) -> None:
        """Read the state again unless *reading* shows what the leader knows.

        A listener may be late, so a state that it delivers with a smaller version is outdated. A
        reading of the heartbeat task is not, except one that crosses a write of this leader: then
        one read is wasted.
        """
        self._have(lambda facts: _outdated(facts, reading))

    def read_group_soon(self) -> None:
        """Read the group once nothing else is due: a listener may have missed an event."""
        self._group_is_due = True
        self._task.wake()

    def take_vote(self) -> Vote | None:
        """Return the vote for which the application must perform the assignment, once."""
        with self._lock:
            vote, self._vote = self._vote, None
            return vote

    def assigned(self, vote: Vote, shares: Mapping[str, bytes], *, follow_up: bool) -> None:
        """Note what the application has assigned for *vote*."""
        unknown = shares.keys() - {member.member_id for member in vote.accepted}
        if unknown:
            log.warning("ignoring shares of ids that are no members: %.200s", sorted(unknown))
        self._have(
            lambda facts: (
                facts.assigned(shares, follow_up=follow_up) if _is_for(facts, vote) else facts
            )
        )

    def failed(self, vote: Vote, reason: str) -> None:
        """Note that there is no assignment for *vote*."""
        self._have(lambda facts: facts.failed(reason) if _is_for(facts, vote) else facts)

    def close(self) -> None:
        """Stop the task; the caller resigns."""
        with self._lock:
            self._leadership = None
        self._task.close()

    # -- the task

    def _have(self, change: _Change) -> None:
        with self._lock:
            if self._leadership is None:
                return  # the next term reads all of it again
            self._news.append(change)
        self._task.wake()

    def _group_changed(self, change: MembershipChange[MemberRecord]) -> None:
        members = change.members

        def noted(facts: LeaderFacts) -> LeaderFacts:
            if members.order <= self._order:
                return facts
            reading = group_reading(members)
            self._order = reading.order
            return facts.saw_group(reading.members, unreadable=reading.unreadable)

        self._have(noted)

    def _step(self) -> None:
        with outliving_failures("the leader's task", self._go_on_later):
            self._follow_election()
            if self._facts is not None:
                self._lead()
            self._retry.succeeded()

    def _go_on_later(self) -> None:
        self._retry.failed()
        self._wake_at(self._retry.due)

    def _follow_election(self) -> None:
        """Start with new facts in each term: a successor knows nothing of earlier terms."""
        leadership = self._leadership
        if self._led is leadership and (leadership is None or self._facts is not None):
            return
        self._requests.forget_group(self._group_changed)
        self._facts = self._led = None
        with self._lock:
            self._vote = None
            self._news.clear()
        self._order = -1
        if leadership is None or not leadership.is_valid():
            return
        rules = LeaderRules(
            member_id=self._member_id,
            epoch=leadership.epoch,
            config=self._config,
            session_timeout_seconds=self._session_timeout,
            limits=self._limits,
        )
        # The listener first: changes after its first call must find the facts there.
        self._requests.listen_to_group(self._group_changed)
        reading = self._requests.read_group()
        facts = LeaderFacts(now=self._clock.now(), nonce=new_nonce(), rules=rules)
        self._order, self._led = reading.order, leadership
        self._facts = facts.saw_group(reading.members, unreadable=reading.unreadable)
        log.info("%s leads its group with epoch %s", self._member_id, leadership.epoch)

    def _lead(self) -> None:
        while self._facts is not None and self._led is self._leadership:
            if self._led is None or not self._led.is_valid():
                return
            facts = self._facts.at(self._clock.now(), new_nonce())
            facts = self._facts = self._with_news(facts)
            step = leader_next(facts)
            if isinstance(step, steps.WaitForChange):
                if self._group_is_due:
                    self._group_is_due = False
                    step = steps.ReadGroup()
                else:
                    if step.until is not None:
                        self._wake_at(step.until)
                    return
            self._steps[type(step)](self, facts, step)

    def _with_news(self, facts: LeaderFacts) -> LeaderFacts:
        while True:
            with self._lock:
                if not self._news:
                    return facts
                change = self._news.popleft()
            facts = change(facts)

    def _note(self, change: _Change) -> None:
        if self._facts is not None:
            self._facts = change(self._facts.at(self._clock.now()))

    def _wake_at(self, moment: float) -> None:
        """Schedule a step at *moment*, with one timer for everything that is due."""
        if not self._clock.now() < self._timer <= moment:
            self._timer = moment
            self._task.wake_at(moment)

    # -- steps

    def _read_state(self, _facts: LeaderFacts, _step: steps.ReadState) -> None:
        reading = self._requests.read_state()
        self._note(lambda facts: facts.read(reading))

    def _read_group(self, _facts: LeaderFacts, _step: steps.ReadGroup) -> None:
        order, members, unreadable = self._requests.read_group()
        self._order = max(self._order, order)
        self._note(lambda facts: facts.saw_group(members, unreadable=unreadable, linearizable=True))

    def _write_state(self, _facts: LeaderFacts, step: steps.WriteState) -> None:
        try:
            version = self._requests.write_state(step.record, step.expected)
        except _CONFLICTS:
            self._note(lambda facts: facts.unread())
        except (UnavailableError, OutcomeUnknownError):
            self._note(lambda facts: facts.unread())
            raise
        else:
            self._note(lambda facts: facts.written(step.record, version))

    def _read_parts(self, _facts: LeaderFacts, step: steps.ReadParts) -> None:
        parts = self._requests.read_parts(step.attempt, step.numbers)
        self._note(lambda facts: facts.read_parts(parts))

    def _read_instances(self, _facts: LeaderFacts, step: steps.ReadInstances) -> None:
        instances = self._requests.read_instances(step.instances)
        self._note(lambda facts: facts.read_instances(instances))

    def _assign(self, _facts: LeaderFacts, step: steps.Assign) -> None:
        self._note(lambda facts: facts.assigning(step.vote))
        with self._lock:
            self._vote = step.vote
        self._ask_application()

    def _put_parts(self, _facts: LeaderFacts, step: steps.PutParts) -> None:
        try:
            self._requests.put_parts(step.attempt, step.parts)
        except Kip30Error:
            self._note(lambda facts: facts.abandoned())
            raise
        self._note(lambda facts: facts.stored())

    def _clean(self, _facts: LeaderFacts, step: steps.CleanParts) -> None:
        """Delete outdated parts; those that cannot be deleted now are deleted by a later round."""
        with suppress(UnavailableError, OutcomeUnknownError):
            self._requests.clean(step.generation)
        self._note(lambda facts: facts.cleaned_up(step.generation))

    def _resign(self, _facts: LeaderFacts, step: steps.Resign) -> None:
        log.warning("%s resigns: %s", self._member_id, step.reason)
        self._facts = None
        with self._lock:
            if self._leadership is self._led:  # otherwise the next term has begun already
                self._leadership = None
        self._task.wake()  # to forget the group
        self._resigned(self._clock.now() + step.barred_seconds)

    _steps: ClassVar[dict[type, Callable[[Any, LeaderFacts, Any], None]]] = {
        steps.ReadState: _read_state,
        steps.ReadGroup: _read_group,
        steps.WriteState: _write_state,
        steps.ReadParts: _read_parts,
        steps.ReadInstances: _read_instances,
        steps.Assign: _assign,
        steps.PutParts: _put_parts,
        steps.CleanParts: _clean,
        steps.Resign: _resign,
    }


def _outdated(facts: LeaderFacts, reading: StateReading) -> LeaderFacts:
    known = facts.reading
    if known is None or known.version == reading.version:
        return facts
    is_late = reading.sent_at is None and (
        reading.version is None or (known.version is not None and reading.version < known.version)
    )
    return facts if is_late else facts.unread()


def _is_for(facts: LeaderFacts, vote: Vote) -> bool:
    """Return whether *vote* is that of the generation which is being formed now."""
    return facts.formation is not None and facts.formation.vote is vote
