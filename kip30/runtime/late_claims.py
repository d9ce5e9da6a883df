"""Claims to lead that were asked for and never answered, after nobody wants them any more.

A request that was delayed on its way may arrive yet, even when a later one with the same nonce was
answered or refused. What it is granted then lasts as long as the session of this client, which goes
on being renewed; so its nonce is remembered for longer than a server should be able to hold it up.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

from kip30.driver import Context
from kip30.driver.records import Claim, Kind, Snapshot, Target
from kip30.runtime.open_store import Connection

LATE_SECONDS = 600.0
"""How late a request may arrive: longer than servers stand still that clients go on to count on."""


def forget_at(context: Context) -> float:
    """Return until when a request may arrive that was sent by now, and not answered."""
    return context.clock.now() + max(LATE_SECONDS, context.session_timeout_seconds)


class Ghost(NamedTuple):
    """What was asked for, and until when it may arrive."""

    candidate: str
    nonce: str
    data: bytes
    forget_at: float


class Ghosts:
    """The ghosts of one service."""

    def __init__(
        self, connection: Connection, service: str, release: Callable[[Claim], object]
    ) -> None:
        """Give back with *release* what was granted after all."""
        self._connection = connection
        self._service = service
        self._release = release
        self._ghosts: list[Ghost] = []

    def __len__(self) -> int:
        """Return how many may appear yet."""
        return len(self._ghosts)

    def remember(self, candidate: str, nonce: str, data: bytes) -> None:
        """Take back what is granted under *nonce* from now on."""
        self._ghosts.append(Ghost(candidate, nonce, data, forget_at(self._connection.context)))

    def lay(self, latest: Snapshot | None) -> None:
        """Take back what *latest* shows, and forget what can appear no more."""
        for ghost in list(self._ghosts):
            if latest is not None and _shows(latest, ghost.nonce):
                self.take_back(ghost.candidate, ghost.nonce, ghost.data)
            if self._connection.context.clock.now() >= ghost.forget_at:
                self._ghosts.remove(ghost)

    def due(self) -> float:
        """Return when the next ghost is to be forgotten; infinite if there is none."""
        return min((ghost.forget_at for ghost in self._ghosts), default=math.inf)

    def take_back(self, candidate: str, nonce: str, data: bytes) -> None:
        """Take back what was granted under *nonce*, if the store shows it now.

        What a watch delivered last may be from before a release: then the look-up, which is a claim
        with the same nonce, would claim again.
        """
        if not _shows(self._read(), nonce):
            return
        asked = self._connection.backend.election.claim(self._service, candidate, nonce, data)
        answer = self._connection.asking()(asked)  # the same nonce finds the claim
        if isinstance(answer, Claim):
            self._release(answer)

    def _read(self) -> Snapshot:
        target = Target(Kind.SERVICE, self._service)
        return self._connection.wait(self._connection.backend.observe.snapshot(target))


def _shows(snapshot: Snapshot, nonce: str) -> bool:
    return any(entry.nonce == nonce for entry in snapshot.entries.values())
