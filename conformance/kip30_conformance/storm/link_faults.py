"""Faults of the link between one client and the store."""

from collections.abc import Callable
from random import Random

from typing_extensions import override

from kip30_conformance.servers import Counts, Link
from kip30_conformance.storm.clients import ClientProcess
from kip30_conformance.storm.faults import Fault, Scene

Inject = Callable[[Link], None]
Measure = Callable[[Counts], int]


class Disturbed(Fault):
    """A fault on the link of one client."""

    def __init__(
        self, scene: Scene, chance: Random, strike: Inject, measure: Measure, unit: str
    ) -> None:
        """Inject *strike*; *measure* returns how many *unit* show that it happened."""
        super().__init__(scene, chance)
        self._strike = strike
        self._measure = measure
        self._unit = unit
        self._client: ClientProcess = chance.choice(scene.clients.processes)
        self._before = Counts()

    @override
    def begin(self) -> None:
        self.target = self._client.name
        self._before = self._client.link.counted()
        self._strike(self._client.link)

    @override
    def end(self) -> None:
        since = self._client.link.counted() - self._before
        self._client.link.heal()
        count = self._measure(since)
        self.evidence = f"{count} {self._unit}" if count else ""
