"""Clocks of nodes, which rows end by, and the one here, which costs nothing but time."""

import pytest

from kip30 import StoreError
from kip30_backends.cassandra.engine import Reading, judge
from tests.unit.clients import Open

MARGIN = 1.0


def test_a_node_alone() -> None:
    assert judge([Reading("one", 0.012, 0.001)], MARGIN) == "this one 12 ms behind"


def test_nodes_that_agree() -> None:
    readings = [Reading("one", 0.02, 0.01), Reading("two", -0.04, 0.01)]
    assert judge(readings, MARGIN) == "nodes 60 ms apart, this one 10 ms ahead"


def test_this_one_is_wrong() -> None:
    told = judge([Reading("one", 37.2, 0.01), Reading("two", 37.2, 0.01)], MARGIN)
    assert told.startswith("nodes 0 ms apart, this one 37.2 s behind")
    assert "NTP" in told


def test_nodes_that_are_further_apart_than_the_margin() -> None:
    readings = [Reading("one", 0.0, 0.1), Reading("two", 5.3, 0.1), Reading("three", 0.1, 0.1)]
    with pytest.raises(StoreError, match=r"at two is 5\.3 s ahead of the one at one.*NTP"):
        judge(readings, MARGIN)


def test_slow_answers_convict_nobody() -> None:
    judge([Reading("one", 0.0, 2.0), Reading("two", 5.3, 2.5)], MARGIN)


def test_a_real_node_is_asked(open_client: Open) -> None:
    told = open_client().backend.describe()["clocks"]
    assert told.startswith("this one ")
    assert told.split()[3] == "ms"
