"""`PartitionCoordinator`: the partitions of topics, divided among members as Kafka's consumers do.

There is no broker: `topics` returns the topics that exist.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol, cast

from typing_extensions import override

from kip30.coordinator.assignors import Assignor, CooperativeStickyAssignor, Item, Subscriber
from kip30.coordinator.assignors.base import holders
from kip30.coordinator.config import GroupConfig
from kip30.coordinator.held_items import HeldItems, HoldingCoordinator
from kip30.coordinator.interface import AssignmentMetadata, JoinGroupMetadata
from kip30.coordinator.item_texts import decode, encode, items_in, ranges_of
from kip30.coordinator.voting import check_cooperation
from kip30.errors import GroupError, UsageError
from kip30.locator import PluginLocator

_COOPERATIVE = (CooperativeStickyAssignor(),)
_CONFIG = GroupConfig()


class RebalanceListener(Protocol):
    """Called on the polling thread for items that are gained or lost, not for those that stay."""

    def on_assigned(self, items: Sequence[Item]) -> object:
        """Start to work on *items*.

        If this raises, `on_revoked` is called with all of them, because work on some may have
        begun, and the next poll calls this again with those that still are this member's.
        """
        ...

    def on_revoked(self, items: Sequence[Item]) -> object:
        """Stop working on *items* before this returns. Guarded writes still succeed in it."""
        ...

    def on_lost(self, items: Sequence[Item]) -> object:
        """Stop working on *items*: another member may have them, so it is too late to write."""
        ...


class PartitionCoordinator(HoldingCoordinator[Item]):
    """A member that gets partitions of the topics that it subscribes to (KIP-54, KIP-429).

    With cooperative assignors a member keeps, through a round, the items that stay its own; items
    that it must give up belong to no member until a second round, which follows automatically. With
    eager ones it gives up everything before each round.
    """

    def __init__(  # noqa: PLR0913  all by keyword; Kafka's consumer has as many
        self,
        locator: PluginLocator,
        group_id: str,
        *,
        subscription: Collection[str] | None,
        topics: Callable[[], Mapping[str, int]],
        listener: RebalanceListener,
        assignors: Sequence[Assignor] = _COOPERATIVE,
        refresh_seconds: float = 30.0,
        config: GroupConfig = _CONFIG,
    ) -> None:
        """Prepare a member; see `AbstractCoordinator`.

        Args:
            locator: A started locator.
            group_id: The group.
            subscription: The topics that it takes partitions of; None for all that exist.
            topics: Returns how many partitions each topic has. Called on the leader's polling
            thread, for each assignment and every *refresh_seconds*; a change causes a round.
            listener: Called for partitions that come and go.
            assignors: The assignors that this member supports, the preferred one first; all of them
                cooperative or none.
            refresh_seconds: How often topics are checked, in seconds.
            config: The settings of the member.

        Raises:
            UsageError: *subscription* is one str, there is no assignor, or some are cooperative
                and some are not.
        """
        held = HeldItems[Item](listener.on_assigned, listener.on_revoked, listener.on_lost)
        super().__init__(
            locator, group_id, held=held, refresh_seconds=refresh_seconds, config=config
        )
        if not assignors:
            raise UsageError("a member needs an assignor: give at least one")
        self._assignors = {one.name: one for one in assignors}
        self._is_cooperative = check_cooperation({one.name: one.cooperative for one in assignors})
        # The following are read and written only on the polling thread, except the subscription.
        self._subscription = _checked_subscription(subscription)
        self._topics = topics
        # Of the last assignment that this member made: the subscribed topics, None for all, and
        # those of them that existed.
        self._wanted: frozenset[str] | None = frozenset()
        self._assigned_topics: Mapping[str, int] | None = None
        # Whether the last assignment has withheld something.
        self._has_withheld = False

    @property
    def owned(self) -> frozenset[Item]:
        """The items that the listener has received and was not asked to give up."""
        return self._held.items

    def subscribe(self, subscription: Collection[str] | None) -> None:
        """Subscribe to other topics, None for all; a round follows. Any thread may call.

        Raises:
            UsageError: *subscription* is one str.
            ClosedError, LifecycleError: As `poll`.
        """
        self._subscription = _checked_subscription(subscription)
        self.request_rejoin("it subscribes to other topics")

    # -- KIP-795

    @override
    def protocol_type(self) -> str:
        """Return Kafka's name for the kind of group."""
        return "consumer"

    @override
    def is_cooperative(self) -> bool:
        return self._is_cooperative

    @override
    def metadata(self) -> Sequence[JoinGroupMetadata]:
        said = encode(
            {
                "topics": _in_metadata(self._subscription),
                "owned": ranges_of(self._held.items),
                "generation": self._held.generation,
            }
        )
        return [JoinGroupMetadata(name, said) for name in self._assignors]

    @override
    def lasting_metadata(self, offered: Sequence[JoinGroupMetadata]) -> Sequence[JoinGroupMetadata]:
        lasting = encode({"topics": _in_metadata(self._subscription)})
        return [JoinGroupMetadata(one.name, lasting) for one in offered]

    @override
    def on_join_prepare(self, generation: int, member_id: str) -> None:
        """Give up all items; a cooperative member only those of topics that it has left."""
        held = self._held.items
        topics = self._subscription
        left = {item for item in held if topics is not None and item.topic not in topics}
        self._held.give_up(left if self._is_cooperative else held)

    @override
    def perform_assignment(
        self, leader_id: str, protocol: str, all_member_metadata: Sequence[AssignmentMetadata]
    ) -> Mapping[str, bytes]:
        said = [(one, decode(one.metadata)) for one in all_member_metadata]
        self._wanted = _subscribed(decoded for _, decoded in said)
        topics = self._assigned_topics = self._wanted_topics()
        existing = frozenset(topics)
        subscribers = [_subscriber(one, decoded, existing) for one, decoded in said]
        self._refresh_later()
        assignor = self._assignors[protocol]
        assigned = assignor.assign(topics, subscribers)
        given = check_assignment(assigned, subscribers, topics, is_cooperative=assignor.cooperative)
        self._has_withheld = given + _kept_for_absent(assigned, subscribers, topics) < sum(
            topics.values()
        )
        return {
            member: encode({"items": ranges_of(items)}) if items else b""
            for member, items in assigned.items()
        }

    @override
    def follow_up(self) -> bool:
        return self._has_withheld

    @override
    def _items_in(self, share: Mapping[str, Any]) -> Iterable[Item]:
        return items_in(share.get("items", {}))

    @override
    def _has_changed(self) -> bool:
        return self._assigned_topics is None or self._wanted_topics() != self._assigned_topics

    def _wanted_topics(self) -> dict[str, int]:
        topics, wanted = self._topics(), self._wanted
        return {name: topics[name] for name in topics if wanted is None or name in wanted}


def check_assignment(
    assigned: Mapping[str, Sequence[Item]],
    subscribers: Sequence[Subscriber],
    topics: Mapping[str, int],
    *,
    is_cooperative: bool,
) -> int:
    """Check what an assignor has returned, before it is published; return how many items it gives.

    Raises:
        GroupError: An item goes to two members, to one that does not subscribe to its topic, or,
            if members keep their items while they join, away from one that still has it (K43).
    """
    known = {one.member_id: one for one in subscribers}
    holding = holders(topics, subscribers) if is_cooperative else {}
    given: dict[Item, str] = {}
    for member, items in assigned.items():
        subscriber = known.get(member)
        if subscriber is None:
            raise GroupError(f"the assignor has a share for {member!r:.60}, which is not a member")
        for item in items:
            if item.topic not in subscriber.topics:
                raise GroupError(f"the assignor gives {item} to {member!r:.60}: not subscribed")
            if item in given:
                raise GroupError(f"the assignor gives {item} to two members")
            if any(one.member_id != member for one in holding.get(item, ())):
                raise GroupError(f"the assignor gives {item} away before its owner gives it up")
            given[item] = member
    return len(given)


def _kept_for_absent(
    assigned: Mapping[str, Sequence[Item]],
    subscribers: Sequence[Subscriber],
    topics: Mapping[str, int],
) -> int:
    """Return how many items no member gets, and only absent ones report: no round frees them."""
    given = {item for items in assigned.values() for item in items}
    holding = holders(topics, subscribers)
    return sum(item not in given and not present for item, present in holding.items())


def _subscribed(said: Iterable[Mapping[str, Any]]) -> frozenset[str] | None:
    """Return all topics that members subscribe to by their metadata; None if one does to all."""
    found = [one["topics"] for one in said]
    return None if None in found else frozenset[str]().union(*found)


def _subscriber(
    one: AssignmentMetadata, said: Mapping[str, Any], existing: frozenset[str]
) -> Subscriber:
    topics = said["topics"]
    return Subscriber(
        member_id=one.member_id,
        topics=existing if topics is None else frozenset(topics),
        owned=items_in(said["owned"]),
        generation=said["generation"],
        group_instance_id=one.group_instance_id,
        is_present=one.is_present,
    )


def _in_metadata(subscription: frozenset[str] | None) -> list[str] | None:
    return None if subscription is None else sorted(subscription)


def _checked_subscription(subscription: object) -> frozenset[str] | None:
    if subscription is None:
        return None
    if isinstance(subscription, str | bytes) or not isinstance(subscription, Collection):
        raise UsageError("subscription must be several topics: pass a list")
    topics = cast("Collection[object]", subscription)
    if not all(isinstance(topic, str) for topic in topics):
        raise UsageError("each topic must be a str")
    return frozenset(str(topic) for topic in topics)
