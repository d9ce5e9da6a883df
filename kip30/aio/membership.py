"""`kip30.GroupMembership` for asyncio."""

import asyncio
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Generic, TypeVar

from kip30.aio.async_handle import AsyncHandle
from kip30.aio.awaiting import LateError, outcome
from kip30.aio.bridge import Bridge
from kip30.aio.leased import AsyncCounterparts, AsyncMember
from kip30.aio.listening import AsyncListener
from kip30.driver.records import Snapshot, Version
from kip30.errors import OutcomeUnknownError
from kip30.membership import GroupMembership, Members, MembershipChange, waits_until
from kip30.runtime.base_handle import LoopHandle
from kip30.runtime.future_callbacks import check_callable
from kip30.runtime.member_lifecycle import (
    Member,
    MemberCallbacks,
    MemberLifecycle,
    PendingUpdate,
)

T = TypeVar("T")


class MembershipRequests(GroupMembership[T], LoopHandle):
    """The requests of a `kip30.GroupMembership`, without the waiting."""

    def state(self) -> Future[Snapshot]:
        """Ask for the members."""
        return self._state()

    def ids(self, snapshot: Snapshot) -> frozenset[str]:
        """Return the ids of the members in *snapshot*."""
        return self._ids(snapshot)

    def incarnations_in(self, snapshot: Snapshot) -> Mapping[str, Version]:
        """Return the incarnations of the members in *snapshot*."""
        return self._incarnations(snapshot)

    def members(self, snapshot: Snapshot) -> Members[T]:
        """Return the members in *snapshot*."""
        return self._members(snapshot)

    def enrol(
        self, member_id: str, data: T, callbacks: MemberCallbacks, *, rejoin: bool
    ) -> MemberLifecycle:
        """Reserve the id on this object; nothing is sent before the lifecycle joins."""
        return self._enrol(member_id, data, callbacks, rejoin=rejoin)

    def begin_update(self, member_id: str, data: T) -> tuple[MemberLifecycle, PendingUpdate | None]:
        """Begin to update, and return what may have to be awaited of the lifecycle."""
        lifecycle, encoded = self._updated(member_id, data)
        return lifecycle, lifecycle.begin_update(encoded)

    def leaving(self, member_id: str) -> Future[None]:
        """Leave, locally at once; the store confirms it by the future."""
        return self._leaving(member_id)

    def give_up(self, member_id: str, lifecycle: MemberLifecycle) -> None:
        """Undo *lifecycle*, joined or not yet, as soon as the store answers."""
        self._drop(member_id, lifecycle)
        lifecycle.leave()


class AsyncGroupMembership(AsyncHandle[MembershipRequests[T]], Generic[T]):
    """`kip30.GroupMembership`, awaited: with the same promises, arguments and errors."""

    def __init__(self, bridge: Bridge, membership: MembershipRequests[T]) -> None:
        """Use `AsyncPluginLocator.group_membership` instead."""
        self._counterparts: AsyncCounterparts[Member, AsyncMember] = AsyncCounterparts(
            AsyncMember, bridge
        )
        super().__init__(bridge, membership, self._counterparts)
        self._place = "group", membership.group

    async def join(  # noqa: PLR0913  the arguments of `kip30.GroupMembership.join`
        self,
        member_id: str,
        data: T,
        *,
        rejoin: bool = True,
        wait_seconds: float = 0.0,
        on_lost: AsyncListener[AsyncMember] | None = None,
        on_evicted: AsyncListener[AsyncMember] | None = None,
        on_rejoined: AsyncListener[AsyncMember] | None = None,
    ) -> AsyncMember:
        """See `kip30.GroupMembership.join`. The callbacks are called in the loop.

        Waiting for an id that is taken holds no thread. If the awaiting task is cancelled, joining
        is undone as soon as the store answers.
        """
        until = waits_until(wait_seconds)
        check_callable(on_lost=on_lost, on_evicted=on_evicted, on_rejoined=on_rejoined)
        await self._bridge.begin()

        def enrol() -> MemberLifecycle:
            callbacks = MemberCallbacks(
                on_lost=self._listeners.callback(on_lost, self._counterparts.of),
                on_evicted=self._listeners.callback(on_evicted, self._counterparts.of),
                on_rejoined=self._listeners.callback(on_rejoined, self._counterparts.of),
            )
            return self._handle.enrol(member_id, data, callbacks, rejoin=rejoin)

        return self._counterparts.of(await self._joined(member_id, enrol, until))

    async def _joined(
        self, member_id: str, enrol: Callable[[], MemberLifecycle], until: float
    ) -> Member:
        """Return the member once it has joined; each attempt has a turn, the pauses have none."""
        bridge, lifecycle = self._bridge, None
        try:
            while True:
                async with bridge.turns as turn_ends:
                    lifecycle = lifecycle or enrol()
                    joining = bridge.submit(partial(lifecycle.join_by, until))
                    member = await bridge.finish(joining, OutcomeUnknownError, turn_ends)
                    bridge.turns.answered()
                if member is not None:
                    return member
                await asyncio.sleep(lifecycle.join_pause(until))
        except BaseException:
            if lifecycle is not None:
                self._handle.give_up(member_id, lifecycle)
            raise

    async def update(self, member_id: str, data: T) -> None:
        """See `kip30.GroupMembership.update`. Waiting for a re-join holds no thread."""
        begin = partial(self._handle.begin_update, member_id, data)
        lifecycle, pending = await self._bridge.call(begin)
        if pending is None:
            return
        shown, is_shown = lifecycle.shown(pending), False
        try:
            with suppress(LateError):
                is_shown = await outcome(shown, pending.until - time.monotonic())
        finally:
            lifecycle.forget(shown)
        if not is_shown:
            raise lifecycle.not_shown(pending)

    async def leave(self, member_id: str) -> None:
        """See `kip30.GroupMembership.leave`.

        Locally it takes effect at once, or in the next iterations of the loop if many calls begin
        together; and it goes on to its end even if this is cancelled.
        """

        def leaving() -> Future[None]:
            member, left = self._handle.member(member_id), self._handle.leaving(member_id)
            self._counterparts.note_end(member)
            return left

        left = await self._bridge.give_back(leaving)
        await self._bridge.shared(left, OutcomeUnknownError)

    def member(self, member_id: str) -> AsyncMember | None:
        """See `kip30.GroupMembership.member`; not a coroutine: it returns at once."""
        self._bridge.check()
        member = self._handle.member(member_id)
        return None if member is None else self._counterparts.of(member)

    def share_lease(self, member_id: str) -> int:
        """See `kip30.GroupMembership.share_lease`; not a coroutine: it returns at once."""
        self._bridge.check()
        return self._handle.share_lease(member_id)

    async def membership(self) -> Members[T]:
        """See `kip30.GroupMembership.membership`."""
        return self._handle.members(await self._bridge.read(self._handle.state))

    async def membership_list(self) -> frozenset[str]:
        """See `kip30.GroupMembership.membership_list`."""
        return self._handle.ids(await self._bridge.read(self._handle.state))

    async def incarnations(self) -> Mapping[str, Version]:
        """See `kip30.GroupMembership.incarnations`."""
        return self._handle.incarnations_in(await self._bridge.read(self._handle.state))

    async def add_listener(
        self, listener: AsyncListener[MembershipChange[T]], *, initial: bool = False
    ) -> None:
        """See `kip30.GroupMembership.add_listener`."""
        add = partial(self._handle.add_listener, initial=initial)
        await self._listeners.add(self._place, listener, add, self._handle.remove_listener)

    async def remove_listener(self, listener: AsyncListener[MembershipChange[T]]) -> None:
        """See `kip30.GroupMembership.remove_listener`."""
        await self._listeners.remove(self._place, listener, self._handle.remove_listener)
