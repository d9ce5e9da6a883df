"""The application of the models: items that members hold, eagerly or cooperatively."""

import json
from collections.abc import Mapping, Sequence

from kip30.coordinator.interface import AssignmentMetadata, JoinGroupMetadata
from kip30.coordinator.owner_resolution import Ownership, owners

Item = int


class Application:
    """The items of one member; checks that calls come in the order that `Coordinator` promises."""

    def __init__(self, items: int, *, cooperative: bool, subscription: str = "all") -> None:
        self.items = items
        self.cooperative = cooperative
        self.subscription = subscription
        self.held: set[Item] = set()
        self.generation = -1
        self.withheld = 0
        self._prepared = False

    def metadata(self) -> tuple[JoinGroupMetadata, ...]:
        owned = {"owned": sorted(self.held), "generation": self.generation}
        return (JoinGroupMetadata("model", json.dumps(owned).encode()),)

    def on_join_prepare(self) -> None:
        assert not self._prepared, "on_join_prepare twice without a share in between"
        self._prepared = True
        if not self.cooperative:
            self.held = set()

    def on_join_complete(self, generation: int, share: bytes) -> None:
        assert generation > self.generation, "a generation that is not newer was taken up"
        self.held, self.generation = set(json.loads(share or b"[]")), generation
        self._prepared = False

    def on_lost(self) -> None:
        self.held, self.generation = set(), -1
        self._prepared = False

    def perform_assignment(self, members: Sequence[AssignmentMetadata]) -> Mapping[str, bytes]:
        """Balance the items, keep owned ones, withhold those that another member must give up."""
        claims = [Ownership(one.member_id, *_owned(one.metadata)) for one in members]
        owner = owners(claims)
        shares = _balanced([one.member_id for one in members], owner, self.items)
        if self.cooperative:
            # An absent member gives up nothing: its work is free.
            holding = {one.member_id for one in members if one.is_present}
            for name, share in shares.items():
                share -= {item for item in share if owner.get(item) in holding - {name}}
        self.withheld = self.items - sum(map(len, shares.values()))
        return {name: json.dumps(sorted(share)).encode() for name, share in shares.items()}


def _owned(metadata: bytes) -> tuple[int, list[Item]]:
    said = json.loads(metadata)
    return said["generation"], said["owned"]


def _balanced(
    names: Sequence[str], owner: Mapping[object, str], items: int
) -> dict[str, set[Item]]:
    least, extra = divmod(items, len(names))
    owned = {name: sorted(i for i in range(items) if owner.get(i) == name) for name in names}
    shares: dict[str, set[Item]] = {}
    for name in sorted(names, key=lambda name: (-len(owned[name]), name)):
        shares[name] = set(owned[name][: least + (extra > 0)])
        extra -= len(shares[name]) == least + 1
    for item in set(range(items)) - set().union(*shares.values()):
        shares[min(shares, key=lambda name: (len(shares[name]), name))].add(item)
    return shares
