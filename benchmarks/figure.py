"""One measured figure and what is asked of it."""

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median, quantiles


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A figure without *at_least* and *at_most* is for information.

    *samples* are what *value* was drawn from, in the same unit.
    """

    subject: str
    name: str
    value: float
    unit: str
    at_least: float | None = None
    at_most: float | None = None
    samples: tuple[float, ...] = ()

    @property
    def measured(self) -> str:
        number = f"{self.value:,.0f}" if self.value >= 100 else f"{self.value:.3g}"
        return f"{number} {self.unit}"

    @property
    def target(self) -> str:
        if self.at_least is not None:
            return f">= {self.at_least:g} {self.unit}"
        return "" if self.at_most is None else f"<= {self.at_most:g} {self.unit}"

    @property
    def met(self) -> bool | None:
        if self.at_least is not None:
            return self.value >= self.at_least
        return None if self.at_most is None else self.value <= self.at_most


def middle(samples: Iterable[float]) -> float:
    return median(samples)


def percentile(samples: Iterable[float], share: int) -> float:
    return quantiles(samples, n=100, method="inclusive")[share - 1]
