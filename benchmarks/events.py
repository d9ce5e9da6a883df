"""From a commit in one process to the callback in another."""

import time

from benchmarks.processes import Child, role
from benchmarks.report.figure import Figure
from benchmarks.roles import END
from benchmarks.store_address import StoreAddress

SAMPLES = 600
KEY = "bench/watched"


def measure(address: StoreAddress) -> list[Figure]:
    with role("listener", address, KEY) as listener:
        sent = _update(address, listener)
        heard = _heard(listener)
    assert not sent.keys() - heard.keys(), "changes were merged: the machine is too busy"
    asked = tuple((heard[name] - moments[0]) / 1e6 for name, moments in sent.items())
    answered = tuple((heard[name] - moments[1]) / 1e6 for name, moments in sent.items())
    return [
        Figure.median("write is called to callback, median", asked, "ms", at_most=1),
        Figure.percentile("write is called to callback, p99", asked, "ms", 99, at_most=20),
        Figure.median("write has returned to callback, median", answered, "ms"),
    ]


def _update(address: StoreAddress, listener: Child) -> dict[str, tuple[int, int]]:
    """Return when each update began and returned."""
    sent: dict[str, tuple[int, int]] = {}
    with address.open() as locator:
        storage = locator.storage()
        storage.put(KEY, "")
        listener.line()
        for number in range(SAMPLES):
            time.sleep(_pause(number))
            began = time.monotonic_ns()
            storage.update(KEY, str(number))
            sent[str(number)] = began, time.monotonic_ns()
        time.sleep(1)  # so that the end is not merged with the last change
        storage.update(KEY, END)
    return sent


def _pause(number: int) -> float:
    """Return 10 to 60 ms, so that the listener is idle and nothing beats in time with it."""
    return 0.010 + (number * 7919 % 1000) * 5e-5


def _heard(listener: Child) -> dict[str, int]:
    heard: dict[str, int] = {}
    while END not in heard:
        value, moment = listener.line().text.split()
        heard[value] = int(moment)
    return heard
