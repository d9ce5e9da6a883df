"""The metrics for ``prometheus_client``, which is imported when a collector is made."""

from collections.abc import Iterator
from importlib import import_module
from typing import Any

from kip30.errors import UnsupportedError
from kip30.metrics.instruments import HistogramValue, MetricFamily
from kip30.metrics.registry import Metrics, families
from kip30.metrics.text_format import number


def collector(*metrics: Metrics) -> Any:
    """Return a ``prometheus_client.registry.Collector`` of the *metrics* of one or more locators.

    Register it: ``prometheus_client.REGISTRY.register(collector(locator.metrics()))``. A registry
    takes one such collector; so pass it all locators of the process, whose samples are combined as
    `text` does it. In a forked child it collects nothing.

    Raises:
        UnsupportedError: ``prometheus_client`` is not installed.
    """
    try:
        registry: Any = import_module("prometheus_client.registry")
        core: Any = import_module("prometheus_client.core")
    except ImportError as error:
        raise UnsupportedError(
            "prometheus_client is not installed: pip install prometheus-client"
        ) from error

    class LocatorCollector(registry.Collector):  # type: ignore[misc]
        """Collects the metrics of kip30."""

        def describe(self) -> Iterator[Any]:
            """Yield the families without samples; the registry compares their names."""
            return (_exported(core, family) for family in families(()))

        def collect(self) -> Iterator[Any]:
            """Yield the families as they are now."""
            return (_exported(core, family) for family in families(metrics))

    return LocatorCollector()


def _exported(core: Any, family: MetricFamily) -> Any:
    definition = family.definition
    make = {
        "counter": core.CounterMetricFamily,
        "gauge": core.GaugeMetricFamily,
        "histogram": core.HistogramMetricFamily,
    }[definition.kind]
    exported = make(definition.name, definition.about, labels=family.labels)
    for labels, value in family.samples.items():
        if isinstance(value, HistogramValue):
            buckets = [(number(bound), count) for bound, count in value.buckets()]
            exported.add_metric(labels, buckets, value.total)
        else:
            exported.add_metric(labels, value)
    return exported
