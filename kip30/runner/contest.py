"""The election as a runner wants it, over a store that may not be there yet."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import TypeVar

from typing_extensions import override

from kip30.config import Properties
from kip30.driver import Backend, Capability
from kip30.driver.kit.lifecycle import Closing
from kip30.election import LeaderElection
from kip30.errors import Kip30Error, NotNominatedError, UnsupportedError, UsageError
from kip30.locator import PluginLocator
from kip30.runtime.candidacy import Leadership

T = TypeVar("T")


class StoreContest(Closing):
    """One candidate for one service of the configured store; a `kip30.runner.Contest`.

    The store is opened, and the candidate nominated, on a thread of its own: both may take as
    long as the store's timeouts, and the runner looks after signals meanwhile.
    """

    def __init__(self, properties: Properties, service: str, candidate: str) -> None:
        """Open nothing before `wait`."""
        self._properties = properties
        self._service = service
        self._candidate = candidate
        self._locator = PluginLocator()
        self._election: LeaderElection[str] | None = None
        self._entry: Future[LeaderElection[str]] | None = None
        self._term: Leadership | None = None

    def wait(self, timeout: float) -> Leadership | None:
        """Be a candidate and wait for a term; see `kip30.runner.Contest`."""
        election = self._entered(timeout)
        self._term = election.wait_elected(self._candidate, timeout) if election else None
        return self._term

    def share_fd(self) -> int | None:
        """Return a descriptor that keeps the lease of the present term, if there is such a thing.

        Raises:
            UnsupportedError: The lease ends with this process, and nothing can keep it.
        """
        if self._election is None or self._term is None:
            return None
        try:
            return self._election.share_lease(self._term)
        except UsageError:
            return None  # The term is over already; the runner is about to see that.

    def resign(self) -> None:
        """Give up term and candidacy. Idempotent."""
        if self._election is None or self._entry is None or not self._entry.done():
            return
        self._entry = self._term = None
        with suppress(NotNominatedError):
            self._election.resign(self._candidate)

    @override
    def close(self) -> None:
        """Close the store; the candidate resigns with it."""
        self._locator.close()

    def _entered(self, timeout: float) -> LeaderElection[str] | None:
        """Return the election once the candidate is nominated, None if that takes longer."""
        if self._entry is None:
            self._entry = _in_background(self._enter)
        if wait([self._entry], timeout).not_done:
            return None
        try:
            return self._entry.result()
        except Kip30Error:
            self._entry = None
            raise

    def _enter(self) -> LeaderElection[str]:
        if self._election is None:
            locator = self._locator.startup(self._properties)
            _refuse_overlap(locator.backend)
            self._election = locator.leader_election(self._service)
        self._election.nominate(self._candidate, "")
        return self._election


def _refuse_overlap(backend: Backend) -> None:
    """Raise if the next candidate could lead before a guard has ended the command of this one.

    Raises:
        UnsupportedError: The death of this process would free the term at once.
    """
    if backend.frees_at_death and Capability.LEASE_SHARING not in backend.capabilities:
        raise UnsupportedError(
            f"with these settings store {backend.name!r} frees the term of a killed runner before"
            " its command has ended (embedded: set plugin.embedded.liveness to ofd)"
        )


def _in_background(work: Callable[[], T]) -> Future[T]:
    """Have *work* done by a thread the process does not wait for at its end."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001  whoever waits raises it
            future.set_exception(error)

    threading.Thread(target=run, name="kip30-contest", daemon=True).start()
    return future
