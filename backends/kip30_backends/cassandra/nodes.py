"""Which node is asked: one at a time, and another one when it is down, or does not answer."""

import threading
from collections.abc import Callable, Collection, Iterable
from typing import Any


class Nodes:
    """The nodes of one cluster as its client has met them. Thread-safe."""

    def __init__(self, plan: Callable[[], Iterable[Any]]) -> None:
        """Choose from those that *plan* yields, in its order."""
        self._plan = plan
        self._current: Any = None
        self._silent: set[int] = set()
        self._lock = threading.Lock()

    def choose(self, tried: Collection[int]) -> tuple[Any, int] | None:
        """Return whom to ask who was not *tried* yet, and how many others there would be.

        Silent nodes come last, but they come: they may be all there is.
        """
        up = list(self._plan())
        talking = [node for node in up if id(node) not in self._silent]
        untried = _without(tried, talking) or _without(tried, up)
        if not untried:
            return None
        if self._current not in talking:
            self._current = (talking or up)[0]
        chosen = self._current if self._current in untried else untried[0]
        return chosen, len(untried) - 1

    def suspect(self, node: Any) -> None:
        """Take note that *node* did not answer in time."""
        with self._lock:
            self._silent.add(id(node))

    def trust(self, node: Any) -> None:
        """Take note that *node* has been heard of."""
        if id(node) in self._silent:
            with self._lock:
                self._silent.discard(id(node))


def _without(tried: Collection[int], nodes: Iterable[Any]) -> list[Any]:
    return [node for node in nodes if id(node) not in tried]
