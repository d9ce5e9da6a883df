"""The heartbeat task: reads the state, and leaves when the application does not poll.

It calls nothing of the application, so it continues while a callback runs, and therefore must check
whether the application still polls.
"""

import logging

from kip30.coordinator.candidate_task import CandidateTask
from kip30.coordinator.config import GroupConfig
from kip30.coordinator.decisions import HeartbeatFacts, heartbeat_next, steps
from kip30.coordinator.leader_task import LeaderTask
from kip30.coordinator.poll_activity import PollActivity
from kip30.coordinator.shared_member import MemberShare
from kip30.coordinator.store_error_retry import outliving_failures
from kip30.coordinator.store_requests import GroupRequests
from kip30.runtime.dispatcher import Dispatcher

log: logging.Logger = logging.getLogger(__name__)


class HeartbeatTask:
    """The work of a member beside the polling thread. Thread-safe."""

    def __init__(  # noqa: PLR0913  the parts of one coordinator, which makes them all
        self,
        requests: GroupRequests,
        dispatcher: Dispatcher,
        share: MemberShare,
        leader: LeaderTask,
        candidate: CandidateTask,
        *,
        config: GroupConfig,
        activity: PollActivity,
    ) -> None:
        """Do nothing before it is woken."""
        self._requests = requests
        self._clock = requests.clock
        self._share = share
        self._leader = leader
        self._candidate = candidate
        self._config = config
        self._activity = activity
        self._task = dispatcher.task(self._step, "heartbeat", waits_for_store=True)
        self._deadline = dispatcher.task(self._watch_deadline, "deadline of the share")
        # When the last reading of the state was sent, how many were sent, and how often it looked
        # for a leader. Only the task reads and writes these.
        self._read_at = self._clock.now()
        self._beats = 0
        self._looks = 0
        # Whether no step follows before a silence of the application ends. Written by the task.
        self._is_idle = True
        # Whether a reading is due at once. Any thread sets it, the task clears it.
        self._read_now = False

    def wake(self) -> None:
        """Continue, because a silence of the application has ended (`PollActivity.resumed`)."""
        if self._is_idle:
            self._task.wake()

    def watch_deadline(self) -> None:
        """Set `MemberShare.lost` at the deadline of the present share."""
        self._deadline.wake()

    def read_soon(self) -> None:
        """Read the state now: a listener delivered one that cannot follow the known ones."""
        self._read_now = True
        self._task.wake()

    def close(self) -> None:
        """Stop the task."""
        self._task.close()
        self._deadline.close()

    def _watch_deadline(self) -> None:
        due = self._share.end_if_late()
        if due is not None:
            self._deadline.wake_at(due)

    def _step(self) -> None:
        self._is_idle = False
        with outliving_failures("the heartbeat task", self._step_later):
            self._run_step()

    def _step_later(self) -> None:
        self._task.wake_at(self._clock.now() + self._config.heartbeat_seconds)

    def _run_step(self) -> None:
        while True:
            step = steps.ReadState() if self._read_now else heartbeat_next(self._facts())
            if isinstance(step, steps.WaitForChange):
                if step.until is not None:
                    self._task.wake_at(step.until)
                return
            if isinstance(step, steps.LeaveGroup):
                self._leave(step.reason)
                self._is_idle = True  # before the question: a silence that ends later wakes it
                if self._activity.is_silent():
                    return
                self._is_idle = False
            elif isinstance(step, steps.LookForLeader):
                self._look()
            else:
                self._read()

    def _facts(self) -> HeartbeatFacts:
        return HeartbeatFacts(
            now=self._clock.now(),
            leave_at=self._activity.leave_at(),
            read_at=self._read_at,
            beats=self._beats,
            looks=self._looks,
            heartbeat_seconds=self._config.heartbeat_seconds,
            rebalance_timeout_seconds=self._config.rebalance_timeout_seconds,
        )

    def _read(self) -> None:
        self._read_now = False
        self._read_at = self._clock.now()
        self._beats += 1
        reading = self._requests.read_state()
        self._share.deliver(reading)
        self._leader.saw_state(reading)
        self._deadline.wake()

    def _look(self) -> None:
        self._looks += 1
        if self._leader.is_leading():
            self._leader.read_group_soon()
        self._candidate.look()

    def _leave(self, reason: str) -> None:
        if not self._share.is_member():
            self._activity.left()
            return
        log.warning("leaving the group: %s", reason)
        try:
            self._requests.leave()
        finally:
            self._activity.left()
            self._candidate.wake()  # only a member may lead
            self._deadline.wake()
