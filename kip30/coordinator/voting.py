"""Choice of a generation's members, and of the one of their protocols that it uses.

Members are considered in an order: those of the last generation first, by incarnation, then the
others by incarnation. Each is taken in if it has the type of the first one and shares a protocol
with all that were taken in before it. So the newcomer that fits no other member is refused, and not
the members that are at work. Incarnations alone do not suffice: a member that comes back after a
lost session, or as another process of its static instance, has a new one.

Of the protocols that all members share each member votes for the one that it prefers, and the most
votes win. Kafka leaves ties open; here the leader's order decides (K13).
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from kip30.coordinator.interface import JoinGroupMetadata
from kip30.coordinator.records import MemberRecord, PresentMember
from kip30.errors import InvalidNameError, UsageError
from kip30.names import check_id


class Vote(NamedTuple):
    """The members of a generation to come, and the protocol that they agreed on.

    Attributes:
        protocol_type: That of the first member, and so of all.
        protocol: The chosen one; empty if there is no member.
        accepted: The members, in the order in which they were considered.
        refused: Why each other one is not a member, in words.
        absent: The ids of the accepted members that are not in the group.
    """

    protocol_type: str
    protocol: str
    accepted: tuple[PresentMember, ...]
    refused: tuple[tuple[PresentMember, str], ...]
    absent: frozenset[str] = frozenset()


def vote(
    members: Iterable[PresentMember],
    *,
    absent: Iterable[PresentMember] = (),
    last: frozenset[str],
    leader_id: str,
    max_size: int | None,
) -> Vote:
    """Choose members and protocol.

    Args:
        members: One for each instance that is in the group.
        absent: One, as it was last seen, for each other instance whose share is kept.
        last: The instances of the last generation.
        leader_id: The member whose order of protocols decides between equal numbers of votes.
        max_size: How many members there may be; None for any number.
    """
    accepted: list[PresentMember] = []
    refused: list[tuple[PresentMember, str]] = []
    common: frozenset[str] = frozenset()
    gone = tuple(absent)
    everyone = (*members, *gone)
    for member in sorted(everyone, key=lambda one: (one.record.instance not in last, one[1])):
        names = _names(member.record)
        why = _refusal(member.record, accepted, common, max_size)
        if why:
            refused.append((member, why))
        else:
            common = names & common if accepted else names
            accepted.append(member)
    kind = accepted[0].record.protocol_type if accepted else ""
    chosen = _most_voted(accepted, common, leader_id)
    away = frozenset(one.member_id for one in gone) & {one.member_id for one in accepted}
    return Vote(kind, chosen, tuple(accepted), tuple(refused), away)


def check_offer(
    protocol_type: object, protocols: Sequence[JoinGroupMetadata]
) -> tuple[JoinGroupMetadata, ...]:
    """Return what a member offers, in the form of its record (K14).

    Raises:
        UsageError: The type or a name is empty or no name, a protocol is there twice, or there is
            none. Nothing was sent.
    """
    try:
        check_id(str(protocol_type) if isinstance(protocol_type, str) else "", "protocol type")
        offered = [
            JoinGroupMetadata(check_id(name, "protocol"), bytes(metadata))
            for name, metadata in protocols
        ]
    except InvalidNameError as error:
        raise UsageError(f"the member cannot join: {error}") from error
    if not offered:
        raise UsageError("the member cannot join: metadata() offers no protocol")
    twice = [name for name, times in Counter(one.name for one in offered).items() if times > 1]
    if twice:
        raise UsageError(f"the member cannot join: metadata() offers {twice[0]!r:.60} twice")
    return tuple(offered)


def check_cooperation(cooperative: Mapping[str, bool]) -> bool:
    """Return whether the protocols of one member are cooperative, given each by name (K49).

    Raises:
        UsageError: Some are and some are not. The member must know before it joins whether to give
            its work up, and which protocol is chosen it learns only afterwards.
    """
    kinds = set(cooperative.values())
    if len(kinds) > 1:
        eager = next(name for name, is_cooperative in cooperative.items() if not is_cooperative)
        other = next(name for name, is_cooperative in cooperative.items() if is_cooperative)
        raise UsageError(
            f"{other!r} is cooperative and {eager!r} is not: offer protocols of one kind"
        )
    return kinds == {True}


def _refusal(
    record: MemberRecord,
    accepted: Sequence[PresentMember],
    common: frozenset[str],
    max_size: int | None,
) -> str:
    if not accepted:
        return "" if _names(record) else "it offers no protocol"
    kind = accepted[0].record.protocol_type
    if record.protocol_type != kind:
        return f"its protocol type is {record.protocol_type!r:.60}, the group's is {kind!r:.60}"
    if not _names(record) & common:
        return f"it offers none of the protocols of the group: {', '.join(sorted(common))}"
    if max_size is not None and len(accepted) >= max_size:
        return f"the group has {max_size} members already"
    return ""


def _names(record: MemberRecord) -> frozenset[str]:
    return frozenset(one.name for one in record.protocols)


def _most_voted(accepted: Sequence[PresentMember], common: frozenset[str], leader_id: str) -> str:
    if not accepted:
        return ""
    votes = Counter(_order(member, common)[0] for member in accepted)
    most = max(votes.values())
    leader = next((one for one in accepted if one.member_id == leader_id), accepted[0])
    return next(name for name in _order(leader, common) if votes[name] == most)


def _order(member: PresentMember, common: frozenset[str]) -> list[str]:
    return [one.name for one in member.record.protocols if one.name in common]
