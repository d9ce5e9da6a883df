"""What a judge concludes about one invariant."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


class Conclusion(Enum):
    """Whether an invariant held. Not having seen anything is no pass."""

    OK = "ok"
    VIOLATION = "violation"
    NO_EVIDENCE = "no evidence"


@dataclass(frozen=True, slots=True)
class Finding:
    """The conclusion about one invariant.

    Attributes:
        invariant: Its id, such as ``I3``.
        about: What it says.
        violations: Each in words.
        seen: In words, what there was to be judged.
        missing: Why that proves nothing, if it does not.
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
