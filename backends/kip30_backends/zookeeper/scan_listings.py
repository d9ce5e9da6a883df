"""The names of the children of nodes that have many, which the spans of a plan share.

ZooKeeper has no answer with part of the names. Without this, each span of a namespace would have
the server list, and the client sort, all of it: for n spans n times.
"""

from typing import NamedTuple

_MANY = 1_000
"""Fewer names are listed again at little cost, many parents a request."""


class _Listing(NamedTuple):
    not_before: int
    names: list[str]


class Listings:
    """What was listed last: of each depth one node at most, on the way to one that is below all.

    So it holds about what a walk to one place needs: with a million keys in one namespace, about
    90 MB. A listing shows some moment after a transaction, so it serves every scan whose position
    is that transaction or an earlier one.
    """

    def __init__(self) -> None:
        """Know nothing."""
        self._known: dict[str, _Listing] = {}

    def find(self, path: str, not_before: int) -> list[str] | None:
        """Return the sorted names below *path* at a moment after *not_before*, if known."""
        found = self._known.get(path)
        return found.names if found is not None and found.not_before >= not_before else None

    def keep(self, path: str, names: list[str], not_before: int) -> None:
        """Remember the sorted *names* below *path*, of a moment after *not_before*, if many."""
        if len(names) >= _MANY:
            above = {one: at for one, at in self._known.items() if path.startswith(f"{one}/")}
            self._known = above | {path: _Listing(not_before, names)}

    def clear(self) -> None:
        """Forget all."""
        self._known = {}
