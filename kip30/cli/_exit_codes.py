"""The exit codes of ``kip30``, each with its meaning."""

from enum import IntEnum
from typing import Self

_SIGNALLED = 128


class Status(IntEnum):
    """How a command ended. ``kip30 run`` passes on its command's own status instead."""

    meaning: str

    def __new__(cls, code: int, meaning: str) -> Self:
        """Keep *meaning* beside the number."""
        status = int.__new__(cls, code)
        status._value_ = code
        status.meaning = meaning
        return status

    OK = 0, "Done. Also when whoever read the output has had enough of it"
    REFUSED = 1, "No, for certain: it is there, missing, changed, or fenced. A job with findings"
    USAGE = 2, "The call or the configuration is wrong; nothing was sent to the store"
    UNAVAILABLE = 3, "The store was not reached, rejects the credentials or cannot be used as it is"
    UNKNOWN = 4, "The answer was lost: it may have been done. Read before trying again"
    UNSUPPORTED = 5, "The store does not offer this"
    NOT_ELECTED = 6, "Not elected in the time given by `run --wait`"
    INCOMPLETE = 7, "A pipeline job stopped before its end: the same with `--resume` goes on"
    SYSTEM = (
        74,
        "The operating system refused: a full disk, a closed stdout, a file to read or write",
    )
    INTERNAL = 70, "A mistake in kip30 itself; KIP30_DEBUG=1 shows where"
    LOST = 75, "Leadership was lost (`run --once`)"
    INTERRUPTED = 130, "Ended by Ctrl-C. By another signal n: 128 + n"


def after_signal(number: int) -> int:
    """Return the exit code of a command that signal *number* asked to end."""
    return _SIGNALLED + number
