"""Keeping a member out of its group for some time: see `kip30.runtime.bans`.

A member obeys if the setting ``plugin.operations`` of its client is true. One that does not, or of
an earlier version of kip30, stays: `Overview.staying` has those that do.

The member itself ends its membership. Its record is not removed by others, so that no other member
has its id while its program may still act as that member.
"""

import time
from collections.abc import Sequence
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

from kip30.codecs import BYTES
from kip30.errors import DirectiveRefusedError, UsageError
from kip30.locator import PluginLocator
from kip30.names import INTERNAL, check_id
from kip30.operations.key_scan import decoded_records
from kip30.operations.operator_records import OperatorRecord, check_reason, this_operator
from kip30.operations.scanned_pages import StoreScan
from kip30.runtime.bans import MOST, NAMESPACE, Ban, Bans, bans_key, decode_bans, encode_bans
from kip30.scanning import Rejected

USUAL_BAN_SECONDS = 300.0
LONGEST_BAN_SECONDS = 365 * 86_400.0


class BannedMember(NamedTuple):
    """An id, as it was after `evict` or `admit`.

    Attributes:
        group: The group.
        id: The id.
        is_member: Whether a member had that id, just before, also one whose record cannot be read.
            It may not have left yet.
        ban: Its ban, which may be over by now; None: it has none.
    """

    group: str
    id: str
    is_member: bool
    ban: Ban | None


def read_bans(locator: PluginLocator, group: str) -> tuple[Ban, ...]:
    """Return the bans of *group* that are not over by the clock of this machine.

    Raises:
        UsageError, InvalidNameError: As `check_group`. Nothing was sent.
        UnavailableError: The store did not answer in time.
        StoreError: The record is another program's, a later kip30's, or damaged.
    """
    return _record(locator, group).read().in_effect(time.time())


def ban_record(ban: Ban, *, is_member: bool) -> dict[str, Any]:
    """Return the fields of *ban*, and whether a member has its id, as JSON shows them."""
    return {**ban._asdict(), "is_member": is_member}


def scan_bans(scan: StoreScan, unreadable: list[Rejected]) -> dict[str, Sequence[Ban]]:
    """Return the bans that are not over by the clock of this machine, by group.

    Those in groups of kip30 itself are left out, because they have no effect. What cannot be read
    is added to *unreadable*.
    """
    found = decoded_records(scan, NAMESPACE, decode_bans, unreadable)
    present = {group: one.in_effect(time.time()) for group, one in found}
    return {group: one for group, one in present.items() if one and not group.startswith(INTERNAL)}


def member_ids(locator: PluginLocator, group: str) -> frozenset[str]:
    """Return the ids that are taken in *group*, those with records that cannot be read included.

    Raises:
        UnavailableError: The store did not answer in time.
    """
    members = locator.group_membership(group, BYTES).membership()
    return members.unreadable.union(members)


def check_group(group: str) -> None:
    """Return if *group* can have bans.

    Raises:
        UsageError: It is one of kip30 itself.
        InvalidNameError: The name cannot be that of a group, or is too long for bans.
    """
    if check_id(group, "group").startswith(INTERNAL):
        raise UsageError(f"{group!r} is one of kip30's own groups: it obeys no bans")
    bans_key(group)


def evict(
    locator: PluginLocator,
    group: str,
    member_id: str,
    *,
    ban_seconds: float = USUAL_BAN_SECONDS,
    reason: str = "",
) -> BannedMember:
    """Ban *member_id* from *group* for some time, so that its member leaves, if there is one.

    This does not wait until the member has left. It joins again by itself when the ban is over, by
    its own clock, or lifted by `admit`. An id that no member has is banned all the same: it cannot
    join then. A ban that is there is replaced.

    Args:
        locator: Where the group is.
        group: Its name.
        member_id: The id.
        ban_seconds: How long, by the time of day; a year at most.
        reason: Shown to operators and to the program, up to 200 characters.

    Raises:
        UsageError, InvalidNameError: An argument is wrong, or the group is one of kip30 itself.
            Nothing was sent.
        UnsupportedError: The store has no ``compare-and-set``. Nothing was changed.
        DirectiveRefusedError: The group has 40 bans already that are not over. Nothing was changed.
        StoreError: The present record cannot be read. Nothing was changed.
        UnavailableError: The store did not answer in time. Nothing was changed.
        OutcomeUnknownError: The answer was lost: the id may be banned.
    """
    if not 0 < ban_seconds <= LONGEST_BAN_SECONDS:
        raise UsageError(f"a ban of {ban_seconds:g} s is not possible: give up to a year")
    checked, by = check_reason(reason), this_operator()
    check_id(member_id, "member")
    record = _record(locator, group)
    is_member = _is_member(locator, group, member_id)

    def banned(found: Bans) -> Bans:
        now = time.time()
        kept = _with_room([ban for ban in found.bans if ban.id != member_id], now)
        if len(kept) >= MOST:
            raise DirectiveRefusedError(
                f"{group!r} has {MOST} bans, and has room for no other:"
                f" `kip30 group admit {group} ID` lifts one"
            )
        return found.replaced([*kept, Ban(member_id, now + ban_seconds, now, by, checked)])

    ban = record.write(banned).of(member_id)
    return BannedMember(group, member_id, is_member, ban)


def admit(locator: PluginLocator, group: str, member_id: str) -> BannedMember:
    """Lift the ban of *member_id* in *group*, if there is one: its member joins again by itself.

    Raises as `evict`; without a ban nothing is written.
    """
    check_id(member_id, "member")
    record = _record(locator, group)
    is_member = _is_member(locator, group, member_id)

    def admitted(found: Bans) -> Bans:
        if found.of(member_id) is None:
            return found
        return found.replaced(ban for ban in found.bans if ban.id != member_id)

    record.write(admitted)
    return BannedMember(group, member_id, is_member, None)


def _with_room(bans: Sequence[Ban], now: float) -> Sequence[Ban]:
    """Return *bans* without as many that are over as another one needs room, the oldest first.

    The others that are over stay: by the clock of a member they may be in effect.
    """
    over = sorted((ban for ban in bans if ban.is_over(now)), key=attrgetter("until"))
    dropped = over[: max(0, len(bans) + 1 - MOST)]
    return [ban for ban in bans if ban not in dropped]


def _record(locator: PluginLocator, group: str) -> OperatorRecord[Bans]:
    check_group(group)
    return OperatorRecord(
        locator, bans_key(group), Bans(), partial(decode_bans, group), encode_bans
    )


def _is_member(locator: PluginLocator, group: str, member_id: str) -> bool:
    return member_id in member_ids(locator, group)
