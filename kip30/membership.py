"""KIP-30's group membership: one portable class over every store.

A membership lives as long as its member's session. Others see a crashed member until its session
timeout has passed; a member that was paused for longer learns from its own clock that it is no
longer a member.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from typing import Generic, TypeVar

from typing_extensions import override

from kip30.codecs import Codec
from kip30.driver.kit.futures import failed
from kip30.driver.records import Kind, Snapshot, Target, Version
from kip30.errors import (
    Kip30Error,
    MemberExistsError,
    NotMemberError,
    OutcomeUnknownError,
    UsageError,
)
from kip30.names import check_id
from kip30.runtime.ban_watch import BanWatch
from kip30.runtime.base_handle import Handle
from kip30.runtime.future_callbacks import check_callable
from kip30.runtime.group_views import Changes, GroupViews, Incarnations, Members, MembershipChange
from kip30.runtime.member_lifecycle import Member, MemberCallbacks, MemberLifecycle, MemberListener
from kip30.runtime.member_phases import MemberPhases
from kip30.runtime.open_store import OpenStore

__all__ = ["GroupMembership", "Members", "MembershipChange"]

T = TypeVar("T")

_SWEEP_SIZE = 64


def waits_until(wait_seconds: float) -> float:
    """Return the time of `time.monotonic` at which a wait ends that begins now.

    Raises:
        UsageError: It is negative, or not a number.
    """
    if not wait_seconds >= 0:
        raise UsageError(f"wait_seconds = {wait_seconds!r}: give 0 or more seconds")
    return time.monotonic() + wait_seconds


class GroupMembership(Handle, Generic[T]):
    """The members of one group. Thread-safe.

    A member stays until it leaves, this object or its locator is closed, or its session ends.
    After a lost session it re-joins by itself, as a new incarnation with the newest data, unless
    another client took the id meanwhile: then it stays out and evicts no one. It does not re-join
    if it joined with ``rejoin=False``.

    With the setting ``plugin.operations`` an operator may ban an id (`kip30.operations.evict`): to
    the program that is a lost session, and the re-join follows when the ban is over or lifted.

    Incarnations tell the order in which the members of one group joined: of two members, the one
    that joined later has the greater incarnation, even across clients. A re-join counts
    as another join, an update does not.

    Every method may raise `ClosedError` or `LifecycleError`; then nothing was sent.
    """

    def __init__(self, store: OpenStore, group: str, codec: Codec[T], owner: object = None) -> None:
        """Use `PluginLocator.group_membership` instead."""
        self.group: str = check_id(group, "group")
        super().__init__(store, owner)
        self._codec = codec
        self._views = GroupViews(group, codec)
        self._target = Target(Kind.GROUP, group)
        self._bans = BanWatch(store, group)
        self._lifecycles: dict[str, MemberLifecycle] = {}
        # At how many members those that have ended are dropped. Written under the lock.
        self._sweep_at = _SWEEP_SIZE
        self._lock = threading.Lock()

    def join(  # noqa: PLR0913  one argument for each event, and what follows a lost session
        self,
        member_id: str,
        data: T,
        *,
        rejoin: bool = True,
        wait_seconds: float = 0.0,
        on_lost: MemberListener | None = None,
        on_evicted: MemberListener | None = None,
        on_rejoined: MemberListener | None = None,
    ) -> Member:
        """Join as *member_id* and return the membership.

        The member sees itself when this returns. The three callbacks of one member are called one
        after the other, in the order of the events; one that blocks delays only the later ones of
        this member. They may call anything, this object included.

        Args:
            member_id: An id that no live member of the group has.
            data: What `membership` shows of it.
            rejoin: Whether a lost session is followed by a re-join. If not, the member ends then:
                `on_lost` is the last call, `update` and `leave` raise `NotMemberError`, the id may
                `join` again at once (even in `on_lost`), with new data, and the library
                removes the member's record as soon as the store answers.
            wait_seconds: How long to wait for an id that another client has, beyond the first
                attempt; each attempt takes up to the operation timeout. So a server
                that crashed joins again under its own id once its former session is over.
            on_lost: Called with each incarnation that was lost; not on `leave` or close.
            on_evicted: Called with the last one if another client has taken the id meanwhile, so
                that it does not re-join; no call follows. It may `join` again once the id is free.
            on_rejoined: Called with each new incarnation after a lost one, once the store has
                acknowledged it and `member` returns it.

        Raises:
            MemberExistsError: A live member has the id, also after *wait_seconds*. It is unharmed.
                The id of a crashed member is free after its session timeout. If the id joined
                through this object, this is raised at once, regardless of *wait_seconds*.
            BannedError: An operator has banned the id, and ``plugin.operations`` is true. Not
                joined; *wait_seconds* does not wait for the end of a ban.
            AuthenticationError, StoreError: The store does not allow it, or not to read the bans.
                Not joined.
            InvalidNameError, CodecError, ValueTooLargeError, UsageError: Nothing was sent.
            UnavailableError: Not joined.
            OutcomeUnknownError: The member may have joined; that is undone as soon as the store
                answers again.
        """
        check_callable(on_lost=on_lost, on_evicted=on_evicted, on_rejoined=on_rejoined)
        callbacks = MemberCallbacks(on_lost=on_lost, on_evicted=on_evicted, on_rejoined=on_rejoined)
        until = waits_until(wait_seconds)
        lifecycle = self._enrol(member_id, data, callbacks, rejoin=rejoin)
        try:
            while (member := lifecycle.join_by(until)) is None:
                time.sleep(lifecycle.join_pause(until))
        except BaseException:
            self._drop(member_id, lifecycle)
            lifecycle.leave()  # it has left, unless this is an interrupt of the pause
            raise
        return member

    def update(self, member_id: str, data: T) -> None:
        """Replace the data of a member that joined here.

        While the session is lost, this waits for the re-join, which carries the newest data. Of
        two calls, the one that returns later wins. Once this has returned, no re-join shows older
        data.

        Raises:
            NotMemberError: It did not join here, has left, was evicted, or lost its session after
                ``rejoin=False``: nothing is published.
            UnavailableError: Nothing was changed, and no re-join will carry this data.
            OutcomeUnknownError: The store has not confirmed the data by the operation timeout, or
                the session is lost and the member has not re-joined by then. As soon as the store
                answers, the member shows this data or newer data.
        """
        lifecycle, encoded = self._updated(member_id, data)
        lifecycle.update(encoded)

    def leave(self, member_id: str) -> None:
        """Leave; the id is free when this returns.

        Raises:
            NotMemberError: It did not join here, has left, was evicted, or lost its session after
                ``rejoin=False``. Nothing was done.
            OutcomeUnknownError: The store did not answer in time. The member leaves as soon as
                the store answers; at the latest the session ends by itself.
        """
        left = self._leaving(member_id)
        if not wait([left], self._store.context.operation_timeout_seconds).done:
            raise OutcomeUnknownError(
                f"{member_id!r} has left {self.group!r}, but the store has not confirmed it yet"
            )
        left.result()

    def member(self, member_id: str) -> Member | None:
        """Return the present membership of an id that joined here; None if it has none now."""
        self._check()
        lifecycle = self._lifecycles.get(member_id)
        member = lifecycle.member if lifecycle else None
        return member if member is not None and member.is_valid() else None

    def share_lease(self, member_id: str) -> int:
        """Return a file descriptor that keeps the lease of a member that joined here.

        While another process holds a duplicate of it open, the death of this one does not free the
        id; the session timeout still does. It keeps the present incarnation, and everything else
        of its session. It belongs to the store: pass a duplicate on, and do not close the original.

        Raises:
            NotMemberError: It did not join here, or its membership has ended. Share again once it
                has re-joined.
            UnsupportedError: The store does not offer ``lease-sharing``.
        """
        member = self.member(member_id)
        if member is None:
            raise NotMemberError(f"{member_id!r} is not a member of {self.group!r} now")
        try:
            return self._store.share_lease(member.lease)
        except UsageError as error:
            raise NotMemberError(f"{member_id!r} has just lost its session") from error

    def membership(self) -> Members[T]:
        """Return the data of every member by id, read from the store now.

        A member whose data this object's codec cannot decode is in `Members.undecodable` instead,
        and a record that this kip30 cannot read is in `Members.unreadable`. A warning is logged
        once for each.

        Raises:
            UnavailableError: The store did not answer by the operation timeout.
        """
        return self._members(self._snapshot())

    def membership_list(self) -> frozenset[str]:
        """Return the ids of all members, decodable or not, read from the store now.

        Records that this kip30 cannot read are left out; a warning is logged once for each.

        Raises:
            UnavailableError: The store did not answer by the operation timeout.
        """
        return self._ids(self._snapshot())

    def incarnations(self) -> Mapping[str, Version]:
        """Return the incarnation of every member by id, decodable or not, read from the store now.

        Sorted by it, the members are in the order in which they joined. Every join that is not in
        the answer yet gets a greater incarnation than all that are. `Members.incarnations` has them
        together with the data.

        Raises:
            UnavailableError: The store did not answer by the operation timeout.
        """
        return self._incarnations(self._snapshot())

    def add_listener(
        self, callback: Callable[[MembershipChange[T]], object], *, initial: bool = False
    ) -> None:
        """Call *callback* at every change of the group, as `ListenerRegistry` promises it.

        With *initial*, also called once for the present members.
        """
        self._check()
        changes = Changes(self._views)
        self._callbacks.add(self._target, changes, callback, initial=initial)

    def remove_listener(self, callback: Callable[[MembershipChange[T]], object]) -> None:
        """Remove *callback*, if it was added: no call of it starts after this returns."""
        self._callbacks.remove(self._target, callback)

    @override
    def _end_claims_locally(self) -> None:
        with self._lock:
            lifecycles = list(self._lifecycles.values())
        for lifecycle in lifecycles:
            lifecycle.end_locally()

    @override
    def _give_back(self) -> Sequence[Future[None]]:
        with self._lock:
            lifecycles = list(self._lifecycles.values())
            self._lifecycles.clear()
        self._release_together(lifecycles)
        return [one.left for one in lifecycles if not one.waits_for_caller()]

    def _release_together(self, lifecycles: Sequence[MemberLifecycle]) -> None:
        """Leave with all *lifecycles*, in few round trips: there may be thousands."""
        begun = [(lifecycle, lifecycle.begin_leave()) for lifecycle in lifecycles]
        leaving = [(lifecycle, claim) for lifecycle, claim in begun if claim is not None]
        driver, claims = self._store.drivers.membership, [claim for _, claim in leaving]
        if not claims:
            return
        try:
            releases = driver.release_many(self.group, claims)
        except Kip30Error as error:
            releases = [failed(error) for _ in claims]
        for (lifecycle, _), release in zip(leaving, releases, strict=True):
            release.add_done_callback(lifecycle.released)

    def _enrol(
        self, member_id: str, data: T, callbacks: MemberCallbacks, *, rejoin: bool
    ) -> MemberLifecycle:
        """Reserve the id on this object; nothing is sent before the lifecycle joins."""
        self._check()
        phases = MemberPhases(self._store.encode(self._codec, data), rejoins=rejoin)
        plain = check_id(member_id, "member")
        lifecycle = MemberLifecycle(self._store, self.group, plain, phases, callbacks, self._bans)
        self._enter(plain, lifecycle)
        return lifecycle

    def _enter(self, member_id: str, lifecycle: MemberLifecycle) -> None:
        with self._lock:
            self._check()
            kept = self._lifecycles.get(member_id)
            if kept is not None and not kept.is_over():
                raise MemberExistsError(f"{member_id!r} has joined {self.group!r} here already")
            if len(self._lifecycles) >= self._sweep_at:
                self._forget_lost()
            self._lifecycles[member_id] = lifecycle

    def _forget_lost(self) -> None:
        """Drop members that were lost for good; until then they say why they are gone."""
        for member_id, lifecycle in list(self._lifecycles.items()):
            if lifecycle.is_over():
                del self._lifecycles[member_id]
        self._sweep_at = _SWEEP_SIZE + 2 * len(self._lifecycles)

    def _leaving(self, member_id: str) -> Future[None]:
        """Leave, locally at once; the future ends when the store has confirmed it."""
        self._check()
        lifecycle = self._lifecycle(member_id)
        self._drop(member_id, lifecycle)
        return lifecycle.leave()

    def _updated(self, member_id: str, data: T) -> tuple[MemberLifecycle, bytes]:
        """Return what `update` changes, and the new data."""
        self._check()
        encoded = self._store.encode(self._codec, data)
        return self._lifecycle(member_id), encoded

    def _lifecycle(self, member_id: str) -> MemberLifecycle:
        lifecycle = self._lifecycles.get(check_id(member_id, "member"))
        if lifecycle is None:
            raise NotMemberError(f"{member_id!r} has not joined {self.group!r} here")
        return lifecycle

    def _drop(self, member_id: str, lifecycle: MemberLifecycle) -> None:
        with self._lock:
            if self._lifecycles.get(member_id) is lifecycle:
                del self._lifecycles[member_id]

    def _snapshot(self) -> Snapshot:
        return self._store.wait(self._state())

    def _state(self) -> Future[Snapshot]:
        self._check()
        return self._store.drivers.observe.snapshot(self._target)

    def _ids(self, snapshot: Snapshot) -> frozenset[str]:
        self._store.unreadable.note(self._target, snapshot.unreadable)
        return frozenset(snapshot.entries)

    def _incarnations(self, snapshot: Snapshot) -> Mapping[str, Version]:
        self._store.unreadable.note(self._target, snapshot.unreadable)
        return Incarnations(snapshot.entries)

    def _members(self, snapshot: Snapshot) -> Members[T]:
        self._store.unreadable.note(self._target, snapshot.unreadable)
        return self._views.members(snapshot)
