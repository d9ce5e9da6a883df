"""Clocks of nodes, which rows end by, and the one here, which costs nothing but time."""

import pytest

from kip30 import StoreError
from kip30_backends.cassandra.resources import ClockReading, clock_skew_of
from tests.unit.clients import Open

MARGIN = 1.0


def test_a_node_alone() -> None:
    assert clock_skew_of([ClockReading("one", 0.012, 0.001)], MARGIN) == "this one 12 ms behind"


def test_nodes_that_agree() -> None:
    readings = [ClockReading("one", 0.02, 0.01), ClockReading("two", -0.04, 0.01)]
    assert clock_skew_of(readings, MARGIN) == "nodes 60 ms apart, this one 10 ms ahead"


def test_this_one_is_wrong() -> None:
    told = clock_skew_of([ClockReading("one", 37.2, 0.01), ClockReading("two", 37.2, 0.01)], MARGIN)
    assert told.startswith("nodes 0 ms apart, this one 37.2 s behind")
    assert "NTP" in told


def test_nodes_that_are_further_apart_than_the_margin() -> None:
    readings = [
        ClockReading("one", 0.0, 0.1),
        ClockReading("two", 5.3, 0.1),
        ClockReading("three", 0.1, 0.1),
    ]
    with pytest.raises(StoreError, match=r"at two is 5\.3 s ahead of the one at one.*NTP"):
        clock_skew_of(readings, MARGIN)


def test_clock_skew_within_the_doubt_of_slow_responses_is_accepted() -> None:
    clock_skew_of([ClockReading("one", 0.0, 2.0), ClockReading("two", 5.3, 2.5)], MARGIN)


def test_a_real_node_is_asked(open_client: Open) -> None:
    told = open_client().backend.describe()["clocks"]
    assert told.startswith("this one ")
    assert told.split()[3] == "ms"
