"""Delays of observers: pauses between changes, and figures after notifications or polls."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from benchmarks.report.figure import Figure, middle
from benchmarks.store_address import StoreAddress

_RESTS = 3
_FEWER = 4
_WITH_READS = 1.05
"""Of the bound: a value that is polled has to be written and read, too."""


@dataclass(frozen=True)
class Observation:
    """*bound* is the maximum delay of observers that poll, in seconds; 0 with notifications.

    A client that polls does so more often after a change. So there is a rest between changes,
    fewer of them, and no raw client: it would poll just as rarely as it is set to. The embedded
    store has none that could wait for changes.
    """

    bound: float
    sides: Sequence[str]

    @classmethod
    def of(cls, address: StoreAddress) -> Self:
        # Consul declares a delay, too, and yet notifies: its watches share few connections.
        if address.store == "cassandra":
            return cls(address.observe_seconds(), ("library",))
        return cls(0, ("library",) if address.is_embedded else ("library", "raw"))

    def rounds(self, most: int) -> int:
        return most // _FEWER if self.bound else most

    def pause(self, number: int, least: float, most: float) -> float:
        """Return the seconds of a pause between both, or 3 to 4 bounds; none beats in time."""
        share = number * 7919 % 1000 / 1000
        return self.bound * (_RESTS + share) or least + (most - least) * share

    def figures(
        self, name: str, times: Mapping[str, Sequence[float]], at_most: float
    ) -> list[Figure]:
        """Return the figures of *times*, in ms, by side; *at_most* is over the raw client's."""
        names = {"library": f"{name}, median", "raw": f"{name}, raw, median"}
        medians = [Figure.median(names[side], one, "ms") for side, one in times.items()]
        if "raw" in times:
            ratio = middle(times["library"]) / middle(times["raw"])
            return [Figure(name=name, value=ratio, unit="x raw", at_most=at_most), *medians]
        if self.bound:
            share = max(times["library"]) / 1e3 / self.bound
            unit = "x declared bound, worst"
            return [Figure(name=name, value=share, unit=unit, at_most=_WITH_READS), *medians]
        return medians
