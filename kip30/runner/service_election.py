"""The election for a runner, on a store that may not be available yet."""

import time
from contextlib import suppress

from typing_extensions import override

from kip30.config import CommonSettings, Properties, build
from kip30.driver.clock import SystemClock
from kip30.driver.closeable import Closeable
from kip30.election import LeaderElection
from kip30.errors import NotNominatedError, UnsupportedError, UsageError
from kip30.locator import PluginLocator
from kip30.runner.retried_call import RetriedCall, StoreProbe, refuse_overlap
from kip30.runtime.candidacy import Leadership

_CLOCK = SystemClock()
"""The one by which `LeaderElection.wait_elected` measures its timeout."""


class StoreContest(Closeable):
    """One candidate for one service of the configured store; a `kip30.runner.Contest`.

    The store is opened, and the candidate nominated, on a thread of its own: both may take as
    long as the store's timeouts, and the runner handles signals meanwhile.
    """

    def __init__(self, properties: Properties, service: str, candidate: str) -> None:
        """Open nothing before `wait`."""
        self._properties = properties
        self._service = service
        self._candidate = candidate
        self._locator = PluginLocator()
        self._election: LeaderElection[str] | None = None
        self._entry = RetriedCall(self._enter)
        self._probe = StoreProbe(self._locator)
        self._term: Leadership | None = None

    def wait(self, timeout: float) -> Leadership | None:
        """Become a candidate and wait for a term; see `kip30.runner.Contest`.

        A candidate that the store has refused meanwhile is nominated again by the next call.
        """
        election = self._entry.result(timeout)
        if election is None:
            return None
        until = _CLOCK.now() + timeout
        self._term = election.wait_elected(self._candidate, timeout)
        if self._term is None:
            self._nominate_again(until)
            self._probe.check()
        return self._term

    def has_tried(self) -> bool:
        """Return whether a nomination has ended; see `kip30.runner.Contest`."""
        timeouts = build(CommonSettings, self._properties)
        return self._entry.has_tried(timeouts.operation_timeout_seconds)

    def share_fd(self) -> int | None:
        """Return a descriptor that keeps the lease of the present term, if there is such a thing.

        There is none where a lease ends with its timeout only, or if the term has already ended,
        which the runner is about to see.
        """
        if self._election is None or self._term is None:
            return None
        try:
            return self._election.share_lease(self._term)
        except (UnsupportedError, UsageError):
            return None

    def resign(self) -> None:
        """Give up term and candidacy. Idempotent."""
        if self._election is None or not self._entry.is_done:
            return
        self._entry.forget()
        self._term = None
        with suppress(NotNominatedError):
            self._election.resign(self._candidate)

    @override
    def close(self) -> None:
        """Close the store; the candidate resigns with it."""
        self._locator.close()

    def _nominate_again(self, until: float) -> None:
        """Let the next `wait` nominate the candidate if the last one ended before *until*.

        Only a candidate that is not nominated any longer ends a wait without a term so early. The
        nomination raises why the store refuses it.
        """
        left = until - _CLOCK.now()
        if left > 0:
            self._entry.forget()
            time.sleep(left)  # or a caller that waits again would nominate again and again

    def _enter(self) -> LeaderElection[str]:
        if self._election is None:
            locator = self._locator.startup(self._properties)
            refuse_overlap(locator.backend)
            self._election = locator.leader_election(self._service)
        self._election.nominate(self._candidate, "")
        return self._election
