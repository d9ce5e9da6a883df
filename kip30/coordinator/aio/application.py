"""`kip30.coordinator.AbstractCoordinator` for asyncio."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from typing_extensions import override

from kip30.aio.locator import AsyncPluginLocator
from kip30.coordinator.aio.async_coordinator_base import AsyncCall, AsyncCoordinatorBase, LoopMember
from kip30.coordinator.config import GroupConfig
from kip30.coordinator.interface import AssignmentMetadata, JoinGroupMetadata

_CONFIG = GroupConfig()


class _ApplicationMember(LoopMember):
    """A member whose application is an `AsyncCoordinator`."""

    def __init__(
        self,
        locator: AsyncPluginLocator,
        group_id: str,
        config: GroupConfig,
        application: "AsyncCoordinator",
        in_loop: Callable[[AsyncCall], Callable[..., Any]],
    ) -> None:
        super().__init__(locator.locator, group_id, config=config)
        self._application = application
        self._in_loop = in_loop

    @override
    def protocol_type(self) -> str:
        return self._application.protocol_type()

    @override
    def is_cooperative(self) -> bool:
        return self._application.is_cooperative()

    @override
    def metadata(self) -> Sequence[JoinGroupMetadata]:
        found: Sequence[JoinGroupMetadata] = self._in_loop(self._application.metadata)()
        return found

    @override
    def lasting_metadata(self, offered: Sequence[JoinGroupMetadata]) -> Sequence[JoinGroupMetadata]:
        call = self._in_loop(self._application.lasting_metadata)
        found: Sequence[JoinGroupMetadata] = call(offered)
        return found

    @override
    def on_join_prepare(self, generation: int, member_id: str) -> None:
        self._in_loop(self._application.on_join_prepare)(generation, member_id)

    @override
    def perform_assignment(
        self, leader_id: str, protocol: str, all_member_metadata: Sequence[AssignmentMetadata]
    ) -> Mapping[str, bytes]:
        call = self._in_loop(self._application.perform_assignment)
        shares: Mapping[str, bytes] = call(leader_id, protocol, all_member_metadata)
        return shares

    @override
    def follow_up(self) -> bool:
        return bool(self._in_loop(self._application.follow_up)())

    @override
    def on_join_complete(
        self, generation: int, member_id: str, protocol: str, member_assignment: bytes
    ) -> None:
        call = self._in_loop(self._application.on_join_complete)
        call(generation, member_id, protocol, member_assignment)

    @override
    def on_lost(self, generation: int, member_id: str) -> None:
        self._in_loop(self._application.on_lost)(generation, member_id)

    @override
    def refresh(self) -> None:
        self._in_loop(self._application.refresh)()

    @override
    def on_leave_prepare(self) -> None:
        self._in_loop(self._application.on_leave_prepare)()


class AsyncCoordinator(AsyncCoordinatorBase[_ApplicationMember]):
    """`kip30.coordinator.AbstractCoordinator`: subclasses define what the group divides.

    The methods from `metadata` on may be coroutine functions; all of them are called in the loop,
    one at a time. `protocol_type` and `is_cooperative` return constants, and may be called on any
    thread.
    """

    def __init__(
        self, locator: AsyncPluginLocator, group_id: str, *, config: GroupConfig = _CONFIG
    ) -> None:
        """Prepare a member; see `AbstractCoordinator`."""
        super().__init__(locator)
        self._stand_on(_ApplicationMember(locator, group_id, config, self, self._in_loop))

    def protocol_type(self) -> str:
        """See `Coordinator.protocol_type`."""
        raise NotImplementedError

    def is_cooperative(self) -> bool:
        """See `MemberApplication.is_cooperative`."""
        return False

    def metadata(self) -> Any:
        """See `Coordinator.metadata`."""
        raise NotImplementedError

    def lasting_metadata(self, offered: Sequence[JoinGroupMetadata]) -> Any:
        """See `MemberApplication.lasting_metadata`."""
        return offered

    def on_join_prepare(self, generation: int, member_id: str) -> Any:
        """See `Coordinator.on_join_prepare`."""
        raise NotImplementedError

    def perform_assignment(
        self, leader_id: str, protocol: str, all_member_metadata: Sequence[AssignmentMetadata]
    ) -> Any:
        """See `Coordinator.perform_assignment`."""
        raise NotImplementedError

    def follow_up(self) -> Any:
        """See `MemberApplication.follow_up`."""
        return False

    def on_join_complete(
        self, generation: int, member_id: str, protocol: str, member_assignment: bytes
    ) -> Any:
        """See `Coordinator.on_join_complete`."""
        raise NotImplementedError

    def on_lost(self, generation: int, member_id: str) -> Any:
        """See `MemberApplication.on_lost`."""

    def refresh(self) -> Any:
        """See `MemberApplication.refresh`."""

    def on_leave_prepare(self) -> Any:
        """See `Coordinator.on_leave_prepare`."""
