"""Reads for a scan: many nodes per request, all of states that are not before a position.

ZooKeeper cannot return part of the names. So the names of a node with many children are listed once
and kept for all spans of a plan, or each of n spans would list and sort them again.

Nodes are ordered by the segments of their paths, each before what is below it. As text, ``/a-b``
would come between ``/a`` and ``/a/b``; a *place* is a path written so that its order as text is
that of its segments.
"""

import json
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from kip30.driver.scanning import Span
from kip30.errors import PositionLostError
from kip30_backends.zookeeper.calls import Answer, RequestBatch, Steps
from kip30_backends.zookeeper.client.kazoo_setup import Session
from kip30_backends.zookeeper.client.messages import (
    Exists,
    GetChildren,
    GetData,
    MultiRead,
    Request,
    Znode,
)
from kip30_backends.zookeeper.errors import NoAuth, NoNode, RequestRefused, SessionExpired
from kip30_backends.zookeeper.resources import Resources

_MANY = 1_000
"""Fewer names are listed again at little cost, many parents a request."""


class _Listing(NamedTuple):
    not_before: int
    names: list[str]


class Listings:
    """The last listings: of each depth one node at most, on the way to one that is below all.

    So it holds about what a walk to one place needs: with a million keys in one namespace, about
    90 MB. A listing shows some moment after a transaction, so it serves every scan whose position
    is that transaction or an earlier one.
    """

    def __init__(self) -> None:
        """Start empty."""
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
        """Forget everything."""
        self._known = {}


T = TypeVar("T")

Found = Znode | NoAuth | None
"""A node; or that it may not be read; or None: it does not exist, or no longer."""


class Reader:
    """Reads by one set of resources on behalf of one iterator.

    A session never goes back in time, even when it moves to another server. So it is enough that
    the first request of each session makes the server catch up with the leader.
    """

    def __init__(
        self, resources: Resources, listings: Listings, top: str, not_before: int = 0
    ) -> None:
        """Read states of the transaction *not_before* or later, and look at *top* for that.

        Names that are in *listings* are not read again.
        """
        self._resources = resources
        self._listings = listings
        self._top = top or "/"
        self._not_before = not_before
        self._caught_up_with = not_before
        self._session: Session | None = None

    def newest(self) -> int:
        """Return a transaction after every write that was acknowledged before.

        Raises:
            PositionLostError: The servers have not come as far as the position.
            UnavailableError: No answer in time.
            AuthenticationError: It is not allowed.
        """
        return self._run(self._caught_up())

    def nodes(self, paths: Sequence[str]) -> list[Found]:
        """Read all *paths*; raises as `newest` does, also for the other methods."""
        return self._run(self._together([GetData(path or "/") for path in paths]))

    def names(self, paths: Sequence[str]) -> list[list[str] | NoAuth | None]:
        """Return the names of the children of all *paths*, each node's in order.

        The caller must not change them: the next span has the same lists.
        """
        if self._session is None:
            self.newest()  # a scan must do this even if it knows all names
        found: dict[str, list[str] | NoAuth | None] = {}
        for path in paths:
            if (names := self._listings.find(path, self._not_before)) is not None:
                found[path] = names
        if missing := [path for path in paths if path not in found]:
            found.update(zip(missing, self._list(missing), strict=True))
        return [found[path] for path in paths]

    def _list(self, paths: Sequence[str]) -> list[list[str] | NoAuth | None]:
        found: list[list[str] | NoAuth | None]
        found = self._run(self._together([GetChildren(path or "/") for path in paths]))
        for path, names in zip(paths, found, strict=True):
            if names is not None and not isinstance(names, NoAuth):
                names.sort()
                # Not of the answer's own zxid: it may be later than the names.
                self._listings.keep(path, names, self._caught_up_with)
        return found

    def _run(self, steps: Steps[T]) -> T:
        return self._resources.outbox.start(steps).result()

    def _caught_up(self) -> Steps[int]:
        answer = yield RequestBatch((Exists(self._top),))
        if not isinstance(answer.outcomes[0], NoNode):
            answer.only()
        if answer.zxid < self._not_before:
            raise PositionLostError(
                f"the servers are at zxid {answer.zxid:#x}, before that of the position:"
                " they were restored or set up again"
            )
        self._session = answer.session
        self._caught_up_with = answer.zxid
        return answer.zxid

    def _together(self, requests: Sequence[Request]) -> Steps[list[Any]]:
        if len(requests) == 1 or not self._resources.tree.modern:
            return (yield from self._each(requests))
        answer = yield from self._asked(MultiRead(tuple(requests)))
        return [_found(outcome) for outcome in answer.only()]

    def _each(self, requests: Sequence[Request]) -> Steps[list[Any]]:
        answer = yield from self._asked(*requests)
        return [_found(outcome) for outcome in answer.outcomes]

    def _asked(self, *requests: Request) -> Steps[Answer]:
        while True:
            if self._session is None:
                yield from self._caught_up()
            answer = yield RequestBatch(requests, fresh=False, session=self._session)
            if not isinstance(answer.outcomes[0], SessionExpired):
                return answer
            self._session = None


def _found(outcome: Any) -> Any:
    """Return the result, None, or that it may not be read.

    Raises:
        RequestRefused: For another reason.
    """
    if isinstance(outcome, NoNode):
        return None
    if isinstance(outcome, RequestRefused) and not isinstance(outcome, NoAuth):
        raise outcome
    return outcome


_BELOW = "\0"  # in no path
_AFTER_ALL = "\1"  # places are empty or begin with _BELOW
_MOST_NAMES = 20_000
_MOST_BYTES = 256 * 1024
"""Limits of requests. Servers refuse those of 1 MiB, or of less by their jute.maxbuffer."""
_BYTES_PER_PATH = 14

MOST_NODES = 200
"""Number of nodes to read with one request. More is hardly faster, and a server builds the
whole response in its memory."""


def place_of(path: str) -> str:
    """Return where the node at *path* is."""
    return path.replace("/", _BELOW)


class NodeRange(NamedTuple):
    """The nodes from the place *begin* on that are before the place *end*."""

    begin: str = ""
    end: str = _AFTER_ALL

    @classmethod
    def of_token(cls, token: bytes) -> "NodeRange":
        """Return the part whose `token` this is."""
        begin, end = json.loads(token)
        return cls(begin, end)

    def token(self) -> bytes:
        """Return it in writing."""
        return json.dumps(self).encode()

    def has(self, path: str) -> bool:
        """Return whether the node at *path* is in this part."""
        return self.begin <= place_of(path) < self.end

    def begins_below(self, path: str) -> bool:
        """Return whether this part begins among what is below *path*, which is before it."""
        return self.begin.startswith(place_of(path) + _BELOW)

    def among(self, path: str, names: Sequence[str]) -> Sequence[str]:
        """Return which of *names*, the sorted children of *path*, are in this part or above it."""
        top = place_of(path) + _BELOW
        first = bisect_left(names, self.begin, key=top.__add__)
        if first and self.begin.startswith(top + names[first - 1] + _BELOW):
            first -= 1
        return names[first : bisect_left(names, self.end, key=top.__add__)]


_ALL = NodeRange()


def spans(stops: Iterable[tuple[str, int]], rows: int) -> Iterator[Span]:
    """Yield spans of about *rows* rows; *stops* are places in order, and the rows from each on."""
    begin, count = "", 0
    for place, more in stops:
        if count >= rows:
            yield Span(NodeRange(begin, place).token(), count)
            begin, count = place, 0
        count += more
    if count:
        yield Span(NodeRange(begin).token(), count)


class TreeTraversal:
    """The nodes that are still to be visited: depth first, many at once."""

    def __init__(
        self,
        reader: Reader,
        tops: Sequence[str],
        covers: Callable[[str], bool],
        part: NodeRange = _ALL,
    ) -> None:
        """Begin with *tops*, and go below them as far as *covers* says and *part* reaches."""
        self._reader = reader
        self._covers = covers
        self._range = part
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
        """Also visit the children of *parents*, given with their approximate numbers.

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
                    found += (f"{path}/{name}" for name in self._range.among(path, names))
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
