"""The metrics for OpenTelemetry, of which only the API is used, and imported when it is needed."""

from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import Any

from kip30.errors import UnsupportedError
from kip30.metrics.definitions import DEFINITIONS
from kip30.metrics.instruments import BOUNDS, Definition, HistogramValue, LabelValues
from kip30.metrics.registry import STORE, Metrics, family

_UNIT = "_seconds"


def observe(meter: Any, *metrics: Metrics) -> None:
    """Let *meter*, an ``opentelemetry.metrics.Meter``, observe the metrics of one or more locators.

    Names are those of the text format with dots for underscores, and without ``_total`` and
    ``_seconds``, the latter being the unit. Counters and gauges are read when they are collected.
    Durations are recorded when they are measured, beginning with this call: so call it directly
    after the startup, and once. In a forked child nothing is collected.

    Raises:
        UnsupportedError: The API of OpenTelemetry is not installed.
    """
    try:
        observation = import_module("opentelemetry.metrics").Observation
    except ImportError as error:
        raise UnsupportedError(
            "the API of OpenTelemetry is not installed: pip install opentelemetry-api"
        ) from error
    for definition in DEFINITIONS:
        about = definition.about
        named = {"name": name_of(definition), "unit": unit_of(definition), "description": about}
        if definition.kind == "histogram":
            _pass_on(definition, metrics, _histogram(meter, named))
            continue
        make = {
            "counter": meter.create_observable_counter,
            "gauge": meter.create_observable_gauge,
        }[definition.kind]
        make(callbacks=[partial(_observed, definition, metrics, observation)], **named)


def name_of(definition: Definition) -> str:
    """Return the name of a family in OpenTelemetry."""
    return definition.name.removesuffix("_total").removesuffix(_UNIT).replace("_", ".")


def unit_of(definition: Definition) -> str:
    """Return the unit of a family: seconds, or empty."""
    return "s" if definition.name.endswith(_UNIT) else ""


def _histogram(meter: Any, named: dict[str, str]) -> Any:
    bounds = {"explicit_bucket_boundaries_advisory": BOUNDS}
    try:
        return meter.create_histogram(**named, **bounds)
    except TypeError:  # of an API before 1.30, whose buckets a view of the application sets
        return meter.create_histogram(**named)


def _pass_on(definition: Definition, metrics: Sequence[Metrics], histogram: Any) -> None:
    def record(value: float, labels: LabelValues) -> None:
        histogram.record(value, _attributes(definition, labels))

    for one in metrics:
        one.add_sink(definition, record)


def _observed(
    definition: Definition,
    metrics: Sequence[Metrics],
    observation: Callable[..., Any],
    _options: object,
) -> list[Any]:
    return [
        observation(value, _attributes(definition, labels))
        for labels, value in family(definition, metrics).samples.items()
        if not isinstance(value, HistogramValue)
    ]


def _attributes(definition: Definition, labels: LabelValues) -> dict[str, str]:
    return dict(zip((STORE, *definition.labels), labels, strict=True))
