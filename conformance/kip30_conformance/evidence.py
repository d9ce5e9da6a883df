"""The evidence that the faults of a check did happen."""

from collections.abc import Callable


class NoEvidenceError(AssertionError):
    """A fault did not happen, so the observations of the check prove nothing."""


class Evidence:
    """The evidence that the faults of a check did happen."""

    def __init__(self, note: Callable[[str, object], None]) -> None:
        """Report the evidence to *note*."""
        self._note = note

    def saw(self, what: str, proof: object) -> None:
        """Keep *proof* of the fault *what*, such as a count, a dead pid or a new epoch.

        Raises:
            NoEvidenceError: *proof* is false.
        """
        if not proof:
            raise NoEvidenceError(f"no evidence of {what}: {proof!r}")
        self._note("evidence", f"{what}: {proof}")
