"""Faults: each begins, ends, and returns evidence that it happened."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from random import Random

from kip30_conformance.servers import Ensemble
from kip30_conformance.storm.clients import Clients


@dataclass(frozen=True, slots=True)
class Scene:
    """All that can be hit."""

    ensemble: Ensemble
    clients: Clients


class Fault(ABC):
    """One fault from `begin` to `end`.

    Attributes:
        target: The thing that it hit, known after `begin`.
        evidence: The observation which shows that it happened; nothing if there was none.
    """

    def __init__(self, scene: Scene, chance: Random) -> None:
        """Prepare to hit a target that *chance* chooses."""
        self.scene = scene
        self.chance = chance
        self.target = ""
        self.evidence = ""

    @abstractmethod
    def begin(self) -> None:
        """Inject the fault."""

    @abstractmethod
    def end(self) -> None:
        """Heal, and look for evidence."""


def state_of(pid: int) -> str:
    """Return the kernel's letter for the state of a process; "" if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:  # noqa: PTH123
            return stat.read().rpartition(")")[2].split()[0]
    except OSError:
        return ""
