"""A client on a link that loses nothing, by which runs on other stores than the model are judged.

The modelled store shows its records at any moment. Another store is read as its users read it.
"""

from collections.abc import Callable, Mapping
from typing import Final

from kip30 import Kip30Error, PluginLocator
from kip30.driver import Backend, ObserveDriver
from kip30.driver.records import Entry, Kind, Target
from kip30.runtime.resolution import Configuration
from kip30_conformance.simulation.processes import SimulatedProcess
from kip30_conformance.simulation.programs import GROUP, SERVICE
from kip30_conformance.simulation.scheduler import Simulation

TARGETS: Final = (Target(Kind.SERVICE, SERVICE), Target(Kind.GROUP, GROUP))
"""The leader and the members of the programs."""

_SECONDS = 0.25
_ANSWER_SECONDS = 30.0
_MOST_FAILED = 100
"""The number of failed reads in a row, and so 25 seconds, after which a run fails."""


class StoreReader:
    """Reads the leader and the members, four times a second, in a process of its own.

    Attributes:
        rows: The records of each target by name, as they were read last.
    """

    def __init__(
        self,
        simulation: Simulation,
        properties: Configuration,
        *,
        opened: Callable[[SimulatedProcess, Backend], object],
        has_read: Callable[[], object],
        failed: Callable[[str], object],
    ) -> None:
        """Read nothing before `start`.

        Args:
            simulation: The running one.
            properties: The configuration of the store, as its users have it.
            opened: Called with its process and its backend.
            has_read: Called after each time that all targets were read.
            failed: Called with the reason why the store cannot be read any more.
        """
        self.rows: dict[Target, Mapping[str, Entry]] = {}
        self._simulation = simulation
        self._properties = properties
        self._opened = opened
        self._has_read = has_read
        self._failed = failed
        self._process = SimulatedProcess(simulation, "judge", pid=simulation.next_number())

    def start(self) -> None:
        """Start its thread."""
        self._simulation.spawn(self._process, "reader", self._run)

    def _run(self) -> None:
        failed, locator = 0, PluginLocator()
        try:
            backend = locator.startup(self._properties).backend
        except Kip30Error as error:
            self._failed(f"the store cannot be opened: {error}")
            return
        self._opened(self._process, backend)
        while failed < _MOST_FAILED:
            try:
                self._read(backend.observe)
            except (Kip30Error, TimeoutError) as error:
                failed += 1
                if failed == _MOST_FAILED:
                    self._failed(f"the store cannot be read: {error!r}")
            else:
                failed = 0
                self._has_read()
            self._simulation.park(_SECONDS)

    def _read(self, observe: ObserveDriver) -> None:
        for target in TARGETS:
            self.rows[target] = observe.snapshot(target).result(_ANSWER_SECONDS).entries
