"""The four interfaces for asyncio, over the same portable classes.

Nothing here holds a thread while it waits: not a candidate that waits to be elected, not a slow
listener, not a read. Writes hold none either, except on stores whose driver works in the call (the
embedded one): a few threads of the locator make these.

Cancelling a task that awaits a call does not undo the call: it may still happen. Listeners and
callbacks may be coroutine functions or plain functions; they are called in the loop, one call at a
time for each registration: see `kip30.ListenerRegistry`.

    >>> import asyncio
    >>> async def main() -> None:
    ...     async with AsyncPluginLocator(config) as locator:
    ...         election, storage = locator.leader_election("reports"), locator.storage()
    ...         async with election.lead("worker-1", "host-1") as leadership:
    ...             await storage.put("reports/today", "done", fence=leadership)
    ...         print(await storage.fetch("reports/today"))
    >>> asyncio.run(main())
    done
"""

from kip30.aio.election import AsyncLeaderElection
from kip30.aio.leased import AsyncLeadership, AsyncMember
from kip30.aio.listeners import AsyncListenerRegistry
from kip30.aio.listening import AsyncListener
from kip30.aio.locator import AsyncPluginLocator
from kip30.aio.membership import AsyncGroupMembership
from kip30.aio.storage import AsyncStorage

__all__ = [
    "AsyncGroupMembership",
    "AsyncLeaderElection",
    "AsyncLeadership",
    "AsyncListener",
    "AsyncListenerRegistry",
    "AsyncMember",
    "AsyncPluginLocator",
    "AsyncStorage",
]
