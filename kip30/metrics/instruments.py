"""Counters, gauges and histograms, in families of series: a series for each set of label values."""

import logging
import threading
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import accumulate
from math import inf
from typing import Generic, Literal, NamedTuple, TypeVar

from typing_extensions import override

log: logging.Logger = logging.getLogger(__name__)

BOUNDS = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
)
"""The upper bounds of the buckets of every histogram, in seconds; above them is one more bucket."""

_BATCH = 256
"""Number of durations that a histogram puts into its buckets at once."""

_bucket_of = partial(bisect_left, BOUNDS)

LabelValues = tuple[str, ...]


class Definition(NamedTuple):
    """A family of series: what an exporter shows of it besides its samples.

    Attributes:
        about: One line of help.
        labels: The names of the labels, without that of the store.
        combined: What two gauges with the same label values amount to.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    about: str
    labels: tuple[str, ...] = ()
    combined: Callable[[float, float], float] = max


class HistogramValue(NamedTuple):
    """The value of a histogram: the number of durations in each bucket, and their sum."""

    counts: Sequence[int]
    total: float

    def buckets(self) -> Iterator[tuple[float, int]]:
        """Yield each upper bound, infinity last, and how many durations are not above it."""
        return zip((*BOUNDS, inf), accumulate(self.counts), strict=True)

    def plus(self, other: "HistogramValue") -> "HistogramValue":
        """Return the value of one that has observed both."""
        counts = [one + more for one, more in zip(self.counts, other.counts, strict=True)]
        return HistogramValue(counts, self.total + other.total)


SampleValue = float | HistogramValue


class MetricFamily(NamedTuple):
    """The samples of a family at one moment, by label values; *labels* has the names of these."""

    definition: Definition
    labels: tuple[str, ...]
    samples: Mapping[LabelValues, SampleValue]


DurationSink = Callable[[float, LabelValues], object]
"""Takes an observed duration of a series, in seconds, with its label values. Must not block."""


class _Series(ABC):
    """One series. Thread-safe."""

    @abstractmethod
    def value(self) -> SampleValue:
        """Return the present value."""


class CounterSeries(_Series):
    """A number that only grows."""

    def __init__(self) -> None:
        """Start at 0."""
        self._count = 0
        self._lock = threading.Lock()

    def increment(self) -> None:
        """Add 1."""
        with self._lock:
            self._count += 1

    @override
    def value(self) -> float:
        return self._count


class HistogramSeries(_Series):
    """The number of durations in each bucket."""

    def __init__(self, labels: LabelValues, sinks: list[DurationSink]) -> None:
        """Pass observed values on to *sinks*, too, which may change."""
        self._labels = labels
        self._sinks = sinks
        # What is not in a bucket yet. To append takes no lock, which would be half of the cost.
        self._pending: deque[float] = deque()
        # Written under the lock.
        self._counts = [0] * (len(BOUNDS) + 1)
        self._total = 0.0
        self._lock = threading.Lock()

    def observe(self, seconds: float) -> None:
        """Count a duration."""
        self._pending.append(seconds)
        if len(self._pending) >= _BATCH:
            self.value()
        if self._sinks:
            self._pass_on(seconds)

    @override
    def value(self) -> HistogramValue:
        with self._lock:
            pending = [self._pending.popleft() for _ in range(len(self._pending))]
            for bucket, count in Counter(map(_bucket_of, pending)).items():
                self._counts[bucket] += count
            self._total += sum(pending)
            return HistogramValue(tuple(self._counts), self._total)

    def _pass_on(self, seconds: float) -> None:
        for sink in list(self._sinks):
            try:
                sink(seconds, self._labels)
            except Exception:  # that of a program must not end the operation that is measured
                with suppress(ValueError):  # another thread has removed it
                    self._sinks.remove(sink)
                    log.exception("no further durations are passed on to %r, which raised", sink)


S = TypeVar("S", bound=_Series)


class _SeriesFamily(Generic[S]):
    """Series that are made when they are first used. Thread-safe."""

    def __init__(self, definition: Definition, make: Callable[[LabelValues], S]) -> None:
        """Start without series."""
        self.definition = definition
        self._make = make
        self._series: dict[LabelValues, S] = {}
        self._lock = threading.Lock()

    def series(self, *labels: str) -> S:
        """Return the series with these label values."""
        series = self._series.get(labels)
        if series is None:
            with self._lock:
                series = self._series.setdefault(labels, self._make(labels))
        return series

    def remove(self, first: str) -> None:
        """Forget the series whose first label value is *first*."""
        with self._lock:
            for labels in [labels for labels in self._series if labels[0] == first]:
                del self._series[labels]

    def samples(self) -> dict[LabelValues, SampleValue]:
        """Return the present values, by label values."""
        with self._lock:
            series = list(self._series.items())
        return {labels: one.value() for labels, one in series}


class CounterFamily(_SeriesFamily[CounterSeries]):
    """Counters of one name."""

    def __init__(self, definition: Definition) -> None:
        """Start without series."""
        super().__init__(definition, lambda _: CounterSeries())


class HistogramFamily(_SeriesFamily[HistogramSeries]):
    """Histograms of one name."""

    def __init__(self, definition: Definition) -> None:
        """Start without series."""
        self._sinks: list[DurationSink] = []
        super().__init__(definition, lambda labels: HistogramSeries(labels, self._sinks))

    def add_sink(self, sink: DurationSink) -> None:
        """Pass on values from now on, also those of series to come."""
        self._sinks.append(sink)


class GaugeFamily:
    """Gauges of one name, read when they are asked for."""

    def __init__(
        self, definition: Definition, read: Callable[[], Mapping[LabelValues, float]]
    ) -> None:
        """Let *read* return the present values by label values. Any thread calls it."""
        self.definition = definition
        self.samples: Callable[[], Mapping[LabelValues, float]] = read


Instrument = CounterFamily | HistogramFamily | GaugeFamily
