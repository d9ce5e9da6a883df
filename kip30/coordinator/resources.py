"""The parts of one coordinator that do I/O, and how they notify each other."""

import logging
import threading

from kip30.coordinator.candidate_task import CandidateTask
from kip30.coordinator.config import GroupConfig
from kip30.coordinator.decisions import MemberProfile, StateReading
from kip30.coordinator.heartbeat_task import HeartbeatTask
from kip30.coordinator.interface import MemberApplication
from kip30.coordinator.keys import GroupKeys
from kip30.coordinator.leader_task import LeaderTask
from kip30.coordinator.member_loop import MemberLoop
from kip30.coordinator.poll_activity import PollActivity
from kip30.coordinator.records import StateRecord
from kip30.coordinator.shared_member import MemberShare
from kip30.coordinator.store_requests import GroupRequests
from kip30.driver.records import Version
from kip30.errors import Kip30Error
from kip30.listeners import ValueChange
from kip30.locator import PluginLocator
from kip30.names import check_id
from kip30.runtime.dispatcher import Dispatcher
from kip30.runtime.member import Member

log: logging.Logger = logging.getLogger(__name__)


class Resources:
    """Requests, tasks and the member's loop of one coordinator.

    Attributes:
        share: The shared state of the member.
        requests: The requests to the store.
        leader: The leader's task.
        member: The steps of the member.
    """

    def __init__(  # noqa: PLR0913  what the coordinator was made with
        self,
        application: MemberApplication,
        locator: PluginLocator,
        keys: GroupKeys,
        *,
        member_id: str,
        config: GroupConfig,
        closing: threading.Event,
    ) -> None:
        """Make all parts; nothing is sent and no thread runs before `begin`."""
        context = locator.context
        instance = config.group_instance_id or member_id
        profile = MemberProfile(
            member_id=member_id,
            instance=instance,
            protocol_type=check_id(application.protocol_type(), "protocol type"),
            rebalance_timeout_seconds=config.rebalance_timeout_seconds,
            margin_seconds=context.margin_seconds,
            cooperative=application.is_cooperative(),
            eligible=config.eligible,
            wait_for_predecessor=config.wait_for_predecessor,
        )
        activity = PollActivity(context.clock, config.rebalance_timeout_seconds)
        share = MemberShare(profile, context.clock, activity)
        self.share: MemberShare = share
        self._patience = context.operation_timeout_seconds
        self.requests: GroupRequests = GroupRequests(locator, keys, member_id, instance)
        self._dispatcher = Dispatcher(context.clock, name=f"kip30-group-{keys.group}")
        self.leader: LeaderTask = LeaderTask(
            self.requests,
            self._dispatcher,
            member_id=member_id,
            config=config,
            session_timeout_seconds=context.session_timeout_seconds,
            value_bytes=self.requests.value_bytes,
            ask_application=share.signal,
            resigned=self._resigned,
        )
        self._candidate = CandidateTask(
            self.requests,
            self._dispatcher,
            share,
            self.leader,
            config=config,
            session_timeout_seconds=context.session_timeout_seconds,
        )
        self.member: MemberLoop = MemberLoop(
            application,
            share,
            self.requests,
            self.leader,
            operation_timeout_seconds=self._patience,
            heartbeat_seconds=config.heartbeat_seconds,
            closing=closing,
            on_session_lost=self._session_lost,
            share_changed=self._share_changed,
            listen=lambda: self.requests.listen_to_state(self._state_changed),
        )
        self._heartbeat = HeartbeatTask(
            self.requests,
            self._dispatcher,
            share,
            self.leader,
            self._candidate,
            config=config,
            activity=activity,
        )
        activity.resumed = self._heartbeat.wake
        # Whether the dispatcher was started. Only the polling thread reads and writes it.
        self._has_threads = False

    def begin(self) -> None:
        """Start the threads of the tasks if they do not run; called before each poll.

        Raises:
            UnavailableError: The system has no thread to spare.
        """
        if not self._has_threads:
            self._dispatcher.start()
            self._has_threads = True

    def close(self, *, gives_instance_up: bool) -> None:
        """Leave the group and the election, and end all threads."""
        self.leader.close()
        self._candidate.close()
        self._heartbeat.close()
        claim = self.share.end()
        try:
            if gives_instance_up and claim is not None:
                self._give_instance_up(claim)
        finally:
            try:
                self.requests.close()
            finally:
                self._dispatcher.close(self._patience)

    def _give_instance_up(self, claim: Version) -> None:
        """Called before the member leaves, so that its leader waits for no other process."""
        try:
            self.requests.empty_instance(claim)
        except Kip30Error as error:
            log.warning("the share is kept for a while, as of a static member: %s", error)

    def _state_changed(self, change: ValueChange[StateRecord]) -> None:
        reading = StateReading(change.value, change.version)
        known = self.share.current().reading
        newest = None if known is None else known.version
        if newest is not None and (change.version is None or change.version < newest):
            self._heartbeat.read_soon()  # it is late, or the store has lost its data
        self.share.deliver(reading)
        self.leader.saw_state(reading)

    def _session_lost(self, _member: Member) -> None:
        self.share.signal()
        self._share_changed()

    def _share_changed(self) -> None:
        self._candidate.wake()
        self._heartbeat.watch_deadline()

    def _resigned(self, barred_until: float) -> None:
        self._candidate.resigned(barred_until)
