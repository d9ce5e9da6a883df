"""One driver for a run that writes: it leads a service of the target, and its writes are fenced."""

import os
import socket
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from kip30.candidacy import Leadership
from kip30.driver import Capability
from kip30.election import LeaderElection
from kip30.errors import NotElectedError, UnsupportedError
from kip30.locator import PluginLocator
from kip30.records import Fence, new_nonce


@dataclass(frozen=True, slots=True)
class RunLock:
    """The right to drive one run.

    Attributes:
        fence: What every write of the run carries, in whichever process: the store refuses it once
            another driver has taken over.
    """

    leadership: Leadership
    fence: Fence

    def is_lost(self) -> bool:
        """Say whether the right has ended, by the clock and at this moment."""
        return not self.leadership.is_valid()

    def check(self) -> None:
        """Return if the right still holds.

        Raises:
            LeadershipLostError: It has ended, and another driver may have taken over.
        """
        self.leadership.check()


def service_of(run: str) -> str:
    """Return the service that the driver of *run* leads."""
    return f"pipeline/{run}"


@contextmanager
def drive_run(
    locator: PluginLocator, run: str, *, timeout_seconds: float = 0.0
) -> Generator[RunLock]:
    """Drive *run* for the time of a with-block: nobody else does meanwhile.

    The right may be lost before the block ends; then the block runs on, and its writes are refused.
    A driver that crashed holds it up to its session timeout.

    Args:
        locator: The open target.
        run: What names the run.
        timeout_seconds: How long to wait for the right; 0 makes one attempt.

    Raises:
        NotElectedError: Another driver has it; the message names it. Nothing was written.
        UnsupportedError: The store has no ``fencing``. Nothing was sent.
        InvalidNameError: *run* cannot be a name. Nothing was sent.
        UnavailableError, AuthenticationError, StoreError: As for `LeaderElection.lead`.
    """
    if Capability.FENCING not in locator.backend.capabilities:
        raise UnsupportedError(
            f"store {locator.backend.name!r} does not offer {Capability.FENCING.value}"
        )
    with locator.leader_election(service_of(run)) as election, ExitStack() as held:
        who = f"{socket.gethostname()}-{os.getpid()}"
        try:
            leadership = held.enter_context(
                election.lead(f"{who}-{new_nonce()}", who, timeout_seconds=timeout_seconds)
            )
        except NotElectedError as error:
            raise NotElectedError(_refusal(election, run)) from error
        yield RunLock(leadership, Fence(leadership.service, leadership.epoch))


def _refusal(election: LeaderElection[str], run: str) -> str:
    leader = election.get_leader()
    if leader is None:  # gone by now, or its session has just ended
        return f"run {run!r} could not be taken over in time: try again"
    return f"run {run!r} is driven by process {leader.data}, epoch {leader.epoch}"
