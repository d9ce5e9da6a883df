"""Probes that are called too seldom, because the process stands still."""

import time

import pytest

from kip30_conformance.polling import eventually, throughout

pytestmark = pytest.mark.small

STALL_SECONDS = 0.1
SHORT_SECONDS = 0.001
"""At any time scale it is over before the stall."""


def test_a_result_that_came_during_a_stall_is_seen() -> None:
    calls = list[float]()

    def probe() -> bool:
        calls.append(time.monotonic())
        if len(calls) == 1:
            time.sleep(STALL_SECONDS)  # the stall itself
        return len(calls) > 1

    assert eventually(probe, within=SHORT_SECONDS)


def test_a_result_that_never_comes_is_an_error() -> None:
    with pytest.raises(AssertionError, match=r"not within 0.001 s: it comes: False"):
        eventually(lambda: False, within=SHORT_SECONDS, what="it comes")


def test_no_probe_is_no_pass() -> None:
    """The time may be over before the first one."""
    with pytest.raises(AssertionError, match="did not hold"):
        throughout(lambda: False, seconds=0.0)
