"""Reads of groups that show late claims: all searches of a client in one group share them.

An outage leaves a search behind for every join that was not answered, and each goes on for minutes
(`kip30.runtime.late_claims`). If each read the group itself, a client would load a store most that
has just been overloaded: the more joins fail, the more reads make the next ones fail.
"""

import threading
from collections.abc import Mapping
from concurrent.futures import Future
from typing import NamedTuple

from kip30.driver import ObserveDriver
from kip30.driver.clock import Clock
from kip30.driver.kit.futures import failed, mapped
from kip30.driver.records import Kind, Snapshot, Target
from kip30.errors import UnavailableError

_FAILURE_SECONDS = 1.0
"""How long a failed read keeps the next one from beginning."""


class _Read(NamedTuple):
    """A read of a group: the nonces of its members by id."""

    begun_at: float
    use_until: float
    nonces: Future[Mapping[str, str]]

    def is_useful(self, now: float) -> bool:
        """Return whether a search may still need it."""
        return self.use_until > now or not self.nonces.done()

    def error(self) -> BaseException | None:
        """Return why it failed; None if it has not."""
        return self.nonces.exception() if self.nonces.done() else None

    def serves(self, now: float, max_age_seconds: float) -> bool:
        """Return whether a search at *now* needs no other read."""
        if not self.nonces.done():
            return True
        failed_before = self.nonces.exception() is not None
        age = min(max_age_seconds, _FAILURE_SECONDS) if failed_before else max_age_seconds
        return self.begun_at >= now - age


class LateClaimReads:
    """The reads of all groups in which one client searches. Thread-safe."""

    def __init__(self, observe: ObserveDriver, clock: Clock) -> None:
        """Read from *observe*."""
        self._observe = observe
        self._clock = clock
        # The newest read of each group. Reads that no search can use any longer are dropped when
        # the next one begins. Written under the lock.
        self._reads: dict[str, _Read] = {}
        self._lock = threading.Lock()

    def nonces(self, group: str, max_age_seconds: float) -> Future[Mapping[str, str]]:
        """Return the nonces of the members of *group* by id, as of *max_age_seconds* ago or later.

        A read that failed is followed by the next one a second later: a store that does not answer
        is not asked more often.
        """
        with self._lock:
            now = self._clock.now()
            read = self._reads.get(group)
            error = read and read.error()
            if read is None or not read.serves(now, max_age_seconds):
                self._reads = {one: it for one, it in self._reads.items() if it.is_useful(now)}
                read = _Read(now, now + max_age_seconds, self._begin(group))
                self._reads[group] = read
            elif error is not None:  # a new one: each raise of an exception makes it longer
                return failed(UnavailableError(f"the group was not read a moment ago: {error}"))
            return mapped(read.nonces, _same)  # its own: a caller may cancel what it waits for

    def _begin(self, group: str) -> Future[Mapping[str, str]]:
        return mapped(self._observe.snapshot(Target(Kind.GROUP, group)), _nonces)


def _same(nonces: Mapping[str, str]) -> Mapping[str, str]:
    return nonces


def _nonces(snapshot: Snapshot) -> Mapping[str, str]:
    return {name: entry.nonce for name, entry in snapshot.entries.items()}
