"""Proofs that a key was not deleted and re-created since a version of it was seen.

ZooKeeper counts a node's versions from 0 in every life of the node, so a write at a version alone
could meet a later life. Every deletion therefore also writes the namespace's node, whose version
is the *generation*. A life that began after the last deletion in its namespace is the present one
for as long as the generation stays; of an older life it takes one look to know.
"""

from typing import NamedTuple

_MOST = 10_000


class Generation(NamedTuple):
    """The state of a namespace's node: its version, and the transaction that made it."""

    number: int
    since: int


class Generations:
    """What one client knows. All of it is compared in the store before it counts."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self._newest: dict[str, Generation] = {}
        self._lives: dict[str, int] = {}
        self._checked: dict[str, tuple[int, int]] = {}

    def saw(self, path: str, life: int) -> None:
        """Take note that the node at *path* was once that of *life*."""
        if len(self._lives) > _MOST:
            self._lives.clear()
        self._lives[path] = life

    def proof(self, above: str, path: str, life: int) -> int | None:
        """Return the generation of *above* during which the node at *path* is that of *life*."""
        newest = self._newest.get(above)
        if newest is None or self._lives.get(path) != life:
            return None
        if life > newest.since or self._checked.get(path) == (life, newest.number):
            return newest.number
        return None

    def learn(self, above: str, path: str, life: int, newest: Generation) -> None:
        """Take note that in the generation *newest* the node at *path* is that of *life*."""
        if len(self._checked) > _MOST or len(self._newest) > _MOST:
            self._checked.clear()
            self._newest.clear()
        self._newest[above] = newest
        self._checked[path] = (life, newest.number)
        self.saw(path, life)

    def deleted(self, above: str, newest: Generation) -> None:
        """Take note that a deletion of our own made the generation *newest* of *above*."""
        known = self._newest.get(above)
        if known is None or newest.since > known.since:
            self._newest[above] = newest

    def forget(self, above: str) -> None:
        """Take note that the generation of *above* is another one by now."""
        self._newest.pop(above, None)
