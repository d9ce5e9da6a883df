"""Parts of a tree, and how its nodes are visited.

Nodes are ordered by the segments of their paths, each before what is below it. As text, ``/a-b``
would come between ``/a`` and ``/a/b``; a *place* is a path written so that its order as text is
that of its segments.
"""

import json
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from kip30.driver.scanning import Span
from kip30_backends.zookeeper.refusals import NoAuth
from kip30_backends.zookeeper.scan_reader import Reader

_BELOW = "\0"  # in no path
_AFTER_ALL = "\1"  # places are empty or begin with _BELOW
_MOST_NAMES = 20_000
_MOST_BYTES = 256 * 1024
"""How long a request may be. Servers refuse those of 1 MiB, or of less by their jute.maxbuffer."""
_BYTES_PER_PATH = 14

MOST_NODES = 200
"""How many nodes to read with one request. More hardly makes it faster, and a server makes the
whole answer in its memory."""


def place_of(path: str) -> str:
    """Return where the node at *path* is."""
    return path.replace("/", _BELOW)


class Part(NamedTuple):
    """The nodes from the place *begin* on that are before the place *end*."""

    begin: str = ""
    end: str = _AFTER_ALL

    @classmethod
    def of_token(cls, token: bytes) -> "Part":
        """Return the part whose `token` this is."""
        begin, end = json.loads(token)
        return cls(begin, end)

    def token(self) -> bytes:
        """Return it in writing."""
        return json.dumps(self).encode()

    def has(self, path: str) -> bool:
        """Say whether the node at *path* is in this part."""
        return self.begin <= place_of(path) < self.end

    def among(self, path: str, names: Sequence[str]) -> Sequence[str]:
        """Return which of *names*, the sorted children of *path*, are in this part or above it."""
        top = place_of(path) + _BELOW
        first = bisect_left(names, self.begin, key=top.__add__)
        if first and self.begin.startswith(top + names[first - 1] + _BELOW):
            first -= 1
        return names[first : bisect_left(names, self.end, key=top.__add__)]


_ALL = Part()


def spans(stops: Iterable[tuple[str, int]], rows: int) -> Iterator[Span]:
    """Yield spans of about *rows* rows; *stops* are places in order, and the rows from each on."""
    begin, count = "", 0
    for place, more in stops:
        if count >= rows:
            yield Span(Part(begin, place).token(), count)
            begin, count = place, 0
        count += more
    if count:
        yield Span(Part(begin).token(), count)


class Walk:
    """The nodes that are still to be visited: depth first, many at once."""

    def __init__(
        self,
        reader: Reader,
        tops: Sequence[str],
        covers: Callable[[str], bool],
        part: Part = _ALL,
    ) -> None:
        """Begin with *tops*, and go below them as far as *covers* says and *part* reaches."""
        self._reader = reader
        self._covers = covers
        self._part = part
        self._paths = sorted(tops, reverse=True)

    def take(self, most: int = MOST_NODES) -> list[str]:
        """Return up to *most* paths to be visited now; none at the end."""
        taken: list[str] = []
        size = 0
        while self._paths and len(taken) < most and size < _MOST_BYTES:
            taken.append(self._paths.pop())
            size += len(taken[-1].encode()) + _BYTES_PER_PATH
        return taken

    def go_below(self, parents: Sequence[tuple[str, int]]) -> list[str]:
        """Visit also what is below *parents*, which have about so many children each.

        Returns:
            Which of them do not allow it.
        """
        refused: list[str] = []
        found: list[str] = []
        for some in _together(parents):
            for path, names in zip(some, self._reader.names(some), strict=True):
                if isinstance(names, NoAuth):
                    refused.append(path)
                elif names:
                    found += (f"{path}/{name}" for name in self._part.among(path, names))
        self._paths += filter(self._covers, reversed(found))
        return refused


def _together(parents: Sequence[tuple[str, int]]) -> Iterator[list[str]]:
    """Yield paths of parents that one request asks for: one, or some with few children."""
    some: list[str] = []
    names = 0
    for path, children in parents:
        if some and names + children > _MOST_NAMES:
            yield some
            some, names = [], 0
        some.append(path)
        names += children
    if some:
        yield some
