"""The schedule of faults: random, and the same for the same seed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from kip30_conformance.storm.fault_kinds import KINDS
from kip30_conformance.storm.timing import Timing

_TWO_AT_A_TIME = 0.3


@dataclass(frozen=True, slots=True)
class Planned:
    """A fault to come: its kind, its duration, and the seed of its own randomness."""

    kind: str
    seconds: float
    seed: int


@dataclass(frozen=True, slots=True)
class Episode:
    """One fault, or two at a time, with a calm window before and after."""

    faults: Sequence[Planned]

    @property
    def seconds(self) -> float:
        """The duration of the longest of its faults."""
        return max(fault.seconds for fault in self.faults)


def schedule(seed: int, seconds: float, timing: Timing) -> list[Episode]:
    """Return the episodes that fit into *seconds*, each followed by a calm; at least one.

    Every kind occurs once before any occurs again.
    """
    chance = Random(seed)  # noqa: S311  to be repeated, not to be secret
    kinds = _kinds(chance)
    episodes: list[Episode] = []
    left = seconds - timing.calm
    while left > 0 or not episodes:
        episode = Episode([_planned(kind, chance, timing) for kind in _together(kinds, chance)])
        left -= episode.seconds + timing.calm
        if left > 0 or not episodes:
            episodes.append(episode)
    return episodes


def _kinds(chance: Random) -> Iterator[str]:
    """Yield all kinds repeatedly, in a random order each time."""
    while True:
        deck = list(KINDS)
        chance.shuffle(deck)
        yield from deck


def _together(kinds: Iterator[str], chance: Random) -> list[str]:
    first = next(kinds)
    if KINDS[first].alone or chance.random() >= _TWO_AT_A_TIME:
        return [first]
    side = KINDS[first].side
    others = [name for name, kind in KINDS.items() if kind.side is not side and not kind.alone]
    return [first, chance.choice(others)]


def _planned(name: str, chance: Random, timing: Timing) -> Planned:
    seconds = chance.uniform(*KINDS[name].lasts) * timing.session
    return Planned(name, seconds, chance.getrandbits(32))
