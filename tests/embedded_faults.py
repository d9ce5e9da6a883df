"""Faults of one client of the embedded store, for tests of the code above it."""

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager

from typing_extensions import override

from kip30.driver import Backend
from kip30_backends.embedded import EmbeddedBackend
from kip30_conformance.driver_faults import ALL, DriverFault, Effect, Interposition, wrap


class EmbeddedFaults(Interposition):
    """Injects faults into one client. Thread-safe.

    Attributes:
        end_session: Ends the session in the store; not counted as a fault.
    """

    def __init__(self, backend: EmbeddedBackend) -> None:
        super().__init__(backend)
        resources = backend._resources
        self.end_session = resources.expire_session
        self._sessions = resources.sessions
        self._seconds = resources.sessions._context.operation_timeout_seconds
        self._expired = 0
        # Held while watches are notified, so that none is once pausing them has returned.
        self._notifying = threading.RLock()
        self._watches_paused = False
        wrap(resources.watches, "deliver", self._deliver)

    @property
    def renewals_paused(self) -> bool:
        """True while the session is not renewed, as in a hung process."""
        return self._sessions._renewals_paused

    @renewals_paused.setter
    def renewals_paused(self, paused: bool) -> None:
        self._sessions._renewals_paused = paused

    @property
    def watches_paused(self) -> bool:
        """True while no watch is notified; the changes it missed are delivered afterwards."""
        return self._watches_paused

    @watches_paused.setter
    def watches_paused(self, paused: bool) -> None:
        with self._notifying:
            self._watches_paused = paused

    @contextmanager
    def cut_off(self) -> Generator[None]:
        """Keep this client from the store: no call, renewal or notification gets through."""
        self.renewals_paused = self.watches_paused = True
        silence = Effect.CUT_OFF
        self.add(DriverFault(operation=ALL, effect=silence, seconds=self._seconds, times=None))
        try:
            yield
        finally:
            self.clear()
            self.renewals_paused = self.watches_paused = False

    def expire_session(self) -> None:
        """End the session in the store, as if it had run out there."""
        self._expired += 1
        self.end_session()

    @override
    def counted(self) -> int:
        return super().counted() + self._expired

    def _deliver(self, real: Callable[[], None]) -> None:
        with self._notifying:
            if not self._watches_paused:
                real()


def faults_of(backend: Backend) -> EmbeddedFaults:
    """Return the faults of *backend*, the same ones each time."""
    assert isinstance(backend, EmbeddedBackend)
    # Kept with the backend, so that nothing else keeps it alive.
    kept: dict[str, EmbeddedFaults] = backend.__dict__
    if "_injected" not in kept:
        kept["_injected"] = EmbeddedFaults(backend)
    return kept["_injected"]
