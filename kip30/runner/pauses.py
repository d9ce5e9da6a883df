"""Backoff of a runner before it restarts a command or replaces a guard."""

_FIRST_SECONDS = 1.0
_FIRST_AFTER_GUARD_SECONDS = 0.1
_LONGEST_SECONDS = 60.0


class Pauses:
    """Backoff before a command that has ended is run again.

    Attributes:
        seconds: The next pause.
    """

    def __init__(self) -> None:
        """Begin with the shortest one."""
        self.seconds: float = _FIRST_SECONDS

    def after(self, run_seconds: float) -> float:
        """Return the backoff after a run of that length; a run longer than any pause resets it."""
        if run_seconds > _LONGEST_SECONDS:
            self.seconds = _FIRST_SECONDS
        pause = self.seconds
        self.seconds = min(2 * pause, _LONGEST_SECONDS)
        return pause


class GuardPauses:
    """Backoff before a guard that was killed is replaced.

    Each attempt to lead writes to the store, so a guard that is killed at once again and again,
    for lack of memory, must not be replaced at once. One that has worked for a while is.
    """

    def __init__(self) -> None:
        """Begin with the shortest pause."""
        self._seconds = _FIRST_AFTER_GUARD_SECONDS

    def after(self, life_seconds: float) -> float:
        """Return the backoff after a life of that length; a life longer than it resets it."""
        if life_seconds > self._seconds:
            self._seconds = _FIRST_AFTER_GUARD_SECONDS
        pause = self._seconds
        self._seconds = min(2 * pause, _LONGEST_SECONDS)
        return pause
