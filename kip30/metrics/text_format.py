"""The text format of Prometheus, version 0.0.4.

See https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format.
"""

from collections.abc import Iterable, Iterator, Mapping
from math import inf

from kip30.metrics.instruments import HistogramValue, MetricFamily

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""The value of the header ``Content-Type`` of a response with `text`."""

_HELP_ESCAPES = {ord("\\"): r"\\", ord("\n"): r"\n"}
_VALUE_ESCAPES = {**_HELP_ESCAPES, ord('"'): r"\""}


def rendered(families: Iterable[MetricFamily]) -> str:
    """Return *families* as text, each line with its end."""
    return "".join(f"{line}\n" for family in families for line in _lines(family))


def _lines(family: MetricFamily) -> Iterator[str]:
    name, kind, about = family.definition[:3]
    yield f"# HELP {name} {about.translate(_HELP_ESCAPES)}"
    yield f"# TYPE {name} {kind}"
    for values, value in family.samples.items():
        labels = dict(zip(family.labels, values, strict=True))
        if isinstance(value, HistogramValue):
            yield from _histogram_lines(name, labels, value)
        else:
            yield _line(name, labels, value)


def _histogram_lines(name: str, labels: Mapping[str, str], value: HistogramValue) -> Iterator[str]:
    count = 0
    for bound, count in value.buckets():
        yield _line(f"{name}_bucket", {**labels, "le": number(bound)}, count)
    yield _line(f"{name}_sum", labels, value.total)
    yield _line(f"{name}_count", labels, count)


def _line(name: str, labels: Mapping[str, str], value: float) -> str:
    pairs = (f'{label}="{text.translate(_VALUE_ESCAPES)}"' for label, text in labels.items())
    return f"{name}{{{','.join(pairs)}}} {number(value)}"


def number(value: float) -> str:
    """Return *value* as Prometheus reads it."""
    if value != value:  # noqa: PLR0124  only NaN differs from itself
        return "NaN"
    if value in {inf, -inf}:
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)
