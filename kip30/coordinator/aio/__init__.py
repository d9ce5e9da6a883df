"""`kip30.coordinator` for asyncio: the same members, called in the loop.

Each member has only the thread that `AbstractCoordinator.start` begins: it polls, and lets the loop
call the application, one call at a time. Awaiting here holds no thread, except that closing uses
one while it lasts, and except what `kip30.aio` says about stores that block.
"""

from kip30.coordinator.aio.application import AsyncCoordinator
from kip30.coordinator.aio.async_coordinator_base import AsyncCall, AsyncCoordinatorBase
from kip30.coordinator.aio.coordinators import (
    AsyncLeaderCoordinator,
    AsyncPartitionCoordinator,
    AsyncWorkerCoordinator,
)
from kip30.coordinator.aio.guarded_storage import AsyncGuardedStorage

__all__ = [
    "AsyncCall",
    "AsyncCoordinator",
    "AsyncCoordinatorBase",
    "AsyncGuardedStorage",
    "AsyncLeaderCoordinator",
    "AsyncPartitionCoordinator",
    "AsyncWorkerCoordinator",
]
