"""The exponent, the targets and the table of growth, which no store is needed for."""

from threading import Barrier, BrokenBarrierError

import pytest

from benchmarks.growth.costs import MISSED, exponent, named, ratios, split
from benchmarks.growth.table import tables
from benchmarks.growth.targets import Bound, judged
from benchmarks.growth.threads import timed
from benchmarks.process_use import calls, segments
from benchmarks.report.figure import Figure
from benchmarks.report.results import Results
from benchmarks.store_address import STORES
from benchmarks.subjects import GROWTH

SOCKETS = """\
ESTAB 0 0 127.0.0.1:1 127.0.0.1:2 users:(("python",pid=12,fd=3)) cubic data_segs_out:7 lost:1
ESTAB 0 0 127.0.0.1:3 127.0.0.1:2 users:(("python",pid=123,fd=3)) cubic data_segs_out:90
ESTAB 0 0 127.0.0.1:4 127.0.0.1:2 users:(("python",pid=12,fd=4)) cubic segs_out:5 data_segs_out:2
"""


METRICS = """\
# TYPE grpc_server_started_total counter
grpc_server_started_total{grpc_method="LeaseKeepAlive",grpc_type="bidi_stream"} 12
grpc_server_started_total{grpc_method="Range",grpc_type="unary"} 1.5e+06
grpc_server_handled_total{grpc_method="Range",grpc_type="unary"} 3
"""


def _figures(row: str, **values: float) -> list[Figure]:
    sizes = {int(size[1:]): value for size, value in values.items()}
    return [Figure(name=named(row, size), value=value, unit="ms") for size, value in sizes.items()]


def test_the_exponent_is_between_the_two_largest_sizes() -> None:
    assert exponent({10: 50.0, 1_000: 2.0, 10_000: 200.0}) == pytest.approx(2.0)
    assert exponent({10_000: 4.0, 1_000: 4.0}) == pytest.approx(0.0)


@pytest.mark.parametrize("costs", [{}, {10: 1.0}, {10: 0.0, 100: 1.0}, {10: 1.0, 100: 0.0}])
def test_there_is_no_exponent_of_too_little(costs: dict[int, float]) -> None:
    assert exponent(costs) is None


def test_names_have_a_row_and_a_size() -> None:
    assert split(named("list", 10_000)) == ("list", 10_000)
    assert split("list: 10,000 over 100") == ("list: 10,000 over 100", None)


def test_a_bound_is_of_one_size() -> None:
    bounds = {"list": Bound(("etcd",), 1_000, at_most=3)}
    figures = judged("etcd", _figures("list", n100=9, n1000=4), bounds)
    assert [one.met for one in figures] == [None, False]
    assert [one.met for one in judged("consul", figures[:1], bounds)] == [None]


def test_a_store_with_fewer_sizes_is_judged_by_its_largest() -> None:
    bounds = {"list": Bound(("cassandra",), 10_000, at_most=3)}
    figures = judged("cassandra", _figures("list", n100=9, n1000=4), bounds)
    assert [one.met for one in figures] == [None, False]


def test_an_error_in_a_thread_fails_the_measurement() -> None:
    def run(one: int, ready: Barrier) -> None:
        if one:
            raise OSError("refused")
        ready.wait()

    with pytest.raises((OSError, BrokenBarrierError)):
        timed(3, run)


def test_a_bound_with_a_base_is_of_the_ratio() -> None:
    bounds = {"event": Bound(("etcd",), 1_000, at_most=2, base=100)}
    *_, ratio = judged("etcd", _figures("event", n100=2, n1000=3), bounds)
    assert (ratio.name, ratio.value, ratio.met) == ("event: 1,000 over 100", 1.5, True)


def test_the_table_has_sizes_exponents_and_what_was_not_done() -> None:
    late = Figure(name=named("list", 10_000), value=60, unit=MISSED)
    figures = [*_figures("list", n100=1, n1000=10), late]
    lines = tables([Results("etcd", GROWTH, (0, 0), figures)]).splitlines()
    assert lines[0] == "| list | 100 | 1,000 | 10,000 | exponent |"
    assert lines[2] == "| etcd | 1 ms | 10 ms | over 60 s | 1.00 |"


def test_each_cost_has_a_table_with_a_row_for_each_store() -> None:
    bounds = {"event": Bound(("etcd",), 1_000, at_most=1.2, base=100)}
    results = [
        Results("etcd", GROWTH, (0, 0), judged("etcd", _figures("event", n100=2, n1000=3), bounds)),
        Results("embedded", GROWTH, (0, 0), _figures("event", n100=1)),
    ]
    costs, ratios_ = tables(results).split("\n\n")
    assert [line.split(" | ")[0] for line in costs.splitlines()] == [
        "| event",
        "| ---",
        "| embedded",
        "| etcd",
    ]
    assert ratios_.splitlines()[::2] == [
        "| event: 1,000 over 100 | all sizes | target |",
        "| etcd | **1.5 x** | <= 1.2 |",
    ]


def test_no_line_of_the_table_is_long_with_all_stores_and_sizes() -> None:
    cost = "put or delete: CPU over that of reading all"
    values = {f"n{size}": 123_456.7 for size in (1, 8, 10, 20, 64, 100, 1_000, 2_500, 10_000)}
    results = [Results(store, GROWTH, (0, 0), _figures(cost, **values)) for store in STORES]
    lines = tables(results).splitlines()
    assert max(map(len, lines)) <= 120
    assert all(sum(line.startswith(f"| {store} |") for line in lines) > 1 for store in STORES)


def test_segments_of_other_processes_do_not_count() -> None:
    assert segments(SOCKETS, 12) == 9


def test_the_drawing_has_costs_of_the_largest_size_over_those_of_a_small_one() -> None:
    figures = [
        *_figures("join", n10=9, n100=2, n1000=3),
        *_figures("list: over raw", n100=1, n1000=9),  # a ratio is no cost
        *_figures("threads", n8=1, n64=2),  # no size that is large
    ]
    assert ratios([Results("etcd", GROWTH, (0, 0), figures)]) == {"join": {"etcd": 1.5}}


def test_the_calls_that_an_etcd_server_tells_of() -> None:
    assert calls(METRICS) == {"LeaseKeepAlive": 12, "Range": 1_500_000}
