"""Noticing that other processes have died or hang, while somebody watches what they hold."""

import time
from collections.abc import Collection
from functools import partial

from kip30.driver.clock import Clock
from kip30_backends.embedded.database import Database
from kip30_backends.embedded.patience import Patience
from kip30_backends.embedded.peers import Peers

_SHORT = 0.1
_SUSPECT_EVERY = 0.001
_SUSPECT_TIMES = 20
_SHARE_OF_TIME = 50


class Vigil:
    """Looks whether other sessions live, as often as that is cheap."""

    def __init__(self, database: Database, peers: Peers, clock: Clock) -> None:
        """Look at *peers* in *database*, whose deadlines are by *clock*."""
        self._database = database
        self._peers = peers
        self._clock = clock
        self._suspects: dict[str, int] = {}
        self._look_at_all = 0.0
        self._earliest = 0.0

    def look(self, closed: Collection[str] | None, every: float) -> None:
        """Bury the dead among those whose lock files were *closed*, and at times among all.

        The kernel tells that a file is closed just before it drops the lock, so a suspect is
        looked at more than once.
        """
        for name in closed or ():
            self._suspects[name.removesuffix(".lock")] = _SUSPECT_TIMES
        at_all = time.monotonic() >= self._look_at_all or self._clock.now() >= self._earliest
        if at_all or self._suspects:
            self._look(every, at_all=at_all)

    def seconds_to_look(self) -> float:
        """Return how long until someone may be dead whom nobody will hear of."""
        return _SUSPECT_EVERY if self._suspects else self._earliest - self._clock.now()

    def _look(self, every: float, *, at_all: bool) -> None:
        started = time.monotonic()
        rows = self._database.read(self._peers.sessions, Patience(_SHORT))
        dead = [
            row[0]
            for row in rows
            if (at_all or row[0] in self._suspects) and not self._peers.is_alive(*row)
        ]
        if dead:
            bury = partial(self._peers.spare_living, sessions=dead)
            self._database.write(bury, patience=Patience(_SHORT))
        living = {session: deadline for session, _, deadline in rows if session not in dead}
        self._suspects = {
            session: left - 1
            for session, left in self._suspects.items()
            if session in living and left
        }
        self._earliest = min(living.values(), default=float("inf"))
        if at_all:
            cost = time.monotonic() - started
            self._look_at_all = started + max(every, cost * _SHARE_OF_TIME)
