"""Faults of the way between one client and the store."""

from collections.abc import Callable
from random import Random

from typing_extensions import override

from kip30_conformance.servers import Counts, Link
from kip30_conformance.storm.clients import Hand
from kip30_conformance.storm.faults import Fault, Scene

Strike = Callable[[Link], None]
Measure = Callable[[Counts], int]


class Disturbed(Fault):
    """Trouble on the link of one client."""

    def __init__(
        self, scene: Scene, chance: Random, strike: Strike, measure: Measure, unit: str
    ) -> None:
        """Do *strike*; *measure* tells how many *unit* show that it happened."""
        super().__init__(scene, chance)
        self._strike = strike
        self._measure = measure
        self._unit = unit
        self._hand: Hand = chance.choice(scene.crew.hands)
        self._before = Counts()

    @override
    def begin(self) -> None:
        self.target = self._hand.name
        self._before = self._hand.link.counted()
        self._strike(self._hand.link)

    @override
    def end(self) -> None:
        since = self._hand.link.counted() - self._before
        self._hand.link.heal()
        count = self._measure(since)
        self.evidence = f"{count} {self._unit}" if count else ""
