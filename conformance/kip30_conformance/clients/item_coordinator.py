"""A coordinator that divides items, numbers from 0 on, and records every call."""

import json
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heapreplace
from typing import Any, NamedTuple

from typing_extensions import override

from kip30 import PluginLocator
from kip30.coordinator import (
    AbstractCoordinator,
    AssignmentMetadata,
    GroupConfig,
    JoinGroupMetadata,
)
from kip30.coordinator.owner_resolution import Ownership, owners
from kip30_conformance.polling import eventually

_Items = frozenset[int]


class Call(NamedTuple):
    """One call that a coordinator made of its application.

    Attributes:
        at: When it began, on the clock of the leases.
        name: The method.
        generation: Of its argument.
        items: Those of the share, in `on_join_complete`; otherwise those held.
    """

    at: float
    name: str
    generation: int
    items: _Items


@dataclass(frozen=True, kw_only=True)
class Offer:
    """The protocols that a member supports.

    Attributes:
        protocols: By name, the preferred one first.
        cooperative: Whether it keeps its items while it joins.
        kind: The protocol type.
        subscription: Part of the metadata; no assignment reads it.
    """

    protocols: tuple[str, ...] = ("even",)
    cooperative: bool = False
    kind: str = "items"
    subscription: str = "all"


_OFFER = Offer()


def quick_config(client: PluginLocator, **more: Any) -> GroupConfig:
    """Return settings that fit the session timeout of *client*, with short pauses."""
    session = client.context.session_timeout_seconds
    settings: dict[str, Any] = {
        "rebalance_timeout_seconds": 2 * session,
        "heartbeat_seconds": session / 4,
        "initial_delay_seconds": min(0.2, session / 4),
        "coalesce_seconds": 0.01,
    }
    return GroupConfig(**{**settings, **more})


class ItemCoordinator(AbstractCoordinator):
    """A member of a group that divides *count* items evenly, moving as few as it can.

    Attributes:
        calls: All calls of the application, in order.
        held: The items that it works on while its share is valid.
        before: Called with the name of a method before that acts; may raise.
    """

    def __init__(
        self,
        client: PluginLocator,
        group_id: str = "g",
        *,
        count: int = 6,
        offer: Offer = _OFFER,
        config: GroupConfig | None = None,
    ) -> None:
        """Divide *count* items if this leads."""
        super().__init__(client, group_id, config=config or quick_config(client))
        self.offer = offer
        self.count = count
        self.calls: list[Call] = []
        self.held: _Items = frozenset()
        self.before: Callable[[str], object] = _nothing
        self.clock = client.context.clock
        self._in_call = threading.Lock()
        self._owned_in = -1
        self._withheld = 0

    @override
    def protocol_type(self) -> str:
        return self.offer.kind

    @override
    def is_cooperative(self) -> bool:
        return self.offer.cooperative

    @override
    def metadata(self) -> Sequence[JoinGroupMetadata]:
        # An eager member has given everything up before it joins.
        held = self.held if self.offer.cooperative else frozenset[int]()
        owned = {"owned": sorted(held), "generation": self._owned_in if held else -1}
        said = json.dumps({"subscription": self.offer.subscription, **owned})
        return [JoinGroupMetadata(name, said.encode()) for name in self.offer.protocols]

    @override
    def lasting_metadata(self, offered: Sequence[JoinGroupMetadata]) -> Sequence[JoinGroupMetadata]:
        lasting = self.offer.subscription.encode()
        return [JoinGroupMetadata(one.name, lasting) for one in offered]

    @override
    def on_join_prepare(self, generation: int, member_id: str) -> None:
        with self._call("on_join_prepare", generation):
            if not self.offer.cooperative:
                self.held = frozenset()

    @override
    def perform_assignment(
        self, leader_id: str, protocol: str, all_member_metadata: Sequence[AssignmentMetadata]
    ) -> Mapping[str, bytes]:
        with self._call("perform_assignment", -1):
            claims = [_ownership(one) for one in all_member_metadata]
            owner = owners(claims)
            shares = balanced([one.member_id for one in all_member_metadata], owner, self.count)
            if self.offer.cooperative:
                # An absent member gives up nothing: its items are free.
                holding = {one.member_id for one in all_member_metadata if one.is_present}
                for name, share in shares.items():
                    share -= {item for item in share if owner.get(item) in holding - {name}}
            self._withheld = self.count - sum(map(len, shares.values()))
            return {name: json.dumps(sorted(share)).encode() for name, share in shares.items()}

    @override
    def follow_up(self) -> bool:
        return self._withheld > 0

    @override
    def on_join_complete(
        self, generation: int, member_id: str, protocol: str, member_assignment: bytes
    ) -> None:
        share: list[int] = json.loads(member_assignment or b"[]")
        with self._call("on_join_complete", generation, share):
            self.held, self._owned_in = frozenset(share), generation

    @override
    def on_lost(self, generation: int, member_id: str) -> None:
        with self._call("on_lost", generation):
            self.held, self._owned_in = frozenset(), -1

    @override
    def on_leave_prepare(self) -> None:
        with self._call("on_leave_prepare", self._owned_in):
            pass

    # -- what checks ask

    def works_on(self) -> _Items:
        """Return the items that this works on now."""
        return self.held if self.is_valid() else frozenset()

    def names(self) -> list[str]:
        """Return the names of all calls, in order."""
        return [call.name for call in self.calls]

    def generations(self) -> list[int]:
        """Return the generations that were taken up, in order."""
        return [call.generation for call in self.calls if call.name == "on_join_complete"]

    def _call(self, name: str, generation: int, items: Iterable[int] | None = None) -> "_OneCall":
        held = self.held if items is None else frozenset(items)
        self.calls.append(Call(self.clock.now(), name, generation, held))
        return _OneCall(self._in_call, lambda: self.before(name))


class _OneCall:
    """A call of the application, which must not overlap another one."""

    def __init__(self, lock: threading.Lock, first: Callable[[], object]) -> None:
        self._lock = lock
        self._first = first

    def __enter__(self) -> None:
        assert self._lock.acquire(blocking=False), "two calls of one application at once"
        try:
            self._first()
        except BaseException:
            self._lock.release()
            raise

    def __exit__(self, *_error: object) -> None:
        self._lock.release()


def are_shared(members: Iterable[ItemCoordinator]) -> bool:
    """Return whether all items are worked on, each by one of *members*, and each has as many."""
    present = list(members)
    shares = [member.works_on() for member in present]
    sizes = {len(share) for share in shares}
    count = present[0].count
    together = frozenset[int]().union(*shares)
    is_complete = together == frozenset(range(count)) and sum(map(len, shares)) == count
    return is_complete and max(sizes) - min(sizes) <= 1


def await_shared(*members: ItemCoordinator, within: float = 30.0) -> None:
    """Wait until all items are shared evenly among *members*."""
    eventually(lambda: are_shared(members), within=within, what="all items are shared evenly")


def await_generation(one: ItemCoordinator, number: int) -> None:
    """Wait until *one* has taken up generation *number* or a later one."""
    eventually(lambda: one.generation.generation >= number, within=30, what=f"generation {number}")


def await_call(one: ItemCoordinator, name: str, times: int = 1) -> None:
    """Wait until the method *name* of *one* was called that often."""
    eventually(lambda: one.names().count(name) >= times, within=30, what=f"{name} was called")


def balanced(names: Sequence[str], owner: Mapping[Any, str], count: int) -> dict[str, set[int]]:
    """Return for each of *names* as many items as for any other, its own first."""
    least, extra = divmod(count, len(names))
    owned: dict[str, list[int]] = {name: [] for name in names}
    for item in range(count):
        if (name := owner.get(item, "")) in owned:
            owned[name].append(item)
    shares: dict[str, set[int]] = {}
    for name in sorted(names, key=lambda name: (-len(owned[name]), name)):
        shares[name] = set(owned[name][: least + (extra > 0)])
        extra -= len(shares[name]) == least + 1
    # The smallest share first: with a thousand names a search for each item would take seconds.
    smallest = [(len(share), name) for name, share in shares.items()]
    heapify(smallest)
    for item in set(range(count)) - set[int]().union(*shares.values()):
        size, name = smallest[0]
        shares[name].add(item)
        heapreplace(smallest, (size + 1, name))
    return shares


def _ownership(one: AssignmentMetadata) -> Ownership:
    said = json.loads(one.metadata)
    return Ownership(one.member_id, said["generation"], said["owned"])


def _nothing(_name: str) -> None:
    """Do nothing."""
