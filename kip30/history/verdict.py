"""The conclusions of a check. Not knowing is a conclusion of its own, and no pass."""

from collections.abc import Iterable
from enum import Enum
from typing import NoReturn


class Verdict(Enum):
    """The conclusion about one key, or about a whole history."""

    OK = "ok"
    VIOLATION = "violation"
    UNKNOWN = "unknown"

    def __bool__(self) -> NoReturn:
        """Refuse to be read as yes or no.

        Raises:
            TypeError: Always.
        """
        raise TypeError("a verdict has three values: compare it with Verdict.OK")

    @property
    def exit_status(self) -> int:
        """The status a command ends with: 0 for ok, 1 for a violation, 3 for not knowing."""
        return {"ok": 0, "violation": 1, "unknown": 3}[self.value]


def merged(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the verdict on the whole: a violation outweighs not knowing, and that outweighs ok."""
    found = set(verdicts)
    for verdict in (Verdict.VIOLATION, Verdict.UNKNOWN):
        if verdict in found:
            return verdict
    return Verdict.OK
