"""Faults: each begins, ends, and can say by what it is seen that it happened."""

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
    """One fault on its way from `begin` to `end`.

    Attributes:
        target: What it hit, known after `begin`.
        evidence: By what it was seen that it happened; nothing if that was not seen.
    """

    def __init__(self, scene: Scene, chance: Random) -> None:
        """Prepare to hit what *chance* chooses."""
        self.scene = scene
        self.chance = chance
        self.target = ""
        self.evidence = ""

    @abstractmethod
    def begin(self) -> None:
        """Do harm."""

    @abstractmethod
    def end(self) -> None:
        """Heal, and look for evidence."""


def state_of(pid: int) -> str:
    """Return the letter by which the kernel tells what a process is doing; "" if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:  # noqa: PTH123
            return stat.read().rpartition(")")[2].split()[0]
    except OSError:
        return ""
