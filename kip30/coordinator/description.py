"""`describe_group`: describes a group to people and programs that take no part in it."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import cast

from kip30.coordinator.item_texts import decode
from kip30.coordinator.keys import GroupKeys
from kip30.coordinator.records import (
    MEMBER,
    STATE,
    Assignment,
    GroupPhase,
    MemberRecord,
    StateRecord,
)
from kip30.coordinator.store_requests import read_assignments, unreadable_as_store_error
from kip30.coordinator.work_items import name_of_topic
from kip30.errors import CodecError
from kip30.locator import PluginLocator


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberDescription:
    """One member of a group, or the share that waits for one.

    Attributes:
        group_instance_id: That of a static member; None for a dynamic one.
        is_present: Whether the group shows it. If not, its share has not moved yet.
        is_readable: Whether its record can be read: not if it is of a newer kip30, or damaged. Then
            all that is known about it is its share.
        has_share: Whether the generation has a share for it.
        share: The share; empty if there is none.
        since: The generation in which these bytes were first given; -1 if there are none.
        refusal: Why the generation has refused it; empty if it has not.
        round: The newest round that it has joined; 0 if it has joined none, or is not present.
    """

    group_instance_id: str | None
    is_present: bool
    is_readable: bool = True
    has_share: bool = False
    share: bytes = b""
    since: int = -1
    refusal: str = ""
    round: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    """A group, as a few readings that follow each other show it.

    Attributes:
        group_id: Its id.
        is_rebalancing: Whether a round is in progress.
        generation: The last one that was committed; 0 before the first.
        protocol_type: Of its members; empty before the first generation.
        protocol: The one that they agreed on; empty before the first generation.
        leader: The member id of the leader that wrote the state last; empty if none has.
        epoch: That leader's.
        members: By member id.
    """

    group_id: str
    is_rebalancing: bool
    generation: int
    protocol_type: str
    protocol: str
    leader: str
    epoch: int
    members: Mapping[str, MemberDescription]


def describe_group(locator: PluginLocator, group_id: str) -> GroupDescription | None:
    """Describe *group_id* as it is now; None if there is no such group. Only reads.

    The members are read after the state, so a round may lie in between.

    Raises:
        InvalidNameError: *group_id* is not a valid name.
        UnavailableError: The store did not answer by the operation timeout.
        StoreError: The state is of another version of kip30, or damaged.
    """
    keys = GroupKeys(group_id)
    with unreadable_as_store_error():
        found = locator.storage(STATE).get(keys.state)
    members = locator.group_membership(keys.group, MEMBER).membership()
    unreadable = members.undecodable | members.unreadable
    if found is None and not (members or unreadable):
        return None
    if found is None:
        state = StateRecord(phase=GroupPhase.STABLE, generation=0, epoch=0, leader="")
    else:
        state = found.value
    return GroupDescription(
        group_id=group_id,
        is_rebalancing=state.is_preparing,
        generation=state.generation,
        protocol_type=state.protocol_type,
        protocol=state.protocol,
        leader=state.leader,
        epoch=state.epoch,
        members=_members(read_assignments(locator, keys, state), members, unreadable),
    )


def _members(
    assignments: Mapping[str, Assignment],
    present: Mapping[str, MemberRecord],
    unreadable: Collection[str],
) -> dict[str, MemberDescription]:
    returned = _static_members(present)
    described = {
        # A share names its member until the next round; with an instance another one may have it.
        returned.get(instance, one.member_id): MemberDescription(
            group_instance_id=None if instance == one.member_id else instance,
            is_present=False,
            has_share=not one.refusal,
            share=one.share,
            since=-1 if one.refusal else one.since,
            refusal=one.refusal,
        )
        for instance, one in assignments.items()
    }
    for member_id, record in present.items():
        known = described.get(member_id)
        described[member_id] = MemberDescription(
            group_instance_id=record.instance if record.is_static else None,
            is_present=True,
            has_share=known is not None and known.has_share,
            share=b"" if known is None else known.share,
            since=-1 if known is None else known.since,
            refusal="" if known is None else known.refusal,
            round=record.round,
        )
    for member_id in unreadable:
        absent = MemberDescription(group_instance_id=None, is_present=False)
        described[member_id] = replace(
            described.get(member_id, absent), is_present=True, is_readable=False
        )
    return described


def _static_members(present: Mapping[str, MemberRecord]) -> dict[str, str]:
    """Return the member of each instance: of two, the one that has taken it from the other."""
    versions = {
        member_id: version
        for member_id, one in present.items()
        if (version := one.instance_version) is not None
    }
    in_order = sorted(versions, key=versions.__getitem__)
    return {present[member_id].instance: member_id for member_id in in_order}


def share_text(share: bytes) -> str:
    """Return *share* in readable form: items as ranges, with the topic if there are several.

    Items that have a name are shown by their names, with commas between.
    Other shares than those of a `PartitionCoordinator` are shown as text, or else by their size.
    """
    try:
        items = decode(share).get("items")
    except CodecError:
        items = None
    if isinstance(items, dict):
        ranges = cast("dict[str, str]", items)
        names = [name for topic in ranges if (name := name_of_topic(topic)) is not None]
        if names and len(names) == len(ranges):
            return ", ".join(names)
        if len(ranges) == 1:
            return next(iter(ranges.values()))
        return " ".join(f"{topic}:{numbers}" for topic, numbers in ranges.items())
    try:
        return share.decode()
    except UnicodeDecodeError:
        return f"{len(share)} bytes"
