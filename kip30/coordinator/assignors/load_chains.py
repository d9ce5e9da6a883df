"""Even loads where topics differ: items passed on along chains of subscribers.

The items of a topic are alike but for their owners, so counts decide: how many items of each
topic a subscriber has. The *load* of a subscriber is the number of its items.
"""

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from typing import Self


class Placement:
    """Item counts by subscriber and topic, which are both numbered from 0.

    Attributes:
        takers: By topic, its subscribers.
        owned: By subscriber, how many items it owned of each of its topics.
        held: By subscriber, how many items it has of each topic; no count is 0.
        loads: By subscriber, the sum of its counts.
    """

    def __init__(self, takers: Sequence[Sequence[int]], owned: Sequence[Mapping[int, int]]) -> None:
        """Start with the items that each subscriber owned."""
        self.takers = takers
        self.owned = owned
        self.held: list[dict[int, int]] = [dict(counts) for counts in owned]
        self.loads: list[int] = [sum(counts.values()) for counts in owned]

    def copy(self) -> Self:
        """Return an equal placement that can be changed independently."""
        other = type(self)(self.takers, self.held)
        other.owned = self.owned
        return other

    def fill(self, free: Mapping[int, int]) -> None:
        """Give each free item to the least loaded subscriber of its topic, rarest topics first.

        Args:
            free: By topic with subscribers, how many items no subscriber has.
        """
        for topic in sorted(free, key=lambda topic: (len(self.takers[topic]), topic)):
            lightest = [(self.loads[taker], taker) for taker in self.takers[topic]]
            heapify(lightest)
            for _ in range(free[topic]):
                load, taker = lightest[0]
                self.gain(taker, topic)
                heapreplace(lightest, (load + 1, taker))

    def gain(self, subscriber: int, topic: int) -> None:
        """Give *subscriber* one more item of *topic*."""
        counts = self.held[subscriber]
        counts[topic] = counts.get(topic, 0) + 1
        self.loads[subscriber] += 1

    def lose(self, subscriber: int, topic: int) -> None:
        """Take one item of *topic* from *subscriber*."""
        counts = self.held[subscriber]
        counts[topic] -= 1
        if not counts[topic]:
            del counts[topic]
        self.loads[subscriber] -= 1

    def excess(self, subscriber: int, topic: int) -> int:
        """Return how many items of *topic* it has beyond those it owned; negative if fewer."""
        return self.held[subscriber].get(topic, 0) - self.owned[subscriber].get(topic, 0)

    def keeps_all(self) -> bool:
        """Return whether every subscriber has at least the items that it owned."""
        return all(
            self.excess(subscriber, topic) >= 0
            for subscriber, counts in enumerate(self.owned)
            for topic in counts
        )


def even_out(placement: Placement) -> list[int]:
    """Make loads as even as topics allow; return the most that each subscriber can then have.

    Loads are as even as can be if, and only if, no chain of subscribers, each passing an item to
    the next, leads from a load to one that is less by two or more (Harvey, Ladner, Lovász and
    Tamir, Semi-Matchings for Bipartite Graphs and Load Balancing, 2006). KIP-54 asks for no such
    chain of two. It does not look at owners.

    If the heaviest subscriber reaches no lighter one, neither does any that it reaches, nor will
    a later chain get out of there: all of them are done. In every placement with loads as even
    as these, each of them has as many items as the heaviest has here, or one less.
    """
    most: dict[int, int] = {}
    heaviest = [(-load, subscriber) for subscriber, load in enumerate(placement.loads)]
    heapify(heaviest)
    while heaviest:
        load, start = heappop(heaviest)
        if start in most or load != -placement.loads[start]:
            continue
        end, before = _lighter(placement, start, most)
        if end is None:
            most.update((node, -load) for node in before if node >= 0)
            continue
        _pass_along(placement, before, start, end)
        for changed in (start, end):
            heappush(heaviest, (-placement.loads[changed], changed))
    return [most[subscriber] for subscriber in range(len(placement.loads))]


def _lighter(
    placement: Placement, start: int, done: Collection[int]
) -> tuple[int | None, dict[int, int]]:
    """Return the end of a shortest chain from *start*, and the predecessor of each node reached.

    Nodes are subscribers, and topics as negative numbers: ``~topic``.
    """
    before = {start: start}
    waiting = deque([start])
    while waiting:
        giver = waiting.popleft()
        for topic in placement.held[giver]:
            if ~topic in before:
                continue
            before[~topic] = giver
            found = [
                one for one in placement.takers[topic] if one not in before and one not in done
            ]
            before.update(dict.fromkeys(found, ~topic))
            end = min(found, key=placement.loads.__getitem__, default=start)
            if placement.loads[end] <= placement.loads[start] - 2:
                return end, before
            waiting.extend(found)
    return None, before


def _pass_along(placement: Placement, before: Mapping[int, int], start: int, end: int) -> None:
    taker = end
    while taker != start:
        topic = ~before[taker]
        giver = before[~topic]
        placement.lose(giver, topic)
        placement.gain(taker, topic)
        taker = giver
