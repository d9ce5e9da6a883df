"""The requests of a coordinator to the store, each through one of the four public interfaces.

Nothing is decided here, and no answer is kept. Every method may raise `UnavailableError` (nothing
was done), `OutcomeUnknownError`, and `ClosedError` or `LifecycleError` of the locator.
"""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress

from typing_extensions import override

from kip30.codecs import BYTES, STR
from kip30.coordinator.decisions import StateReading
from kip30.coordinator.keys import GroupKeys, is_outdated
from kip30.coordinator.packing import part_of
from kip30.coordinator.records import (
    MEMBER,
    STATE,
    Assignment,
    GroupReading,
    MemberRecord,
    Part,
    PresentMember,
    StateRecord,
    decoded_part,
)
from kip30.driver import Capability
from kip30.driver.clock import Clock
from kip30.driver.closeable import Closeable
from kip30.driver.records import Condition, Version
from kip30.errors import (
    CodecError,
    KeyMissingError,
    NotMemberError,
    NotNominatedError,
    StoreError,
)
from kip30.listeners import ValueChange
from kip30.locator import PluginLocator
from kip30.membership import Members, MembershipChange
from kip30.names import parse_key
from kip30.runtime.base_handle import LoopHandle
from kip30.runtime.candidacy import LeadershipListener
from kip30.runtime.member import Member, MemberListener

StateListener = Callable[[ValueChange[StateRecord]], object]
GroupListener = Callable[[MembershipChange[MemberRecord]], object]


class GroupRequests(Closeable):
    """The requests of one member of one group. Thread-safe.

    Attributes:
        clock: That of the leases.
        value_bytes: The largest value that the store takes.
    """

    def __init__(
        self, locator: PluginLocator, keys: GroupKeys, member_id: str, instance: str
    ) -> None:
        """Open separate handles of a started locator. Nothing is sent."""
        self.clock: Clock = locator.context.clock
        self.value_bytes: int = locator.backend.limits.value_bytes
        self._keys = keys
        self._member_id = member_id
        self._instance_key = keys.instance(instance) if instance != member_id else ""
        self._states = locator.storage(STATE)
        self._texts = locator.storage(STR)
        self._parts = locator.storage(BYTES)
        self._listeners = locator.listener_registry(STATE)
        self._group = locator.group_membership(keys.group, MEMBER)
        self._election = locator.leader_election(keys.group, STR)
        self._can_list = Capability.LISTING in locator.backend.capabilities
        # The keys of parts that this object has written and not deleted, for a store that cannot
        # list them. Only the leader's task reads and writes it.
        self._written: set[str] = set()

    # -- of any member

    def read_state(self) -> StateReading:
        """Return the state of the group, and the holder of the own instance.

        The instance is read after the state: if it is the member's own then, it was so when the
        state was read, because a member never gets back an instance that another process has
        taken. One whose key the store has lost is claimed again, and a reading that was sent before
        that claim confirms no share.

        Raises:
            StoreError: The state is of another version of kip30, or damaged.
        """
        sent_at = self.clock.now()
        with unreadable_as_store_error():
            found = self._states.get(self._keys.state)
        holder = None
        if self._instance_key:
            held = self._texts.get(self._instance_key)
            holder = None if held is None else held.value
        if found is None:
            return StateReading(None, None, sent_at, holder)
        return StateReading(found.value, found.version, sent_at, holder)

    def listen_to_state(self, callback: StateListener) -> None:
        """Call *callback* with the present state and at every change of it."""
        self._listeners.add_value_change_listener(self._keys.state, callback, initial=True)

    def claim_instance(self) -> Version:
        """Take the key of the own instance.

        Raises:
            KeyExistsError, VersionConflictError: Another process has just taken it.
            KeyMissingError: The group has just been deleted.
        """
        found = self._texts.get(self._instance_key)
        if found is None:
            return self._texts.put(self._instance_key, self._member_id)
        if found.value == self._member_id:
            return found.version
        return self._texts.compare_and_set(self._instance_key, found.version, self._member_id)

    def empty_instance(self, claim: Version) -> None:
        """Release the own instance for good, which was claimed at *claim*.

        Raises:
            VersionConflictError: Another process has taken it; its claim is unchanged.
        """
        self._texts.compare_and_set(self._instance_key, claim, "")

    def join(self, record: MemberRecord, on_lost: MemberListener) -> Member:
        """Join the group; a lost session ends the membership, with *on_lost*.

        Raises:
            MemberExistsError: The store still has a membership of this member that has ended.
        """
        return self._group.join(self._member_id, record, rejoin=False, on_lost=on_lost)

    def update(self, record: MemberRecord) -> None:
        """Replace the own record.

        Raises:
            NotMemberError: The membership has ended.
        """
        self._group.update(self._member_id, record)

    def leave(self) -> None:
        """Leave the group, if the member is in it."""
        with suppress(NotMemberError):
            self._group.leave(self._member_id)

    def share_lease(self) -> int:
        """Return a descriptor that keeps the lease of the membership.

        Raises:
            NotMemberError: The membership has ended, or not begun.
            UnsupportedError: The store does not offer it.
        """
        return self._group.share_lease(self._member_id)

    def fetch_part(self, attempt: str, number: int) -> Part | None:
        """Return a part of an assignment; None if it is gone or cannot be read."""
        found = self._parts.get(self._keys.part(attempt, number))
        return decoded_part(None if found is None else found.value)

    def find_assignment(self, state: StateRecord, instance: str) -> Assignment | None:
        """Return what the generation of *state* gives to *instance*; None if it gives nothing."""
        if not state.parts:
            return state.inline.get(instance)
        found: Assignment | int | None = part_of(instance, state.parts)
        while isinstance(found, int):
            found = (self.fetch_part(state.attempt, found) or {}).get(instance)
        return found

    def read_group(self) -> GroupReading:
        """Return the members of the group, read from the store now."""
        return group_reading(self._group.membership())

    # -- of candidates

    def nominate(self, on_elected: LeadershipListener, on_lost: LeadershipListener) -> None:
        """Stand for election; the callbacks receive the terms."""
        self._election.nominate(
            self._member_id, self._member_id, on_elected=on_elected, on_lost=on_lost
        )

    def resign(self) -> None:
        """Stop standing for election, and stop leading."""
        with suppress(NotNominatedError):
            self._election.resign(self._member_id)

    def has_leader(self) -> bool:
        """Return whether the group has a leader now."""
        return self._election.get_leader() is not None

    # -- of the leader

    def listen_to_group(self, callback: GroupListener) -> None:
        """Call *callback* with the present members and at every change of them."""
        self._group.add_listener(callback, initial=True)

    def forget_group(self, callback: GroupListener) -> None:
        """Start no call of *callback* after this returns."""
        self._group.remove_listener(callback)

    def write_state(self, record: StateRecord, expected: Version | Condition) -> Version:
        """Write the state if *expected* holds.

        Raises:
            KeyExistsError, VersionConflictError, KeyMissingError: It does not.
        """
        if isinstance(expected, Version):
            return self._states.compare_and_set(self._keys.state, expected, record)
        return self._states.put(self._keys.state, record)

    def read_instances(self, instances: tuple[str, ...]) -> dict[str, str]:
        """Return which member has each of *instances*; ``""`` for none."""
        keys = {name: self._keys.instance(name) for name in instances}
        found = self._texts.fetch_many(keys.values()).result()
        return {name: found.get(key, "") for name, key in keys.items()}

    def read_parts(self, attempt: str, numbers: tuple[int, ...]) -> dict[int, Part | None]:
        """Return parts of an assignment; None for those that are gone or cannot be read."""
        keys = {number: self._keys.part(attempt, number) for number in numbers}
        found = self._parts.fetch_many(keys.values()).result()
        return {number: decoded_part(found.get(key)) for number, key in keys.items()}

    def put_parts(self, attempt: str, parts: Mapping[int, bytes]) -> None:
        """Create the parts of an attempt.

        Raises:
            PartialWriteError: Some may be missing, or may come later.
        """
        named = {self._keys.part(attempt, number): data for number, data in parts.items()}
        self._written.update(named)
        self._parts.put_many(named)

    def clean(self, generation: int) -> None:
        """Delete the parts that are outdated at *generation*, as far as the store lets it."""
        names = self._parts.list(self._keys.assignments) if self._can_list else self._written
        for key in [*names]:
            if is_outdated(parse_key(key).name, generation):
                with suppress(KeyMissingError):
                    self._parts.delete(key)
                self._written.discard(key)

    @override
    def close(self) -> None:
        """Leave the group and the election, and remove all listeners.

        Returns by the operation timeout. Releases that the store has not confirmed by then are
        retried, or the session ends.
        """
        handles = (self._group, self._election, self._listeners)
        LoopHandle.close_together((*handles, self._states, self._texts, self._parts))


@contextmanager
def unreadable_as_store_error() -> Generator[None]:
    """Raise `StoreError` for a record that cannot be read: no caller has a codec to correct."""
    try:
        yield
    except CodecError as error:
        raise StoreError(str(error)) from error


def group_reading(members: Members[MemberRecord]) -> GroupReading:
    """Return *members* as the decisions have them."""
    present = tuple(
        PresentMember(member_id, members.incarnations[member_id], record)
        for member_id, record in members.items()
    )
    return GroupReading(members.order, present, members.undecodable | members.unreadable)


def read_assignments(
    locator: PluginLocator, keys: GroupKeys, state: StateRecord
) -> dict[str, Assignment]:
    """Return all assignments of *state* by instance; those of parts that are gone are missing."""
    if not state.parts:
        return dict(state.inline)
    storage = locator.storage(BYTES)
    numbers = {*range(state.parts)}
    found: dict[str, Assignment | int] = {}
    while numbers:
        wanted = [keys.part(state.attempt, number) for number in numbers]
        parts = storage.fetch_many(wanted).result().values()
        read = {name: one for data in parts for name, one in (decoded_part(data) or {}).items()}
        found |= read
        numbers = {one for one in read.values() if isinstance(one, int)}
    return {name: one for name, one in found.items() if isinstance(one, Assignment)}
