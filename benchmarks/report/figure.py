"""One measured figure and its target."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Self


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A figure without *at_least* and *at_most* is for information.

    *samples* are the measurements behind *value*, in the same unit.
    """

    name: str
    value: float
    unit: str
    at_least: float | None = None
    at_most: float | None = None
    samples: tuple[float, ...] = ()

    @classmethod
    def median(
        cls,
        name: str,
        samples: Sequence[float],
        unit: str,
        *,
        at_least: float | None = None,
        at_most: float | None = None,
    ) -> Self:
        """Return the figure whose value is the median of *samples*."""
        return cls(
            name=name,
            value=middle(samples),
            unit=unit,
            at_least=at_least,
            at_most=at_most,
            samples=tuple(samples),
        )

    @classmethod
    def percentile(
        cls,
        name: str,
        samples: Sequence[float],
        unit: str,
        share: int,
        *,
        at_most: float | None = None,
    ) -> Self:
        """Return the figure whose value *share* percent of *samples* are below."""
        value = quantiles(samples, n=100, method="inclusive")[share - 1]
        return cls(name=name, value=value, unit=unit, at_most=at_most, samples=tuple(samples))

    @property
    def number(self) -> str:
        return f"{self.value:,.0f}" if self.value >= 100 else f"{self.value:.3g}"

    @property
    def measured(self) -> str:
        return f"{self.number} {self.unit}"

    @property
    def target(self) -> str:
        """The target, in the same unit; empty if the figure is for information."""
        if self.at_least is not None:
            return f">= {self.at_least:g}"
        return "" if self.at_most is None else f"<= {self.at_most:g}"

    @property
    def share(self) -> float:
        """The share of the limit that this uses: 1 or less meets the target; 0 if there is none."""
        if self.at_least is not None:
            return self.at_least / self.value
        return self.value / self.at_most if self.at_most else 0

    @property
    def met(self) -> bool | None:
        if self.at_least is not None:
            return self.value >= self.at_least
        return None if self.at_most is None else self.value <= self.at_most


def middle(samples: Iterable[float]) -> float:
    return median(samples)
