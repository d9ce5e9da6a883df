"""Reads for a scan: many nodes a request, all of states that are not before a position."""

from collections.abc import Sequence
from typing import Any, TypeVar

from kip30.errors import PositionLostError
from kip30_backends.zookeeper.engine import Engine
from kip30_backends.zookeeper.outbox import Answer, Ask, Steps
from kip30_backends.zookeeper.refusals import NoAuth, NoNode, Refused, SessionExpired
from kip30_backends.zookeeper.scan_listings import Listings
from kip30_backends.zookeeper.session import Session
from kip30_backends.zookeeper.wire import Exists, GetChildren, GetData, MultiRead, Node, Request

T = TypeVar("T")

Found = Node | NoAuth | None
"""A node; or that it may not be read; or None: it is not there (any more)."""


class Reader:
    """Reads by one engine on behalf of one iterator.

    A session never goes back in time, also when it moves to another server. So it is enough that
    the first request of each session catches up with the leader.
    """

    def __init__(self, engine: Engine, listings: Listings, top: str, not_before: int = 0) -> None:
        """Read what is of the transaction *not_before* or later, and look at *top* for that.

        Names that are in *listings* are not read again.
        """
        self._engine = engine
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

        They are to be left as they are: the next span has the same lists.
        """
        if self._session is None:
            self.newest()  # which a scan has to do even if it knows all names
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
                # Not of the answer's own zxid: it may be of a moment after the names.
                self._listings.keep(path, names, self._caught_up_with)
        return found

    def _run(self, steps: Steps[T]) -> T:
        return self._engine.outbox.start(steps).result()

    def _caught_up(self) -> Steps[int]:
        answer = yield Ask((Exists(self._top),))
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
        if len(requests) == 1 or not self._engine.tree.modern:
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
            answer = yield Ask(requests, fresh=False, session=self._session)
            if not isinstance(answer.outcomes[0], SessionExpired):
                return answer
            self._session = None


def _found(outcome: Any) -> Any:
    """Return what was found, None, or that it may not be looked at.

    Raises:
        Refused: For another reason.
    """
    if isinstance(outcome, NoNode):
        return None
    if isinstance(outcome, Refused) and not isinstance(outcome, NoAuth):
        raise outcome
    return outcome
