"""The best that any assignment can do: by a min-cost flow, and by trying all of them."""

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple

from kip30.coordinator.assignors import Assignment, Subscriber
from tests.unit.coordinator.assignors.groups import Topics, moves, owners, squares, wanted


class Best(NamedTuple):
    """Even loads count first, then few moves."""

    squares: int
    moves: int


def achieved(topics: Topics, subscribers: Sequence[Subscriber], assignment: Assignment) -> Best:
    return Best(squares(assignment), moves(topics, subscribers, assignment))


def by_flow(topics: Topics, subscribers: Sequence[Subscriber]) -> Best:
    """Send each item from a source to one of its subscribers, and on to a sink.

    An arc to a subscriber that is not the item's owner costs 1 if there is one; the arcs from a
    subscriber to the sink take one item each, and the n-th costs what it adds to the square of
    the load, in a greater unit.
    """
    items = sorted(wanted(topics, subscribers))
    owner_of = owners(topics, subscribers)
    unit = len(items) + 1
    flow = _Flow()
    for item in items:
        flow.arc("source", item, 0)
        for one in subscribers:
            if item.topic in one.topics:
                moved = owner_of.get(item, one.member_id) != one.member_id
                flow.arc(item, one.member_id, int(moved))
    for one in subscribers:
        for load in range(len(items)):
            flow.arc(one.member_id, "sink", unit * ((load + 1) ** 2 - load**2))
    return Best(*divmod(sum(flow.augment() for _ in items), unit))


def by_trial(topics: Topics, subscribers: Sequence[Subscriber]) -> Best:
    return min(
        achieved(topics, subscribers, assignment)
        for assignment in _all_assignments(topics, subscribers)
    )


def _all_assignments(topics: Topics, subscribers: Sequence[Subscriber]) -> Iterator[Assignment]:
    items = sorted(wanted(topics, subscribers))
    takers = [[one.member_id for one in subscribers if item[0] in one.topics] for item in items]
    for choice in product(*takers):
        yield {
            one.member_id: [
                item for item, taker in zip(items, choice, strict=True) if taker == one.member_id
            ]
            for one in subscribers
        }


class _Arc:
    def __init__(self, start: object, end: object, cost: int, room: int) -> None:
        self.start, self.end, self.cost, self.room = start, end, cost, room
        self.back = self


class _Flow:
    """Arcs of one unit each; successive shortest paths, found by Bellman and Ford's method."""

    def __init__(self) -> None:
        self.arcs: dict[object, list[_Arc]] = {}

    def arc(self, start: object, end: object, cost: int) -> None:
        there, back = _Arc(start, end, cost, 1), _Arc(end, start, -cost, 0)
        there.back, back.back = back, there
        self.arcs.setdefault(start, []).append(there)
        self.arcs.setdefault(end, []).append(back)

    def augment(self) -> int:
        """Send one unit more; return what that costs."""
        cost, through = self._shortest()
        node: object = "sink"
        while node != "source":
            arc = through[node]
            arc.room -= 1
            arc.back.room += 1
            node = arc.start
        return cost["sink"]

    def _shortest(self) -> tuple[dict[object, int], dict[object, _Arc]]:
        cost: dict[object, int] = {"source": 0}
        through: dict[object, _Arc] = {}
        waiting: deque[object] = deque(["source"])
        while waiting:
            node = waiting.popleft()
            for arc in self.arcs[node]:
                reached = cost[node] + arc.cost
                if arc.room and (arc.end not in cost or reached < cost[arc.end]):
                    cost[arc.end] = reached
                    through[arc.end] = arc
                    if arc.end not in waiting:
                        waiting.append(arc.end)
        return cost, through
