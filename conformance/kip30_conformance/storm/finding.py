"""The conclusion of a judge about one invariant."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


class Conclusion(Enum):
    """The conclusion about an invariant. Without evidence it is no pass."""

    OK = "ok"
    VIOLATION = "violation"
    NO_EVIDENCE = "no evidence"


@dataclass(frozen=True, slots=True)
class Finding:
    """The conclusion about one invariant.

    Attributes:
        invariant: Its id, such as ``I3``.
        about: The invariant in words.
        violations: Each in words.
        seen: The evidence, in words.
        missing: The reason why the evidence proves nothing, if it proves nothing.
    """

    invariant: str
    about: str
    violations: Sequence[str]
    seen: str
    missing: str = ""

    @property
    def conclusion(self) -> Conclusion:
        """A violation outweighs the lack of evidence, and that outweighs ok."""
        if self.violations:
            return Conclusion.VIOLATION
        return Conclusion.NO_EVIDENCE if self.missing else Conclusion.OK
