"""The work of a thread with a lock: it acquires it, holds it for a while, and releases it."""

import random
from collections.abc import Callable
from contextlib import suppress

from kip30 import Kip30Error, PluginLocator
from kip30.recipes import FencedGrip, Lock
from kip30.recipes.lock import lock_service
from kip30_conformance.simulation.present import simulation

LOCK = "lock"
LOCK_SERVICE = lock_service(LOCK)
"""The service that the holder of the lock leads, and the group of its fair line."""

_SECONDS_HELD = 3.0
_SECONDS_BETWEEN = 4.0


class LockProgram:
    """One user of the lock, which waits for it in a fair line, or in none.

    Attributes:
        grip: What it has acquired, until its release has returned; None if it has nothing.
        has_held: Whether it held the lock after the faults.
    """

    def __init__(
        self,
        name: str,
        locator: PluginLocator,
        *,
        fair: bool,
        acquired: Callable[[FencedGrip], object],
    ) -> None:
        """Call *acquired* with each grip, while it is held; the thread is called *name*."""
        self.grip: FencedGrip | None = None
        self.has_held = False
        self._lock = Lock(locator, LOCK, fair=fair)
        self._acquired = acquired
        self._chance = random.Random(f"lock {name}")  # noqa: S311  it repeats itself

    def work(self, is_calm: Callable[[], bool]) -> None:
        """Acquire and release the lock until it was held once since *is_calm* returned true."""
        chance = self._chance
        while not self.has_held:
            simulation().park(chance.expovariate(1 / _SECONDS_BETWEEN))
            timeout_seconds = None if is_calm() else chance.choice((None, 0.0, 2.0, 10.0))
            try:
                grip = self._lock.acquire(timeout_seconds)
            except Kip30Error:
                continue
            self._hold(grip, 0.2 if is_calm() else chance.expovariate(1 / _SECONDS_HELD))
            self.has_held = is_calm()

    def _hold(self, grip: FencedGrip, seconds: float) -> None:
        self.grip = grip
        self._acquired(grip)
        simulation().park(seconds)
        with suppress(Kip30Error):  # released later, or lost
            grip.release()
        self.grip = None
