"""The three kinds of coordinators for asyncio."""

from collections.abc import Callable, Collection, Sequence
from typing import Any

from kip30.aio.locator import AsyncPluginLocator
from kip30.coordinator.aio.async_coordinator_base import AsyncCall, AsyncCoordinatorBase, LoopMember
from kip30.coordinator.assignors import Assignor, CooperativeStickyAssignor, Item
from kip30.coordinator.config import GroupConfig
from kip30.coordinator.leader_coordinator import LeaderCoordinator, MemberIdentity
from kip30.coordinator.partition_coordinator import PartitionCoordinator
from kip30.coordinator.worker_coordinator import WorkerCoordinator

_CONFIG = GroupConfig()
_COOPERATIVE = (CooperativeStickyAssignor(),)


class _LoopListener:
    """Represents a `RebalanceListener` or a `WorkListener` of the loop to the polling thread."""

    def __init__(self, listener: Any, in_loop: Callable[[AsyncCall], Callable[..., Any]]) -> None:
        self._listener = listener
        self._in_loop = in_loop

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return self._in_loop(getattr(self._listener, name))


class _PartitionMember(LoopMember, PartitionCoordinator):
    pass


class _WorkerMember(LoopMember, WorkerCoordinator):
    pass


class _LeaderMember(LoopMember, LeaderCoordinator):
    pass


class AsyncPartitionCoordinator(AsyncCoordinatorBase[_PartitionMember]):
    """`kip30.coordinator.PartitionCoordinator`, with a listener of the loop."""

    def __init__(  # noqa: PLR0913  all by keyword
        self,
        locator: AsyncPluginLocator,
        group_id: str,
        *,
        subscription: Collection[str] | None,
        topics: AsyncCall,
        listener: Any,
        assignors: Sequence[Assignor] = _COOPERATIVE,
        refresh_seconds: float = 30.0,
        config: GroupConfig = _CONFIG,
    ) -> None:
        """Prepare a member; see `PartitionCoordinator`.

        *topics* and the methods of *listener* may be coroutine functions.
        """
        super().__init__(locator)
        calls: Any = _LoopListener(listener, self._in_loop)
        member = _PartitionMember(
            locator.locator,
            group_id,
            subscription=subscription,
            topics=self._in_loop(topics),
            listener=calls,
            assignors=assignors,
            refresh_seconds=refresh_seconds,
            config=config,
        )
        self._stand_on(member)

    @property
    def owned(self) -> frozenset[Item]:
        """See `PartitionCoordinator.owned`."""
        return self._member.owned

    def subscribe(self, subscription: Collection[str] | None) -> None:
        """See `PartitionCoordinator.subscribe`."""
        self._member.subscribe(subscription)


class AsyncWorkerCoordinator(AsyncCoordinatorBase[_WorkerMember]):
    """`kip30.coordinator.WorkerCoordinator`, with a listener of the loop."""

    def __init__(  # noqa: PLR0913  all by keyword
        self,
        locator: AsyncPluginLocator,
        group_id: str,
        *,
        url: str,
        tasks: AsyncCall,
        listener: Any,
        max_delay_seconds: float = 300.0,
        refresh_seconds: float = 30.0,
        config: GroupConfig = _CONFIG,
    ) -> None:
        """Prepare a member; see `WorkerCoordinator`.

        *tasks* and the methods of *listener* may be coroutine functions.
        """
        super().__init__(locator)
        calls: Any = _LoopListener(listener, self._in_loop)
        member = _WorkerMember(
            locator.locator,
            group_id,
            url=url,
            tasks=self._in_loop(tasks),
            listener=calls,
            max_delay_seconds=max_delay_seconds,
            refresh_seconds=refresh_seconds,
            config=config,
        )
        self._stand_on(member)

    @property
    def doing(self) -> frozenset[str]:
        """See `WorkerCoordinator.doing`."""
        return self._member.doing


class AsyncLeaderCoordinator(AsyncCoordinatorBase[_LeaderMember]):
    """`kip30.coordinator.LeaderCoordinator`, with a callback of the loop."""

    def __init__(  # noqa: PLR0913  all by keyword
        self,
        locator: AsyncPluginLocator,
        group_id: str,
        *,
        identity: MemberIdentity,
        on_elected: AsyncCall,
        sticky: bool = True,
        config: GroupConfig = _CONFIG,
    ) -> None:
        """Prepare a member; see `LeaderCoordinator`. *on_elected* may be a coroutine function."""
        super().__init__(locator)
        member = _LeaderMember(
            locator.locator,
            group_id,
            identity=identity,
            on_elected=self._in_loop(on_elected),
            sticky=sticky,
            config=config,
        )
        self._stand_on(member)

    @property
    def is_elected(self) -> bool:
        """See `LeaderCoordinator.is_elected`."""
        return self._member.is_elected
