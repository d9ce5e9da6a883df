"""The client of a simulated process as programs and promises see it, whichever store it has."""

from abc import abstractmethod

from kip30.driver import Backend
from kip30.driver.lease import Lease


class SimulatedBackend(Backend):
    """A client in a process of a simulation, behind the simulated network."""

    @abstractmethod
    def session(self) -> tuple[int, Lease] | None:
        """Return the number of the session, which no other one of the run has, and its lease."""
