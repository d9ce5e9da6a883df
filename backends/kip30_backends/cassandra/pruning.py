"""Removing what is left of services that are not led any more: a partition with the last epoch.

An epoch must never come again, for a write that was fenced with it may still be on its way. So the
*floor* of a root comes first: the epoch of the service without a name, raised above all that are
removed. Then the fences of the service are raised above its last epoch, as before a claim; then
its partition is deleted, unless it was claimed or fenced meanwhile. Each of these steps leaves
everything right if the next one is never done.

A conditional write sees one partition, so no claim can compare the floor. Therefore the first claim
of a service of which nothing is there is made in three steps, see `election`: it marks the
partition with a random number, its *birth*, reads the floor, and takes the next epoch on the
condition that the birth is still there. While it is, nothing that was led has been pruned of it; so
the floor that was read after the birth is above all its epochs.
"""

import time
from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial
from typing import NamedTuple

from kip30.driver.kit.following import gathered, then
from kip30.driver.kit.futures import Completed, mapped
from kip30.driver.records import Fence, Kind, Pruned
from kip30_backends.cassandra.call import Answer, Ask
from kip30_backends.cassandra.calls import Calls
from kip30_backends.cassandra.fences import Fences
from kip30_backends.cassandra.library import Row
from kip30_backends.cassandra.ring import FIRST

NO_NAME = ""
"""The service that has the floor as its epoch: none is called that."""

_ROWS = 500
"""How many services, those of other roots too, one call looks at."""
_AT_ONCE = 20
"""How many it removes."""
_LAST_TO_REMOVE = 2**62
"""Greater epochs are not kip30's: a floor as high as that would leave none for other services."""
_MICROSECONDS = 1_000_000


class _Left(NamedTuple):
    """What is left of a service."""

    service: str
    epoch: int
    fenced: frozenset[str]
    birth: int | None
    ring: int


class Pruning:
    """Removes services of one root. Thread-safe."""

    def __init__(self, calls: Calls, fences: Fences) -> None:
        """Ask with *calls*."""
        self._calls = calls
        self._fences = fences

    def prune(self, unused_seconds: float, after: str, *, dry_run: bool) -> Future[Pruned]:
        """Look at the services behind the token *after*. See `kip30.driver.Backend.prune`."""
        self._calls.check()
        until = self._calls.until()
        oldest = (time.time() - unused_seconds) * _MICROSECONDS if unused_seconds else float("inf")

        def read(answer: Answer) -> Future[Pruned]:
            left = _left_of(answer.rows, self._calls.root, oldest)
            now = left[:_AT_ONCE]
            reached = _reached(answer.rows, now if len(left) > _AT_ONCE else ())
            if dry_run or not now:
                return Completed(_outcome([True] * len(now), reached))
            return mapped(self._remove(now, until), partial(_outcome, reached=reached))

        statement = self._calls.statements.bind("walk_leaders", int(after or FIRST), _ROWS)
        return self._calls.send(Ask(statement, read, scans=True), until)

    def _remove(self, some: Sequence[_Left], until: float) -> Future[list[bool]]:
        """Return which of *some* are removed; not those that are claimed meanwhile."""
        # Fences are raised by one: a client that has not noted them must not lead with that epoch.
        floor = 1 + max(one.epoch for one in some)
        raised = self._raise_floor(floor, None, until)
        return then(raised, lambda _: gathered([self._remove_one(one, until) for one in some]))

    def _raise_floor(self, floor: int, guess: int | None, until: float) -> Future[None]:
        calls = self._calls

        def read(answer: Answer) -> Future[None] | None:
            met: int | None = None if answer.applied else answer.rows[0].get("epoch")
            if answer.applied or (met is not None and met >= floor):
                return None
            return self._raise_floor(floor, met, until)

        statement = calls.statements.bind("raise_floor", floor, calls.root, NO_NAME, guess)
        return calls.send(Ask(statement, read, writes=True), until)

    def _remove_one(self, left: _Left, until: float) -> Future[bool]:
        fence = Fence(left.service, left.epoch + 1)
        raised = self._fences.raise_all(left.fenced, fence, until)
        return then(raised, lambda _: self._delete(left, until))

    def _delete(self, left: _Left, until: float) -> Future[bool]:
        bind, where = self._calls.statements.bind, (self._calls.root, left.service)
        both = [
            bind("prune_leaders", *where, left.epoch, set(left.fenced) or None),
            bind("prune_seat", *where, left.birth),
        ]
        statement = self._calls.statements.batch(both)
        return self._calls.send(Ask(statement, _applied, writes=True), until)


def _left_of(rows: Sequence[Row], root: str, oldest: float) -> list[_Left]:
    """Return the vacant services of *root* that were last claimed by then."""
    return [
        _Left(
            row["service"],
            row["epoch"],
            frozenset[str](row["fenced"] or ()),
            row["beat"],
            row["ring"],
        )
        for row in rows
        if row["root"] == root
        and row["service"] != NO_NAME
        and row["nonce"] is None
        and row["epoch"] is not None
        and 0 <= row["epoch"] < _LAST_TO_REMOVE
        and row["written"] <= oldest
    ]


def _reached(rows: Sequence[Row], some: Sequence[_Left]) -> str:
    """Return behind which token to go on: that of the last of *some*, or of all *rows*."""
    if some:
        return str(some[-1].ring)
    return str(rows[-1]["ring"]) if len(rows) == _ROWS else ""


def _outcome(removed: Sequence[bool], reached: str) -> Pruned:
    return Pruned({Kind.SERVICE: sum(removed)}, reached)


def _applied(answer: Answer) -> bool:
    return answer.applied
