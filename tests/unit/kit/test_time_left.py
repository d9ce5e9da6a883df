"""No server gets all the time while there are others, and no client a timeout of zero."""

import time

import pytest

from kip30.driver.kit.time_left import seconds_left, share


@pytest.mark.parametrize(
    ("others", "writes", "expected"),
    [(0, False, 6.0), (-1, True, 6.0), (2, False, 2.0), (2, True, 4.0), (1, False, 3.0)],
)
def test_the_share_of_one_server(others: int, *, writes: bool, expected: float) -> None:
    assert share(6.0, others, writes=writes) == expected


def test_a_deadline_that_has_passed_leaves_a_moment() -> None:
    assert 0 < seconds_left(time.monotonic() - 5) < 0.1
    assert 4 < seconds_left(time.monotonic() + 5) <= 5
