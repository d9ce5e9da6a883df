"""The metrics of a locator, as exporters read them."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence

from kip30.errors import LifecycleError
from kip30.metrics.definitions import DEFINITIONS
from kip30.metrics.instruments import (
    Definition,
    DurationSink,
    GaugeFamily,
    HistogramFamily,
    HistogramValue,
    Instrument,
    LabelValues,
    MetricFamily,
    SampleValue,
)
from kip30.metrics.text_format import rendered

STORE = "store"
"""The label that all samples have: the name of the backend."""


class Metrics:
    """The metrics of one locator, read whenever they are asked for. Thread-safe.

    Reading sends no request to the store. It takes locks, so it is nothing for a signal handler.
    When the locator is closed, counters and histograms keep their values, and gauges have no
    samples any longer. This does not keep the locator open.
    """

    def __init__(self, store: str, instruments: Iterable[Instrument]) -> None:
        """Use `PluginLocator.metrics` instead."""
        self._store = store
        self._pid = os.getpid()
        self._instruments: Mapping[str, Instrument] = {
            one.definition.name: one for one in instruments
        }

    def text(self) -> str:
        """Return them in the text format of Prometheus, 0.0.4; its type is `CONTENT_TYPE`.

        Raises:
            LifecycleError: This process was forked from that of the locator.
        """
        return text(self)

    def is_foreign(self) -> bool:
        """Return whether this belongs to the parent of this forked process."""
        return os.getpid() != self._pid

    def samples(self, definition: Definition) -> Mapping[LabelValues, SampleValue]:
        """Return the present samples of a family; the name of the store is their first label value.

        There are none in a forked child.
        """
        instrument = self._instruments.get(definition.name)
        if instrument is None or self.is_foreign():
            return {}
        return {(self._store, *labels): value for labels, value in instrument.samples().items()}

    def add_sink(self, definition: Definition, sink: DurationSink) -> None:
        """Pass on to *sink* each value that a histogram observes from now on."""
        instrument = self._instruments[definition.name]
        if isinstance(instrument, HistogramFamily):

            def take(value: float, labels: LabelValues) -> None:
                sink(value, (self._store, *labels))

            instrument.add_sink(take)

    def end(self) -> None:
        """Read no gauge any longer: the locator is closed."""
        self._instruments = {
            name: one for name, one in self._instruments.items() if not isinstance(one, GaugeFamily)
        }


def families(metrics: Sequence[Metrics]) -> Iterator[MetricFamily]:
    """Yield all families of *metrics* together."""
    return (family(one, metrics) for one in DEFINITIONS)


def family(definition: Definition, metrics: Sequence[Metrics]) -> MetricFamily:
    """Return one family of *metrics* together.

    Of counters and histograms with the same label values, the sums are returned; of gauges, what
    `Definition.combined` makes of them.
    """
    together: dict[LabelValues, SampleValue] = {}
    for one in metrics:
        for labels, value in one.samples(definition).items():
            known = together.get(labels)
            together[labels] = value if known is None else _combined(definition, known, value)
    return MetricFamily(definition, (STORE, *definition.labels), together)


def text(*metrics: Metrics) -> str:
    """Return the *metrics* of one or more locators in the text format of Prometheus, 0.0.4.

    Samples of two locators with the same labels are one sample: of counters and histograms the sum,
    of gauges the greatest, except that of ``kip30_lease_remaining_seconds`` the least.

    Raises:
        LifecycleError: This process was forked from that of the locator.
    """
    if any(one.is_foreign() for one in metrics):
        raise LifecycleError("opened before a fork: start a locator in the child")
    return rendered(families(metrics))


def _combined(definition: Definition, one: SampleValue, other: SampleValue) -> SampleValue:
    if isinstance(one, HistogramValue) and isinstance(other, HistogramValue):
        return one.plus(other)
    if isinstance(one, HistogramValue) or isinstance(other, HistogramValue):
        raise TypeError(f"{definition.name} is a histogram in one place only")
    return one + other if definition.kind == "counter" else definition.combined(one, other)
