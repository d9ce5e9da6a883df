"""Deadlines, as times of `time.monotonic`, and the share of the time that one server has."""

import time

_LEAST_SECONDS = 0.001
"""Clients treat a timeout of 0 or below as no timeout."""


def seconds_left(until: float) -> float:
    """Return how long there is until then, or a millisecond if that time has passed."""
    return max(_LEAST_SECONDS, until - time.monotonic())


def share(seconds: float, others: int, *, writes: bool = False) -> float:
    """Return how many of *seconds* one server may take, while *others* could be asked after it.

    Not all of them, because it may be silent. A write may take more than a read: it is sent to
    another server only if nothing was done, and most failures of that kind show at once.
    """
    if others <= 0:
        return seconds
    return seconds * 2 / 3 if writes else seconds / (others + 1)
