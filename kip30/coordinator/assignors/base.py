"""The arguments and results of assignors."""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

NO_GENERATION = -1


class Item(NamedTuple):
    """One partition of a topic, the unit of assignment. Items sort as in Kafka."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscriber:
    """A member as an assignor sees it.

    Attributes:
        member_id: Its id, unique among the subscribers.
        topics: The topics it subscribes to. A topic that does not exist adds nothing.
        owned: The items that it still has, by its own account.
        generation: The generation in which it got them; -1 if it is in none.
        group_instance_id: Its id as a static member, which a restart keeps (KIP-345).
        is_present: False for a static member that is away, and whose share waits for it. It has
            no work under way; *owned* is from its last join.
    """

    member_id: str
    topics: AbstractSet[str]
    owned: Sequence[Item] = ()
    generation: int = NO_GENERATION
    group_instance_id: str | None = None
    is_present: bool = True


Assignment = Mapping[str, Sequence[Item]]
"""The items of each member, by member id, in order; every subscriber is in it."""


class Assignor(ABC):
    """Divides the partitions of topics among subscribers (Kafka's ConsumerPartitionAssignor).

    An assignor has no state, and reads no clock: the items to keep are in `Subscriber.owned`. The
    order of the subscribers does not matter.

    Attributes:
        name: The name of the protocol, by which members agree on an assignor.
        cooperative: Whether members keep, through a rebalance, the items that stay theirs
            (KIP-429). If not, each of them gives up everything before it joins.
    """

    name: ClassVar[str]
    cooperative: ClassVar[bool] = False

    @abstractmethod
    def assign(self, topics: Mapping[str, int], subscribers: Sequence[Subscriber]) -> Assignment:
        """Return the items of every subscriber.

        An item goes to one subscriber of its topic. If the topic has subscribers, none of its items
        is left out, except those that a cooperative assignor withholds. It need not withhold what
        only subscribers own that are not present; if it does, no member has that until they return
        or their grace has passed.

        Args:
            topics: How many partitions each topic has.
            subscribers: The members of the generation, each id once.
        """


def in_order(subscribers: Iterable[Subscriber]) -> list[Subscriber]:
    """Return the static members by instance id, then the others by member id.

    The order of Kafka's AbstractPartitionAssignor.MemberInfo, so that a static member gets the
    same part after a restart. Texts compare by code point.
    """
    return sorted(subscribers, key=_place)


def _place(subscriber: Subscriber) -> tuple[bool, str, str]:
    instance = subscriber.group_instance_id
    return instance is None, instance or "", subscriber.member_id


def takers(topics: Mapping[str, int], subscribers: Sequence[Subscriber]) -> dict[str, list[int]]:
    """Return, for each topic with subscribers, their indices, rising; topics are in order."""
    found: defaultdict[str, list[int]] = defaultdict(list)
    for index, subscriber in enumerate(subscribers):
        for topic in subscriber.topics & topics.keys():
            found[topic].append(index)
    return dict(sorted(found.items()))


def reports(
    topics: Mapping[str, int], subscribers: Iterable[Subscriber]
) -> dict[Item, list[Subscriber]]:
    """Return the subscribers that report each item as owned, of its newest generation only.

    A report of an older generation is outdated: another subscriber has received the item since. Of
    two in the same generation one must be wrong, and it is unknown which, so neither is the owner
    (KIP-792, and Kafka's AbstractStickyAssignor). Items that do not exist are left out.
    """
    found: dict[Item, list[Subscriber]] = {}
    for subscriber in subscribers:
        for item in set(subscriber.owned):
            reporters = found.get(item)
            if reporters is None or reporters[0].generation < subscriber.generation:
                found[item] = [subscriber]
            elif reporters[0].generation == subscriber.generation:
                reporters.append(subscriber)
    return {
        item: reporters
        for item, reporters in found.items()
        if 0 <= item.partition < topics.get(item.topic, 0)
    }


def holders(
    topics: Mapping[str, int], subscribers: Iterable[Subscriber]
) -> dict[Item, list[Subscriber]]:
    """Return the subscribers that must give an item up before another one may have it.

    Those of `reports` that are present: the others work on nothing. An item that only they report
    has an empty list.
    """
    return {
        item: [one for one in reporters if one.is_present]
        for item, reporters in reports(topics, subscribers).items()
    }
