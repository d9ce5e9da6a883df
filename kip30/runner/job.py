"""The job of a runner, and the outcome."""

import errno
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from kip30.errors import InvalidNameError, UsageError
from kip30.names import check_id
from kip30.runner import exit_status

LOST_STATUS = 75
"""Exit status when leadership was lost and the job is for one term only (EX_TEMPFAIL)."""
WAITED_STATUS = 6
"""Exit status when the candidate was not elected within the time to wait."""
GRACE_SECONDS = 10.0
LONGEST_GRACE_SECONDS = 365 * 86_400.0
_SHORTAGES = {errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE}


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A command for the leader of a service.

    Attributes:
        service: The service to lead.
        candidate: The candidate to lead it as.
        command: Program and arguments.
        once: End when leadership is lost, or the system has no process, memory or descriptor left
            for the command, instead of waiting for leadership again.
        wait_seconds: How long to wait for leadership each time; None is without limit.
        grace_seconds: How long the command and its descendants may take to end after the first
            signal, or the descendants after the end of the command. Less if the lease runs out
            sooner; at most a year.
        descriptors: Open descriptors above 2 that the command gets under the same numbers.
    """

    service: str
    candidate: str
    command: Sequence[str]
    once: bool = False
    wait_seconds: float | None = None
    grace_seconds: float = GRACE_SECONDS
    descriptors: Sequence[int] = ()

    def __post_init__(self) -> None:
        """Refuse a job that cannot be started.

        Raises:
            UsageError: There is no command, the grace is out of range, or a name cannot be put
                into an environment.
        """
        check_command(self.command, self.grace_seconds)
        check_id(self.service, "service")
        check_id(self.candidate, "candidate")
        if "\0" in self.service + self.candidate:
            raise InvalidNameError("the names of service and candidate cannot contain a NUL")


class TermCommand:
    """The command of a job for one term; a `kip30.runner.guard_handle.CommandSpec`."""

    def __init__(self, job: Job, epoch: int) -> None:
        """Put service, candidate and epoch into the environment of the command."""
        self.command: Sequence[str] = job.command
        self.grace_seconds: float = job.grace_seconds
        self.environment: Mapping[str, str | None] = {
            "KIP30_SERVICE": job.service,
            "KIP30_CANDIDATE": job.candidate,
            "KIP30_EPOCH": str(epoch),
        }


def check_command(command: Sequence[str], grace_seconds: float) -> None:
    """Refuse a command that cannot be started.

    Raises:
        UsageError: There is no command, it has a NUL in it, or the grace is out of range.
    """
    if not command:
        raise UsageError("there is no command to run")
    if any("\0" in word for word in command):
        raise UsageError("a command cannot contain a NUL")
    if not 0 <= grace_seconds <= LONGEST_GRACE_SECONDS:
        raise UsageError(
            f"a grace of {grace_seconds:g} s is not possible:"
            f" give 0 to {LONGEST_GRACE_SECONDS:.0f} s, which is a year"
        )


class Ending(Enum):
    """Reason why a run has ended."""

    COMMAND_ENDED = "the command ended by itself"
    NOT_EXECUTED = "the command cannot be executed"
    INTERRUPTED = "interrupted by a signal"
    LOST = "leadership was lost"
    SHARE_LOST = "the share was lost"
    WANTED_BACK = "the share was wanted back"
    STEPPED_DOWN = "an operator has ended the term"
    KILLED = "the command was killed with its guard"
    LAPSED = "the lease was not renewed in time"
    WAITED = "not elected within the time to wait"
    FINISHED = "nothing is left to run"


def is_shortage(number: int | None) -> bool:
    """Return whether a start that failed with this errno may succeed later."""
    return number in _SHORTAGES


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """Outcome of a run.

    Attributes:
        ending: Why it has ended.
        status: The status to exit with: the command's own whenever it has one.
        error: The errno that tells why the command cannot be executed, else 0.
    """

    ending: Ending
    status: int
    error: int = 0

    @classmethod
    def not_executed(cls, error: int) -> "RunOutcome":
        """Return the outcome of a run whose command cannot be executed because of this errno."""
        return cls(Ending.NOT_EXECUTED, exit_status.failure_status(error), error)

    @classmethod
    def of_command(cls, ending: Ending, wait_status: int) -> "RunOutcome":
        """Return the outcome of a run whose command ended with this wait status."""
        return cls(ending, exit_status.exit_status(wait_status))

    @property
    def is_shortage(self) -> bool:
        """True if a shortage alone has prevented the execution, so that a later one may succeed."""
        return self.ending is Ending.NOT_EXECUTED and is_shortage(self.error)
