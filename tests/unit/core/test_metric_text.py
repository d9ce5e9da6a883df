"""Instruments, and the text format of Prometheus, read back by a strict parser."""

import math
import threading
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip30.metrics import Metrics, definitions, text
from kip30.metrics.instruments import (
    BOUNDS,
    CounterFamily,
    Definition,
    GaugeFamily,
    HistogramFamily,
    HistogramValue,
    LabelValues,
    MetricFamily,
)
from kip30.metrics.text_format import number, rendered
from kip30_conformance.clients.metric_samples import parsed
from kip30_conformance.hypothesis_settings import searching

LABELS = st.text(st.characters(codec="utf-8"), max_size=20)
HOSTILE = ["\\", '"', "\n", '\\"\n', "\\n", "a\tb", "\u202e", "\r", "\x1b[0m", ""]
OPERATION = "kip30_operation_duration_seconds"


def _gauges(values: dict[str, float]) -> Metrics:
    """Return metrics with the number of members of each group."""
    samples: dict[LabelValues, float] = {(group,): value for group, value in values.items()}
    return Metrics("toy", [GaugeFamily(definitions.MEMBERS, lambda: samples)])


def _durations(*seconds: float) -> tuple[Metrics, HistogramFamily]:
    family = HistogramFamily(definitions.OPERATION_DURATION)
    for one in seconds:
        family.series("get", "ok").observe(one)
    return Metrics("toy", [family]), family


@searching
@given(values=st.dictionaries(LABELS, st.floats()))
def test_any_label_and_any_number_is_read_back(values: dict[str, float]) -> None:
    found = parsed(_gauges(values).text())["kip30_members"].values["kip30_members"]
    expected = {frozenset({("store", "toy"), ("group", one)}): values[one] for one in values}
    assert found == pytest.approx(expected, rel=0, abs=0, nan_ok=True)


@pytest.mark.parametrize("group", HOSTILE)
def test_each_label_that_the_format_escapes_is_read_back(group: str) -> None:
    assert parsed(_gauges({group: 7}).text())["kip30_members"].value(group=group) == 7


def test_the_escapes_are_those_of_the_format() -> None:
    assert 'group="a\\\\b\\"c\\nd"} 1' in _gauges({'a\\b"c\nd': 1}).text()


@pytest.mark.parametrize(
    ("value", "written"),
    [(math.nan, "NaN"), (math.inf, "+Inf"), (-math.inf, "-Inf"), (3, "3"), (1e-7, "1e-07")],
)
def test_numbers_are_written_as_prometheus_reads_them(value: float, written: str) -> None:
    assert number(value) == written


def test_a_help_of_several_lines_is_one_line() -> None:
    family = MetricFamily(Definition("n", "gauge", "a\\b\nc"), (), {})
    assert rendered([family]) == "# HELP n a\\\\b\\nc\n# TYPE n gauge\n"


@searching
@given(seconds=st.lists(st.floats(min_value=0, allow_nan=False) | st.sampled_from(BOUNDS)))
def test_buckets_are_cumulative(seconds: list[float]) -> None:
    metrics, _ = _durations(*seconds)
    found = parsed(metrics.text())[OPERATION]  # which checks that they are in order
    for bound in (*BOUNDS, math.inf):
        within = sum(one <= bound for one in seconds)
        assert found.value("_bucket", le=number(bound)) == within
    if seconds:
        assert found.value("_count", operation="get") == len(seconds)
        assert found.value("_sum", operation="get") == pytest.approx(sum(seconds))


def test_a_family_without_samples_is_described() -> None:
    found = parsed(Metrics("toy", []).text())
    assert set(found) == {one.name for one in definitions.DEFINITIONS}
    assert not any(one.label_names() for one in found.values())


def test_two_locators_are_shown_as_one() -> None:
    first, counted = _durations(0.001, 0.3)
    counted.series("put", "ok").observe(1)
    second, _ = _durations(0.002)
    lost = CounterFamily(definitions.SESSIONS_LOST)
    lost.series("late").increment()
    leases = [
        Metrics("toy", [lost, GaugeFamily(definitions.LEASE_REMAINING, left.copy)])
        for left in (dict[LabelValues, float]({(): 5.0}), dict[LabelValues, float]({(): 3.0}))
    ]
    found = parsed(text(first, second, *leases, _gauges({"g": 2}), _gauges({"g": 5})))
    assert found[OPERATION].value("_count", operation="get") == 3
    assert found[OPERATION].value("_sum", operation="get") == pytest.approx(0.303)
    assert found[OPERATION].value("_count", operation="put") == 1
    assert found["kip30_sessions_lost_total"].value(reason="late") == 2
    assert found["kip30_lease_remaining_seconds"].value() == 3
    assert found["kip30_members"].value(group="g") == 5


def _counting(family: HistogramFamily, counters: CounterFamily, times: int) -> Callable[[], None]:
    def count() -> None:
        for _ in range(times):
            family.series("get", "ok").observe(0.01)
            counters.series("late").increment()

    return count


def test_nothing_is_lost_among_threads() -> None:
    metrics, family = _durations()
    counters = CounterFamily(definitions.SESSIONS_LOST)
    threads = [threading.Thread(target=_counting(family, counters, 2000)) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        assert parsed(metrics.text())[OPERATION].value("_count") <= 8000
    for thread in threads:
        thread.join()
    assert family.samples()["get", "ok"] == HistogramValue(
        tuple(8000 if bound == 0.01 else 0 for bound in (*BOUNDS, math.inf)),
        pytest.approx(80),  # type: ignore[arg-type]
    )
    assert counters.samples() == {("late",): 8000}


def test_a_record_that_raises_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    metrics, family = _durations()
    heard: list[tuple[float, LabelValues]] = []

    def fail(_value: float, _labels: LabelValues) -> None:
        raise ValueError("no meter")

    metrics.add_sink(definitions.OPERATION_DURATION, fail)
    metrics.add_sink(definitions.OPERATION_DURATION, lambda *given: heard.append(given))
    for _ in range(3):
        family.series("get", "ok").observe(0.5)
    assert heard == [(0.5, ("toy", "get", "ok"))] * 3
    assert [one.levelname for one in caplog.records] == ["ERROR"]


@pytest.mark.parametrize(
    "wrong",
    [
        "# TYPE a gauge\na 1",
        '# TYPE a gauge\na{b="1"} 1\na{b="1"} 2\n',
        "# TYPE a gauge\n# TYPE a gauge\n",
        '# TYPE a gauge\na{b="\n"} 1\n',
        '# TYPE a gauge\na{b="\\t"} 1\n',
        '# TYPE a gauge\na{b="c"d"} 1\n',
        "# TYPE a gauge\na one\n",
        "# TYPE a gauge\na inf\n",
        '# TYPE a gauge\na{b="1",b="1"} 2\n',
        '# TYPE a histogram\na_bucket{le="1"} 2\na_bucket{le="+Inf"} 1\na_sum 1\na_count 1\n',
        '# TYPE a histogram\na_bucket{le="1"} 1\na_sum 1\na_count 1\n',
        '# TYPE a histogram\na_bucket{le="+Inf"} 1\na_sum 1\na_count 2\n',
    ],
)  # fmt: skip
def test_the_parser_is_strict(wrong: str) -> None:
    with pytest.raises((AssertionError, KeyError)):
        parsed(wrong)
