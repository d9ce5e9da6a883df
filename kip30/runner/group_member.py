"""A member of a group that divides a list of items, for runners, on a store opened later."""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, TypeVar

from typing_extensions import override

from kip30.config import CommonSettings, Properties, build
from kip30.coordinator import (
    AssignmentMetadata,
    CooperativeStickyAssignor,
    GroupConfig,
    JoinGroupMetadata,
    PartitionCoordinator,
    RebalanceListener,
)
from kip30.driver.clock import SystemClock
from kip30.driver.closeable import Closeable
from kip30.errors import (
    AuthenticationError,
    ClosedError,
    LifecycleError,
    NotMemberError,
    OutcomeUnknownError,
    StoreError,
    UnavailableError,
    UnsupportedError,
)
from kip30.locator import PluginLocator
from kip30.runner.item_lists import ItemList
from kip30.runner.retried_call import RetriedCall, StoreProbe, refuse_overlap
from kip30.runner.share_protocols import HeldShare

_SLOW_END_SECONDS = 5.0
"""Seconds that a round waits for a member beyond the time its command may take to end."""
_COALESCE_SECONDS = 0.02
"""A command should continue soon after its runner was killed; several deaths cost more rounds."""
_MOST_HEARTBEAT_SECONDS = 3.0
_HEARTBEATS = 4
_REFRESH_SECONDS = 300.0
"""How often the leader looks at a list that notifies it of changes anyway."""
_LOOK_SECONDS = 0.01
_OF_THE_STORE = (AuthenticationError, OutcomeUnknownError, StoreError, UnavailableError)
"""Errors of a poll that tell why there is no share; the poll is retried after all of them."""
_CLOCK = SystemClock()
"""The one by which shares end."""

S = TypeVar("S", bound="GroupShare")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkList:
    """Items that a group divides, and the identity of this process in it.

    Attributes:
        group: The group.
        items: The items.
        client: The beginning of the member id.
        instance: The instance id of a static member; None for a dynamic one.
        grace_seconds: How long a command may take to end.
    """

    group: str
    items: ItemList
    client: str
    instance: str | None
    grace_seconds: float

    def config(self, session_timeout_seconds: float) -> GroupConfig:
        """Return the settings of the member.

        A round waits for a command that uses its whole grace; otherwise a slow end would be a loss.
        """
        heartbeat = min(_MOST_HEARTBEAT_SECONDS, session_timeout_seconds / _HEARTBEATS)
        return GroupConfig(
            rebalance_timeout_seconds=session_timeout_seconds
            + self.grace_seconds
            + _SLOW_END_SECONDS,
            heartbeat_seconds=heartbeat,
            coalesce_seconds=min(_COALESCE_SECONDS, session_timeout_seconds),
            group_instance_id=self.instance,
            wait_for_predecessor=self.instance is not None,
            client_id=self.client,
        )


class ListMember(PartitionCoordinator):
    """A member that gets items of a list.

    Attributes:
        work: The list, and the identity of the member.
        session_timeout_seconds: How long the store keeps its lease without renewal.
    """

    def __init__(self, locator: PluginLocator, work: WorkList, listener: RebalanceListener) -> None:
        """Prepare a member; *listener* is called for items that come and go."""
        self.work: WorkList = work
        self.session_timeout_seconds: float = locator.context.session_timeout_seconds
        super().__init__(
            locator,
            work.group,
            subscription=work.items.subscription,
            topics=work.items.topics,
            listener=listener,
            refresh_seconds=_REFRESH_SECONDS,
            config=work.config(self.session_timeout_seconds),
        )

    @override
    def metadata(self) -> Sequence[JoinGroupMetadata]:
        return [JoinGroupMetadata(self.work.items.protocol, said) for _, said in super().metadata()]

    @override
    def perform_assignment(
        self, leader_id: str, protocol: str, all_member_metadata: Sequence[AssignmentMetadata]
    ) -> Mapping[str, bytes]:
        name = CooperativeStickyAssignor.name  # the rest of the protocol is the list
        return super().perform_assignment(leader_id, name, all_member_metadata)

    def divide_again(self) -> None:
        """Ask for a round, because the list has changed; any thread may call.

        Only the leader gets one. The others look at the list when they become it.
        """
        self._refresh_at = 0.0
        with suppress(ClosedError, LifecycleError):
            self.request_rejoin("the list of items has changed")


class GroupShare:
    """The items of one member from the generation that gave them; a `kip30.runner.HeldShare`.

    Attributes:
        lost: Set once it is known to have ended, which is final.
        wanted_back: Set once the group waits for it.
        known_deadline: The latest deadline that the runner can know: its guard ends the command by
            then, even if the share is lost before.
    """

    def __init__(self, member: "ListMember", items: Sequence[str], generation: int) -> None:
        """Stay valid as long as the share of *member* is, until `lost` is set."""
        self.items: Sequence[str] = items
        self.generation: int = generation
        # If the member has lost it meanwhile, and has a share of another history, `lost` is set.
        self.history: str = member.history
        self.member: str = member.member_id
        self.key: str = member.work.instance or member.member_id
        self.timeout_seconds: float = member.session_timeout_seconds
        self.lost: threading.Event = threading.Event()
        self.wanted_back: threading.Event = threading.Event()
        self.known_deadline: float = member.deadline
        self._coordinator = member

    @property
    def deadline(self) -> float:
        """The time at which it ends unless confirmed again; 0 if it has ended."""
        # Read before the look at `lost`, which is set before the member has another share: the
        # deadline of that one must not be taken for this one's.
        deadline = self._coordinator.deadline
        if self.lost.is_set():
            return 0.0
        self.known_deadline = max(self.known_deadline, deadline)
        return max(0.0, deadline)

    def is_valid(self) -> bool:
        """Return whether no other member can have an item of it yet; once false, it stays false."""
        if not self.lost.is_set() and not self._coordinator.is_valid():
            self.lost.set()
        return not self.lost.is_set()


class Handover(ABC, Generic[S]):
    """Gives the shares of a member to the runner, and waits until it gives them up. Thread-safe.

    The polling thread changes the shares; the runner's thread takes them and gives them up.
    """

    def __init__(self) -> None:
        """Start without shares."""
        # Its lock protects all that is in here; notified at every change.
        self._changed = threading.Condition()
        # Set when the runner has ended, and takes and gives up nothing any longer.
        self._is_closed = False
        # Called when a share of the runner must end. Only with the lock, and while the runner has
        # it: so never after `give_up` has returned. Written once, before the member is started.
        self._notify: Callable[[], None] = _nothing

    def call_on_end(self, notify: Callable[[], None]) -> None:
        """Register *notify*; see `kip30.runner.Workshare`."""
        self._notify = notify

    @abstractmethod
    def give_up(self, share: object) -> None:
        """Note that no process works on *share* any longer."""

    @abstractmethod
    def ready(self) -> int:
        """Return how many shares there are to hand out."""

    @abstractmethod
    def _hand_out(self, member: ListMember) -> S:
        """Return the next share of *member*, which the runner then has. Called with the lock."""

    @abstractmethod
    def _has_any(self) -> bool:
        """Return whether the runner has anything that it has not given up. Called with the lock."""

    def take(self, member: ListMember, timeout: float) -> S | None:
        """Return a share for the runner, None if there is none within *timeout* seconds.

        A share that is not confirmed yet, or no longer, counts as none. A share that the runner
        gave up while the member kept it is handed out again.

        Raises:
            Kip30Error: The member has ended for good, and the runner has nothing of it.
        """
        until = time.monotonic() + timeout
        with self._changed:
            while True:
                if self.ready() and member.is_valid():
                    return self._hand_out(member)
                # A member that ends has reported the loss of its share before.
                if member.failure is not None and not self._has_any():
                    raise member.failure
                left = until - time.monotonic()
                if left <= 0:
                    return None
                self._changed.wait(min(left, _LOOK_SECONDS))

    def is_idle(self) -> bool:
        """Return whether the runner has nothing, and there is nothing to hand out."""
        with self._changed:
            return not (self._has_any() or self.ready())

    def _await_end(self, is_held: Callable[[], bool], until: float) -> None:
        """Wait while *is_held*, or until the clock shows *until*. Called with the lock.

        A share may be lost before its deadline, as when another process takes the instance. The
        member must not leave, nor say that it has nothing, while a process works on it.
        """
        while is_held() and not self._is_closed and (left := until - _CLOCK.now()) > 0:
            _CLOCK.wait(self._changed, left)

    def close(self) -> None:
        """Stop waiting for the runner: it has ended."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()


@dataclass(frozen=True, slots=True)
class Entered(Generic[S]):
    """A member, and the handover of its shares to the runner."""

    member: ListMember
    handover: Handover[S]


class GroupHandle(Closeable, Generic[S]):
    """One member of one group of the configured store; a `kip30.runner.Workshare`.

    One thread opens the store, and another one polls the group. Subclasses decide which part of the
    member's share the runner gets.
    """

    def __init__(self, properties: Properties, work: WorkList) -> None:
        """Open nothing before `wait`."""
        self._properties = properties
        self._work = work
        self._locator = PluginLocator()
        self._is_open = False
        self._notify: Callable[[], None] = _nothing
        self._entry = RetriedCall(self._enter)
        self._probe = StoreProbe(self._locator)
        # The present member; None before the first, and after `leave`.
        self._entered: Entered[S] | None = None

    @abstractmethod
    def _new_member(self, locator: PluginLocator, work: WorkList) -> Entered[S]:
        """Return a member that is not started yet, and its handover."""

    def wait(self, timeout: float) -> S | None:
        """Join as a member and wait for a share; see `kip30.runner.Workshare`.

        Raises:
            GroupError: The group refuses this member: its members divide another list.
            KeyMissingError, UsageError: There is no list in the store, or it cannot be divided.
            FencedInstanceError: Another process has taken the instance.
        """
        entered = self._entered = self._entry.result(timeout)
        if entered is None:
            return None
        share = entered.handover.take(entered.member, timeout)
        if share is None and entered.handover.is_idle():
            self._check_store(entered.member)
        return share

    def has_tried(self) -> bool:
        """Return whether an attempt to join ended or timed out; see `kip30.runner.Workshare`."""
        timeouts = build(CommonSettings, self._properties)
        return self._entry.has_tried(timeouts.operation_timeout_seconds)

    def call_on_end(self, notify: Callable[[], None]) -> None:
        """Register *notify* for the end of a share; see `kip30.runner.Workshare`."""
        self._notify = notify

    def share_fd(self) -> int | None:
        """Return a descriptor that keeps the lease of the member, if there is one.

        There is none where a lease ends with its timeout only, or if it has already ended, which
        the runner is about to see.
        """
        if self._entered is None:
            return None
        try:
            return self._entered.member.share_lease()
        except (UnsupportedError, NotMemberError, ClosedError, LifecycleError):
            return None

    def give_up(self, share: HeldShare) -> None:
        """Let the group give the items of *share* to others."""
        if self._entered is not None:
            self._entered.handover.give_up(share)

    def leave(self) -> None:
        """Leave the group; the share of a member with an instance waits for its next process."""
        entered, self._entered = self._entered, None
        if entered is not None:
            entered.handover.close()
            self._entry.forget()
            entered.member.close()

    @override
    def close(self) -> None:
        """Leave, and close the store."""
        self.leave()
        self._locator.close()

    def _check_store(self, member: ListMember) -> None:
        """Raise why *member*, which has nothing, may wait in vain; else do nothing."""
        if isinstance(member.poll_failure, _OF_THE_STORE):
            raise member.poll_failure
        self._probe.check()

    def _enter(self) -> Entered[S]:
        if not self._is_open:
            refuse_overlap(self._locator.startup(self._properties).backend)
            self._is_open = True
        entered = self._new_member(self._locator, self._work)
        entered.handover.call_on_end(self._notify)
        self._work.items.follow(self._locator, entered.member.divide_again)
        entered.member.start()
        return entered


def _nothing() -> None:
    """Do nothing."""
