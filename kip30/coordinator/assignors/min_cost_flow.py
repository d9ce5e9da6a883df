"""The fewest moves to even loads: a min-cost flow.

A *move* is an item that its owner loses although it is still there. Items go from subscribers
that have too many to those that have too few, along paths on which subscribers pass items on;
successive shortest paths with potentials (Edmonds and Karp 1972) keep the moves fewest.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from itertools import pairwise

from kip30.coordinator.assignors.load_chains import Placement, even_out


def fewest_moves(
    takers: Sequence[Sequence[int]], owned: Sequence[dict[int, int]], free: dict[int, int]
) -> Placement:
    """Return a placement with loads as even as topics allow, and with the fewest moves.

    Args:
        takers: By topic, its subscribers.
        owned: By subscriber, how many items it owns of each of its topics.
        free: By topic with subscribers, how many items have no owner.
    """
    placement = Placement(takers, owned)
    placement.fill(free)
    even = placement.copy()
    most = even_out(even)
    if even.keeps_all():
        return even
    _Flow(placement, most, even.loads).run()
    return placement


class _Flow:
    """Evens loads out with the fewest moves, beginning with a placement without any.

    Nodes are subscribers, topics as ``~topic``, and, after the subscribers, one *ceiling* for
    all subscribers with the same greatest load. A subscriber with that load fills one of the
    slots of its ceiling; without one it has one item less. An arc from a subscriber to its
    ceiling fills a slot, one from the ceiling to a subscriber takes its slot away.
    """

    def __init__(self, placement: Placement, most: Sequence[int], loads: Sequence[int]) -> None:
        """Begin with all slots empty.

        Args:
            placement: The placement to change.
            most: By subscriber, the greatest load it can have.
            loads: Even loads, by which slots are counted.
        """
        self._placement = placement
        self._most = most
        self._count = len(most)
        self._ceilings = [self._count + load for load in most]
        self._filled: defaultdict[int, dict[int, None]] = defaultdict(dict)  # by ceiling
        self._slots = Counter(
            ceiling
            for ceiling, load, top in zip(self._ceilings, loads, most, strict=True)
            if load == top
        )
        # Going along an arc costs its moves, plus the potential of its start, less that of its
        # end: never less than 0. Arcs on shortest paths to a node with room cost 0.
        self._potential: defaultdict[int, int] = defaultdict(int)

    def run(self) -> None:
        """Send items along shortest paths until no subscriber has too many."""
        while sources := [one for one in range(self._count) if self._surplus(one) > 0]:
            self._find_shortest(sources)
            choices: dict[int, list[int]] = {}
            seen: set[int] = set()
            for source in sources:
                while self._surplus(source) > 0 and (path := self._path(source, choices, seen)):
                    seen.difference_update(path)
                    self._send(path)

    def _surplus(self, subscriber: int) -> int:
        """Return how many items it has too many; negative if it has too few."""
        least = self._most[subscriber] - 1
        has_slot = subscriber in self._filled[self._ceilings[subscriber]]
        return self._placement.loads[subscriber] - least - has_slot

    def _has_room(self, node: int) -> bool:
        if node >= self._count:
            return len(self._filled[node]) < self._slots[node]
        return node >= 0 and self._surplus(node) < 0

    def _find_shortest(self, sources: Sequence[int]) -> None:
        """Change potentials so that shortest paths from *sources* cost 0: Dijkstra's search."""
        distance = dict.fromkeys(sources, 0)
        waiting = [(0, source) for source in sources]
        final: dict[int, int] = {}
        while True:
            reached, node = heappop(waiting)
            if node in final:
                continue
            if self._has_room(node):
                break
            final[node] = reached
            for following in self._following(node):
                further = reached + self._cost(node, following)
                if following not in distance or further < distance[following]:
                    distance[following] = further
                    heappush(waiting, (further, following))
        for node, shorter in final.items():
            self._potential[node] -= reached - shorter

    def _path(self, source: int, choices: dict[int, list[int]], seen: set[int]) -> list[int]:
        """Return a path of no cost from *source* to a node with room; empty if there is none.

        Depth first. *choices* and *seen* are kept from search to search: a node that has led
        nowhere is not tried again until potentials change.
        """
        path = [source]
        seen.add(source)
        while path and not self._has_room(path[-1]):
            node = path[-1]
            if node not in choices:
                choices[node] = list(self._following(node))
            following = self._choose(node, choices[node], seen)
            if following is None:
                path.pop()
            else:
                path.append(following)
                seen.add(following)
        return path

    def _choose(self, node: int, choices: list[int], seen: set[int]) -> int | None:
        while choices:
            following = choices[-1]
            if (
                following not in seen
                and self._is_arc(node, following)
                and not self._cost(node, following)
            ):
                return following
            choices.pop()
        return None

    def _following(self, node: int) -> Iterator[int]:
        """Yield the nodes to which arcs lead from *node*."""
        if node < 0:
            yield from self._placement.takers[~node]
        elif node >= self._count:
            yield from self._filled[node]
        else:
            yield from (~topic for topic in self._placement.held[node])
            if node not in self._filled[self._ceilings[node]]:
                yield self._ceilings[node]

    def _is_arc(self, node: int, following: int) -> bool:
        """Return whether an arc that existed still exists."""
        if node < 0:
            return True
        if node >= self._count:
            return following in self._filled[node]
        if following < 0:
            return ~following in self._placement.held[node]
        return node not in self._filled[following]

    def _cost(self, node: int, following: int) -> int:
        moves = 0
        if node < 0:
            moves = -(self._placement.excess(following, ~node) < 0)
        elif following < 0:
            moves = int(self._placement.excess(node, ~following) <= 0)
        return moves + self._potential[node] - self._potential[following]

    def _send(self, path: Sequence[int]) -> None:
        for node, following in pairwise(path):
            if node < 0:
                self._placement.gain(following, ~node)
            elif following < 0:
                self._placement.lose(node, ~following)
            elif node >= self._count:
                del self._filled[node][following]
            else:
                self._filled[following][node] = None
