"""The phases of one member, and the data that its record must show. Sends no request.

`TRANSITIONS` is the whole life of a member. `docs/architecture.md` draws it.

ENDED, LEAVING, EVICTED and CLOSED are final: no re-join follows, and no callback but that of the
change itself. In ENDED and LEAVING the claim is released in the store.

Each `update` gets a number, so that the newest data wins in a re-join: data with a smaller number
never replaces data with a greater one.
"""

import itertools
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future, wait
from enum import Enum
from typing import NamedTuple

from kip30.driver.kit.futures import succeed


class Phase(Enum):
    """Phase of a member between join and leave."""

    JOINING = "joining"
    JOINED = "joined"
    LOST = "lost"
    ENDED = "ended"
    LEAVING = "left"
    EVICTED = "evicted"
    CLOSED = "closed"


_LEFT = "leave, or the handle closes"
_CLOSED = "the locator closes"

TRANSITIONS: Mapping[Phase, Mapping[Phase, str]] = {
    Phase.JOINING: {
        Phase.JOINED: "the claim is granted",
        Phase.LEAVING: f"{_LEFT}, or the join fails",
        Phase.CLOSED: _CLOSED,
    },
    Phase.JOINED: {
        Phase.LOST: "the lease ends, the store has no such member, or the id is banned",
        Phase.ENDED: "the same, after join with rejoin=False",
        Phase.LEAVING: _LEFT,
        Phase.CLOSED: _CLOSED,
    },
    Phase.LOST: {
        Phase.JOINED: "the re-join is granted, and the id is not banned",
        Phase.EVICTED: "another client holds the id",
        Phase.LEAVING: _LEFT,
        Phase.CLOSED: _CLOSED,
    },
    Phase.ENDED: {Phase.CLOSED: _CLOSED},
    Phase.LEAVING: {Phase.CLOSED: _CLOSED},
    Phase.EVICTED: {Phase.CLOSED: _CLOSED},
    Phase.CLOSED: {},
}
"""The phases that may follow each phase, and the event that leads to each."""

_STAYING = frozenset({Phase.JOINED, Phase.LOST})
_NOT_SHOWN = -1


class Update(NamedTuple):
    """The data of one call; of two, the one with the greater number is newer."""

    number: int
    data: bytes


class MemberPhases:
    """The state that the threads of callers and the member's task share. Thread-safe.

    All attributes are written under the lock, by the methods of this class alone.
    """

    def __init__(self, data: bytes, *, rejoins: bool = True) -> None:
        """Start in JOINING with *data*; *rejoins* says whether a re-join follows a lost session."""
        self._rejoins = rejoins
        self._lock = threading.Lock()
        # The present phase; `enter` changes it.
        self._phase = Phase.JOINING
        self._numbers = itertools.count(1)
        # The update that a re-join writes: the newest data that was acknowledged, that may have
        # been written, or that waits for the re-join.
        self._newest = Update(0, data)
        # The update that the record of the present incarnation shows for certain.
        self._shown = _NOT_SHOWN
        # The greatest number that any incarnation has shown: callers wait for this one.
        self._acknowledged = _NOT_SHOWN
        # What callers wait for, with the numbers of their updates.
        self._awaited: dict[Future[bool], int] = {}

    @property
    def phase(self) -> Phase:
        """The present phase."""
        return self._phase

    def is_over(self) -> bool:
        """Return whether the phase is final."""
        return self._phase not in _STAYING and self._phase is not Phase.JOINING

    def enter(self, phase: Phase) -> bool:
        """Go to *phase* if the table allows it; return whether this call did."""
        with self._lock:
            if phase not in TRANSITIONS[self._phase]:
                return False
            self._phase = phase
            if phase is Phase.LOST:
                self._shown = _NOT_SHOWN
        self._end_waits()
        return True

    def lose(self) -> Phase | None:
        """Go to LOST or ENDED, because the session is lost; return which, None if neither."""
        phase = Phase.LOST if self._rejoins else Phase.ENDED
        return phase if self.enter(phase) else None

    def number(self, data: bytes) -> Update:
        """Return *data* as an update newer than all before."""
        return Update(next(self._numbers), data)

    def keep(self, update: Update) -> bool:
        """Let a re-join write *update* unless it has newer data; false if none follows."""
        with self._lock:
            if self._phase not in _STAYING:
                return False
            self._newest = max(self._newest, update)
            return True

    def newest(self) -> Update:
        """Return the update that a re-join must write."""
        return self._newest

    def acknowledge(self, update: Update) -> None:
        """Note that the store shows *update*, and wake the calls that wait for it."""
        with self._lock:
            self._newest = max(self._newest, update)
            if self._phase is Phase.JOINED:  # otherwise it was the record of a lost incarnation
                self._shown = max(self._shown, update.number)
            self._acknowledged = max(self._acknowledged, update.number)
        self._end_waits()

    def is_behind(self) -> bool:
        """Return whether the record may show older data than it must."""
        with self._lock:
            return self._phase is Phase.JOINED and self._shown < self._newest.number

    def wait_until_shown(self, update: Update, until: float) -> bool:
        """Wait until the store has shown *update* or newer data; false if it did not.

        Returns early in a final phase, and when `time.monotonic` has reached *until*.
        """
        shown = self.shown(update)
        try:
            wait([shown], max(0.0, until - time.monotonic()))
            return shown.done() and shown.result()
        finally:
            self.forget(shown)

    def shown(self, update: Update) -> Future[bool]:
        """Return whether the store has shown *update* or newer data, once that is decided.

        It is false in a final phase. A caller that gives up before must `forget` the future.
        """
        future = Future[bool]()
        with self._lock:
            self._awaited[future] = update.number
        self._end_waits()
        return future

    def forget(self, shown: Future[bool]) -> None:
        """Keep a future of `shown` no longer, done or not."""
        with self._lock:
            self._awaited.pop(shown, None)

    def _end_waits(self) -> None:
        with self._lock:
            is_over = self._phase not in _STAYING
            decided = {
                future: number <= self._acknowledged
                for future, number in self._awaited.items()
                if is_over or number <= self._acknowledged
            }
            for future in decided:
                del self._awaited[future]
        # Without the lock, because callbacks may take locks of their own.
        for future, is_shown in decided.items():
            succeed(future, is_shown)
