"""`LeaderCoordinator`: a group elects one of its members, as Confluent's Schema Registry does.

The leader of the group only chooses; the choice depends on what all members say about themselves.
So a member that may not be elected can still choose.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from typing_extensions import override

from kip30.coordinator.abstract_coordinator import AbstractCoordinator
from kip30.coordinator.config import GroupConfig
from kip30.coordinator.interface import AssignmentMetadata, JoinGroupMetadata
from kip30.coordinator.item_texts import decode, encode
from kip30.errors import UsageError
from kip30.locator import PluginLocator

_PROTOCOL = "v0"
_CONFIG = GroupConfig()


class MemberIdentity(NamedTuple):
    """The identity of a member of the group.

    Attributes:
        url: Where the others reach it. No other member of the group may have the same one.
        eligible: Whether it may be elected.
    """

    url: str
    eligible: bool = True


class Election(NamedTuple):
    """Result of an election.

    Attributes:
        elected: The elected member; None if there is none.
        duplicates: The members whose url another member has, too.
        is_withheld: Whether incumbents must give it up before another member may have it.
    """

    elected: str | None
    duplicates: frozenset[str]
    is_withheld: bool


def elect(
    said: Mapping[str, Mapping[str, Any]], *, sticky: bool, absent: Collection[str] = ()
) -> Election:
    """Elect a member.

    Args:
        said: The metadata of each member, by member id.
        sticky: Whether the elected member stays elected.
        absent: The ids of members that are away: they may stay elected, and give up nothing.
    """
    urls = Counter(one["url"] for one in said.values())
    duplicates = frozenset(name for name, one in said.items() if urls[one["url"]] > 1)
    eligible = [name for name, one in said.items() if one["eligible"] and name not in duplicates]
    incumbents = _incumbents(said) if sticky else []
    if len(incumbents) == 1 and incumbents[0] in eligible:
        return Election(incumbents[0], duplicates, is_withheld=False)
    if all(name in absent for name in incumbents):
        least = min(eligible, key=lambda name: said[name]["url"], default=None)
        return Election(least, duplicates, is_withheld=False)
    # Two members that both claim it, or one that may no longer have it, must give it up first.
    return Election(None, duplicates, is_withheld=True)


def _incumbents(said: Mapping[str, Mapping[str, Any]]) -> list[str]:
    claims = {name: one["generation"] for name, one in said.items() if one["elected"]}
    newest = max(claims.values(), default=-1)
    return [name for name, generation in claims.items() if generation == newest]


class LeaderCoordinator(AbstractCoordinator):
    """A member of a group that always agrees on one elected member, or on none.

    Sticky: the elected member stays elected while it is eligible and present. Otherwise the
    eligible one with the least url is elected, and each round begins with a time without an elected
    member.

    Members with the same url are an error: none of them is elected, because the url does not tell
    which of them is meant. `poll` raises `UsageError` on each of them, once in each generation. The
    member is not closed, and may be elected once no other one has its url.
    """

    def __init__(  # noqa: PLR0913  all by keyword
        self,
        locator: PluginLocator,
        group_id: str,
        *,
        identity: MemberIdentity,
        on_elected: Callable[[MemberIdentity | None, int], object],
        sticky: bool = True,
        config: GroupConfig = _CONFIG,
    ) -> None:
        """Prepare a member; see `AbstractCoordinator`.

        Args:
            locator: A started locator.
            group_id: The group.
            identity: This member's.
            on_elected: Called on the polling thread with the elected member and the generation in
                which it was elected, and with None and -1 while this member knows of none. If it
                raises at an elected member, it is called again with that by the next poll. An
                elected member must write through `storage`.
            sticky: Whether the elected member stays elected; the same for all members.
            config: The settings of the member.
        """
        super().__init__(locator, group_id, config=config)
        self.identity: MemberIdentity = identity
        self._on_elected = on_elected
        self._is_sticky = sticky
        # The last argument of on_elected, and the member id of that member. Read and written on the
        # polling thread, except by `is_elected`.
        self._elected: MemberIdentity | None = None
        self._elected_id = ""
        # Whether that call has returned; on_elected is not called twice in a row with None.
        self._has_heard = True
        # The generation in which the share was taken up.
        self._taken_up_in = -1
        self._has_withheld = False

    @property
    def is_elected(self) -> bool:
        """True if this member is the elected one, judged by the deadline of its share."""
        return self._elected_id == self.member_id and self.is_valid()

    # -- KIP-795

    @override
    def protocol_type(self) -> str:
        """Return Schema Registry's name for the kind of group."""
        return "sr"

    @override
    def is_cooperative(self) -> bool:
        return self._is_sticky

    @override
    def metadata(self) -> Sequence[JoinGroupMetadata]:
        said = {**self._lasting(), "elected": self._elected_id == self.member_id}
        return [JoinGroupMetadata(_PROTOCOL, encode({**said, "generation": self._taken_up_in}))]

    @override
    def lasting_metadata(self, offered: Sequence[JoinGroupMetadata]) -> Sequence[JoinGroupMetadata]:
        return [JoinGroupMetadata(one.name, encode(self._lasting())) for one in offered]

    @override
    def on_join_prepare(self, generation: int, member_id: str) -> None:
        """Forget the elected member, unless it stays."""
        if not self._is_sticky:
            self._tell(None, "", -1)

    @override
    def perform_assignment(
        self, leader_id: str, protocol: str, all_member_metadata: Sequence[AssignmentMetadata]
    ) -> Mapping[str, bytes]:
        said = {one.member_id: decode(one.metadata) for one in all_member_metadata}
        absent = {one.member_id for one in all_member_metadata if not one.is_present}
        result = elect(said, sticky=self._is_sticky, absent=absent)
        self._has_withheld = result.is_withheld
        chosen = result.elected
        share: dict[str, object] = {}
        if chosen is not None:
            share = {"member": chosen, "url": said[chosen]["url"]}
            instances = {one.member_id: one.group_instance_id for one in all_member_metadata}
            if instances[chosen] is not None:
                share["instance"] = instances[chosen]
        error = {**share, "duplicate": True}
        return {name: encode(error if name in result.duplicates else share) for name in said}

    @override
    def follow_up(self) -> bool:
        return self._has_withheld

    @override
    def on_join_complete(
        self, generation: int, member_id: str, protocol: str, member_assignment: bytes
    ) -> None:
        said = decode(member_assignment)
        elected = self._elected_in(said)
        if elected != self._elected_id or not self._has_heard:
            identity = MemberIdentity(str(said["url"])) if elected else None
            self._tell(identity, elected, generation if elected else -1)
        is_new, self._taken_up_in = generation != self._taken_up_in, generation
        # Once in each generation: otherwise the share would never be taken up.
        if is_new and said.get("duplicate"):
            raise UsageError(
                f"another member of {self.group_id!r} has the url {self.identity.url!r:.200}, too:"
                " neither can be elected; give each member its own url"
            )

    @override
    def on_lost(self, generation: int, member_id: str) -> None:
        self._tell(None, "", -1)
        self._taken_up_in = -1

    @override
    def on_leave_prepare(self) -> None:
        self._tell(None, "", -1)

    def _elected_in(self, share: Mapping[str, Any]) -> str:
        """Return the id of the elected member; the own one if the instance of this member is.

        The share of a static member that has returned names its former process.
        """
        instance = share.get("instance")
        if instance is not None and instance == self._config.group_instance_id:
            return self.member_id
        return str(share.get("member", ""))

    def _tell(self, elected: MemberIdentity | None, elected_id: str, generation: int) -> None:
        """Call on_elected; not with None if it was called with None last."""
        if elected is None and self._elected is None:
            return
        self._elected, self._elected_id = elected, elected_id
        self._has_heard = elected is None
        self._on_elected(elected, generation)
        self._has_heard = True

    def _lasting(self) -> dict[str, object]:
        return {"url": self.identity.url, "eligible": self.identity.eligible}
