"""Claims to lead that were never answered and that no candidate uses any longer.

A delayed request may be applied after a later one with the same nonce was answered or refused. This
client's session would then keep a claim alive that belongs to no candidate. So its nonce is
remembered for `LATE_SECONDS`, and the claim is released if it appears. A service that the client
does not watch is read for that now and then, so that a claim is found within a session timeout, as
that of a dead client is.
"""

import math
from collections.abc import Callable, Collection
from typing import NamedTuple

from kip30.driver import Context
from kip30.driver.records import Claim, Kind, Snapshot, Target
from kip30.runtime.open_store import OpenStore

LATE_SECONDS = 600.0
"""Seconds that an applied request may be late: longer than any stall of a server still in use."""

SEARCH_PAUSE = 1.0
"""Seconds between two searches for a late claim, at least."""


def forget_at(context: Context) -> float:
    """Return until when an unanswered request that has been sent by now may be applied."""
    return context.clock.now() + max(LATE_SECONDS, context.session_timeout_seconds)


def search_pause(context: Context, left_seconds: float) -> float | None:
    """Return the pause before the next search for a late claim; None if none can appear any longer.

    It is short at first, while a late request is most likely to arrive.

    Args:
        context: The context of the store.
        left_seconds: The time until the claim can no longer appear.
    """
    if left_seconds <= 0:
        return None
    session_seconds = context.session_timeout_seconds
    is_new = left_seconds > LATE_SECONDS - session_seconds
    return SEARCH_PAUSE if is_new else max(SEARCH_PAUSE, session_seconds)


class LateClaim(NamedTuple):
    """A claim whose answer was lost, and until when it may appear."""

    candidate: str
    nonce: str
    data: bytes
    forget_at: float


class LateClaims:
    """The late claims of one service."""

    def __init__(self, store: OpenStore, service: str, release: Callable[[Claim], object]) -> None:
        """Call *release* for claims that were granted after all."""
        self._store = store
        self._service = service
        self._release = release
        self._late: list[LateClaim] = []
        self._search_at = math.inf

    def __len__(self) -> int:
        """Return how many may still appear."""
        return len(self._late)

    def remember(self, candidate: str, nonce: str, data: bytes) -> None:
        """Release a claim that is granted under *nonce* from now on."""
        self._late.append(LateClaim(candidate, nonce, data, forget_at(self._store.context)))
        self._search_at = min(self._search_at, self._store.context.clock.now() + SEARCH_PAUSE)

    def release_shown(self, latest: Snapshot | None, held: Callable[[], Collection[str]]) -> None:
        """Release the claims that *latest* shows, and forget those that can no longer appear.

        It is None while the service is not watched: it is read then, if a search is due.

        *held* returns the nonces of terms that the work under them holds: a lost answer to an
        earlier request does not release those. It is asked for each claim that is shown, because a
        term may end meanwhile.
        """
        now = self._store.context.clock.now()
        if now >= self._search_at:
            self._search_at = self._next_search(now)
            latest = latest or self._read()
        for late in list(self._late):
            if latest is not None and _shows(latest, late.nonce) and late.nonce not in held():
                self.take_back(late.candidate, late.nonce, late.data)
            if now >= late.forget_at:
                self._late.remove(late)

    def due(self) -> float:
        """Return when the next search is due; infinite if there is none."""
        return self._search_at

    def _next_search(self, now: float) -> float:
        context = self._store.context
        pauses = (search_pause(context, late.forget_at - now) for late in self._late)
        return min((now + pause for pause in pauses if pause is not None), default=math.inf)

    def take_back(self, candidate: str, nonce: str, data: bytes) -> None:
        """Release the claim that was granted under *nonce*, if the store shows it now.

        The last state of a watch may be older than a release: then the look-up, which is a claim
        with the same nonce, would claim again.
        """
        if not _shows(self._read(), nonce):
            return
        asked = self._store.drivers.election.claim(self._service, candidate, nonce, data)
        answer = self._store.asking()(asked)  # the same nonce finds the claim
        if isinstance(answer, Claim):
            self._release(answer)

    def _read(self) -> Snapshot:
        target = Target(Kind.SERVICE, self._service)
        return self._store.wait(self._store.drivers.observe.snapshot(target))


def _shows(snapshot: Snapshot, nonce: str) -> bool:
    return any(entry.nonce == nonce for entry in snapshot.entries.values())
