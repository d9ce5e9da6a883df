"""KIP-795's coordinator: divides work among the members of a group, over any store."""

from kip30.coordinator.abstract_coordinator import AbstractCoordinator
from kip30.coordinator.assignors import (
    CooperativeStickyAssignor,
    Item,
    RangeAssignor,
    RoundRobinAssignor,
    StickyAssignor,
)
from kip30.coordinator.config import GroupConfig
from kip30.coordinator.description import (
    GroupDescription,
    MemberDescription,
    describe_group,
    share_text,
)
from kip30.coordinator.group_deletion import delete_group
from kip30.coordinator.guarded_storage import GuardedStorage
from kip30.coordinator.interface import (
    AssignmentMetadata,
    Coordinator,
    Generation,
    JoinGroupMetadata,
    MemberApplication,
    MemberState,
)
from kip30.coordinator.leader_coordinator import LeaderCoordinator, MemberIdentity
from kip30.coordinator.partition_coordinator import PartitionCoordinator, RebalanceListener
from kip30.coordinator.share_guard import ShareGuard, parse_guard, storage_of_share
from kip30.coordinator.worker_coordinator import WorkerCoordinator, WorkListener

__all__ = [
    "AbstractCoordinator",
    "AssignmentMetadata",
    "CooperativeStickyAssignor",
    "Coordinator",
    "Generation",
    "GroupConfig",
    "GroupDescription",
    "GuardedStorage",
    "Item",
    "JoinGroupMetadata",
    "LeaderCoordinator",
    "MemberApplication",
    "MemberDescription",
    "MemberIdentity",
    "MemberState",
    "PartitionCoordinator",
    "RangeAssignor",
    "RebalanceListener",
    "RoundRobinAssignor",
    "ShareGuard",
    "StickyAssignor",
    "WorkListener",
    "WorkerCoordinator",
    "delete_group",
    "describe_group",
    "parse_guard",
    "share_text",
    "storage_of_share",
]
