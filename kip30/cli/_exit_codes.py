"""The exit codes of ``kip30``, each with its meaning."""

from enum import IntEnum
from typing import Self

_SIGNALLED = 128


class Status(IntEnum):
    """Exit code of a command. ``run`` and ``coordinate`` pass their command's status on instead."""

    meaning: str

    def __new__(cls, code: int, meaning: str) -> Self:
        """Keep *meaning* beside the number."""
        status = int.__new__(cls, code)
        status._value_ = code
        status.meaning = meaning
        return status

    OK = 0, "Done; also if the reader of the output closed it early"
    REFUSED = (
        1,
        "Definitely refused: taken, missing, changed or fenced; no leader; a job with findings",
    )
    USAGE = 2, "The call or the configuration is wrong; nothing was sent to the store"
    UNAVAILABLE = 3, "The store was not reached, rejects the credentials or cannot be used as it is"
    UNKNOWN = 4, "The answer was lost: the write may have been applied; read before you retry"
    UNSUPPORTED = 5, "The store does not offer this"
    NOT_ELECTED = 6, "Not elected, or without a share, in the time given by `--wait`"
    INCOMPLETE = 7, "A pipeline job stopped early; the same command with `--resume` continues it"
    INTERNAL = 70, "A mistake in kip30 itself; `KIP30_DEBUG=1` shows where"
    SYSTEM = (
        74,
        "The operating system refused: a full disk, a closed stdout, a file to read or write",
    )
    LOST = 75, "Leadership was lost (`run --once`)"
    INTERRUPTED = 130, "Ended by Ctrl-C; by another signal n: 128 + n"


def after_signal(number: int) -> int:
    """Return the exit code of a command that signal *number* asked to end."""
    return _SIGNALLED + number
