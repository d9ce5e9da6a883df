"""Ways to watch a store: by notifications, beside the raw client, or by polling."""

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.report.figure import Figure, middle
from benchmarks.store_address import StoreAddress

_RESTS = 3
_FEWER = 4
_WITH_READS = 1.05
"""Of the bound: a value that is polled has to be written and read, too."""

Times = Mapping[str, tuple[float, ...]]


@dataclass(frozen=True)
class Pace:
    """*bound* is the maximum delay of observers, in seconds; 0 with notifications.

    A client that polls does so more often after a change. So there is a rest between changes,
    fewer of them, and no raw client: it would poll just as rarely as it is set to.
    """

    bound: float

    @classmethod
    def of(cls, address: StoreAddress) -> "Pace":
        return cls(address.observe_seconds())

    @property
    def sides(self) -> tuple[str, ...]:
        return ("library",) if self.bound else ("library", "raw")

    def rounds(self, most: int) -> int:
        return most // _FEWER if self.bound else most

    def pause(self, number: int, least: float) -> float:
        """Return 1 to 3 times *least*, or 3 to 4 bounds, so that nothing beats in time."""
        share = number * 7919 % 1000 / 1000
        return self.bound * (_RESTS + share) or least * (1 + 2 * share)

    def figures(self, name: str, times: Times, at_most: float) -> list[Figure]:
        """Return the figures of *times*, in ms; *at_most* is over the raw client's."""
        names = {"library": f"{name}, median", "raw": f"{name}, raw, median"}
        medians = [Figure.median(names[side], one, "ms") for side, one in times.items()]
        value, unit = self._share(times)
        limit = at_most if "raw" in times else _WITH_READS
        return [Figure(name=name, value=value, unit=unit, at_most=limit), *medians]

    def _share(self, times: Times) -> tuple[float, str]:
        if "raw" in times:
            return middle(times["library"]) / middle(times["raw"]), "x raw"
        return max(times["library"]) / 1e3 / self.bound, "x declared bound, worst"
