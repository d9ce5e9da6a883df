"""Shared code of the handles behind recipes: a clock, deadlines, and running steps."""

from typing import NamedTuple, TypeVar

from kip30.election import first_try_seconds, waiting_seconds
from kip30.recipes.steps import Steps, run
from kip30.runtime.base_handle import LoopHandle

T = TypeVar("T")


class Deadline(NamedTuple):
    """Deadline of a caller: it waits *seconds* in all, which is *until* a time by the lease clock.

    The answer to the first attempt may take until *first_try_until*.
    """

    seconds: float
    until: float
    first_try_until: float


class RecipeHandle(LoopHandle):
    """A handle that leaves waiting to its caller: a thread, or an event loop."""

    def now(self) -> float:
        """Return the time by the clock of leases."""
        return self._store.context.clock.now()

    def deadline(self, timeout_seconds: float | None) -> Deadline:
        """Return the deadline of a call that begins now.

        Raises:
            UsageError: *timeout_seconds* is negative or not a number.
        """
        now, seconds = self.now(), waiting_seconds(timeout_seconds)
        first_try = first_try_seconds(timeout_seconds, self.operation_seconds())
        return Deadline(seconds, now + seconds, now + first_try)

    def operation_seconds(self) -> float:
        """Return the operation timeout."""
        return self._store.context.operation_timeout_seconds

    def check(self) -> None:
        """Raise unless it may be used here and now; see `LeaderElection`."""
        self._check()

    def take(self, steps: Steps[T]) -> T:
        """Run *steps* in this thread."""
        return run(steps, self._store.context.clock)
