"""One driver for a run that writes: it leads a service of the target, and its writes are fenced."""

import os
import socket
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress

from typing_extensions import override

from kip30.driver import Capability
from kip30.driver.closeable import Closeable
from kip30.driver.records import Fence, new_nonce
from kip30.election import LeaderElection
from kip30.errors import (
    NotElectedError,
    NotNominatedError,
    OutcomeUnknownError,
    UnsupportedError,
)
from kip30.locator import PluginLocator
from kip30.pipeline.stores.config import StoreConfig
from kip30.pipeline.stores.identity import open_target

_SESSIONS = 1.5
"""Number of session timeouts to wait for a driver that crashed: it leads for up to one."""


def service_of(run: str) -> str:
    """Return the service that the driver of *run* leads."""
    return f"pipeline/{run}"


@contextmanager
def drive_fenced(
    config: StoreConfig, run: str, store: str, *, fence: bool
) -> Generator["RunLeader | None"]:
    """Drive *run* as `drive` does if *fence* is true; otherwise there is no leader.

    Raises:
        Kip30Error: As `drive`.
    """
    if fence:
        with drive(config, run, store) as leader:
            yield leader
        return
    with open_target(config, store):
        pass
    yield None


@contextmanager
def drive(config: StoreConfig, run: str, store: str) -> Generator["RunLeader"]:
    """Open the target of *config*, which must be *store*, and drive *run* on it in a with-block.

    A driver that crashed leads up to its session timeout.

    Raises:
        UsageError: It is another store than *store*, its identity. Nothing was written.
        Kip30Error: As `PluginLocator.startup` and `RunLeader`.
    """
    with open_target(config, store) as locator:
        patience = _SESSIONS * locator.context.session_timeout_seconds
        with RunLeader(locator, run, patience_seconds=patience) as leader:
            yield leader


class RunLeader(Closeable):
    """Drives a run until it is closed, in one term after another. One thread uses an object.

    A term ends when the store did not respond for too long, or in `writing`. Then this stands for
    election again, so a job that runs for days needs no restart. Writes that carry the fence of a
    former term are refused by the store, in whichever process.
    """

    def __init__(self, locator: PluginLocator, run: str, *, patience_seconds: float = 30.0) -> None:
        """Stand for election as the driver of *run*.

        Args:
            locator: The open target.
            run: What names the run.
            patience_seconds: How long `fence` waits.

        Raises:
            UnsupportedError: The store has no ``fencing``. Nothing was sent.
            InvalidNameError: *run* cannot be a name. Nothing was sent.
            AuthenticationError, StoreError: The store will not take it.
        """
        if Capability.FENCING not in locator.backend.capabilities:
            raise UnsupportedError(
                f"store {locator.backend.name!r} does not offer {Capability.FENCING.value}"
            )
        self._run = run
        self._elected = threading.Event()
        self._patience = patience_seconds
        self._process = f"{socket.gethostname()}-{os.getpid()}"
        self._name = f"{self._process}-{new_nonce()}"
        self._election: LeaderElection[str] = locator.leader_election(service_of(run))
        try:
            self._nominate()
        except BaseException:
            self._election.close()
            raise

    @override
    def close(self) -> None:
        """Let another process drive the run. Idempotent."""
        self._election.close()

    def fence(self, *, timeout_seconds: float | None = None) -> Fence:
        """Return the fence of the present term, which is waited for.

        Args:
            timeout_seconds: How long to wait, if not *patience_seconds*.

        Raises:
            NotElectedError: Another process drives the run, or the store does not answer.
        """
        until = time.monotonic() + (self._patience if timeout_seconds is None else timeout_seconds)
        while True:
            self._elected.clear()  # before the look: a term that begins after it sets this again
            term = self._election.leadership(self._name)
            if term is not None:
                return Fence(term.service, term.epoch)
            if not self._elected.wait(max(0.0, until - time.monotonic())):
                raise NotElectedError(self._refusal())

    @contextmanager
    def writing(self) -> Generator[Fence]:
        """Yield the fence of the present term, and end the term if the block raises.

        A request of the block that is still under way may be applied after later writes of its key.
        The store refuses it once the next term has begun.

        Raises:
            NotElectedError: As `fence`.
            AuthenticationError, StoreError: The store will not take the next nomination.
        """
        fence = self.fence()
        try:
            yield fence
        except Exception:
            self._end_term()
            raise

    def _end_term(self) -> None:
        """Resign, and stand for election again."""
        with suppress(NotNominatedError, OutcomeUnknownError):
            self._election.resign(self._name)
        self._nominate()

    def _nominate(self) -> None:
        self._election.nominate(self._name, self._process, on_elected=self._note, priority=0)

    def _note(self, _term: object) -> None:
        self._elected.set()

    def _refusal(self) -> str:
        leader = self._election.get_leader()
        if leader is None:  # gone by now, or its session has just ended
            return f"run {self._run!r} could not be taken over in time: try again"
        return f"run {self._run!r} is driven by process {leader.data}, epoch {leader.epoch}"
