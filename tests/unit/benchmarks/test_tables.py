"""The tables of the page, from figures of several stores."""

import re
from typing import Any

from benchmarks.report.figure import Figure
from benchmarks.report.results import Results
from benchmarks.report.tables import fill, parts
from benchmarks.store_address import STORES
from benchmarks.subjects import BESIDE


def _figure(name: str, value: float, unit: str, **bounds: Any) -> Figure:
    return Figure(name=name, value=value, unit=unit, **bounds)


def _of(store: str, *figures: Figure, subject: str = "speed") -> Results:
    return Results(store, subject, (0.5, 1.25), figures)


def test_the_overview_has_a_table_for_each_unit() -> None:
    results = [
        _of("etcd", _figure("get", 0.9, "x raw", at_least=0.8), _figure("get, one call", 3, "us")),
        _of("consul", _figure("get", 0.7, "x raw", at_least=0.8), _figure("join", 1, "x raw")),
        _of("embedded", _figure("get, one call", 1500, "us")),
    ]
    assert parts(results)["overview"].splitlines() == [
        "| x raw | etcd | consul |",
        "| --- | --- | --- |",
        "| get | 0.9 (>= 0.8) | **0.7** (>= 0.8) |",
        "",
        "| us | embedded | etcd |",
        "| --- | --- | --- |",
        "| get, one call | 1,500 | 3 |",
    ]


def test_a_figure_of_one_store_alone_stands_apart() -> None:
    shown = parts([_of("etcd", _figure("looks", 3, "reads/s", at_most=2))])
    assert "| etcd | speed: looks | **3 reads/s** | <= 2 |" in shown["one store alone"]
    assert shown["overview"] == ""


def test_the_library_beside_has_a_table_also_if_it_is_on_one_store() -> None:
    shown = parts([_of("etcd", _figure("join: Tooz", 3, "ms"), subject=BESIDE)])
    assert "| join: Tooz | 3 |" in shown["beside Tooz"]
    assert "| etcd |" not in shown["one store alone"]


def test_the_load_is_a_list_of_stores() -> None:
    shown = parts([_of("etcd"), _of("etcd", subject="event"), _of("consul")])
    assert shown["load"] == "* etcd: speed 0.5-1.2, event 0.5-1.2\n* consul: speed 0.5-1.2\n"


def test_no_line_is_long() -> None:
    names = ["resign is called to the next on_elected, raw, median", "write is called to callback"]
    figures = [_figure(name, 123456, "x declared bound, worst", at_most=1.25) for name in names]
    subjects = [f"subject-{number}" for number in range(12)]
    results = [_of(store, *figures, subject=one) for store in STORES for one in subjects]
    lines = [line for part in parts(results).values() for line in part.splitlines()]
    assert max(map(len, lines)) <= 120


def test_a_page_is_filled_between_its_marks() -> None:
    page = "a\n<!-- load -->\nold\n<!-- end of load -->\nb\n"
    filled = fill(page, {"load": "new\n"})
    assert filled == re.sub("old", "new", page)
    assert fill(filled, {"load": "new\n"}) == filled
