"""No second has more than 1.1 times the rate, by a test's own clock and by the real one."""

import math
import threading

import pytest
from typing_extensions import override

from kip30 import PluginLocator, UsageError
from kip30.driver.clock import Clock, SystemClock
from kip30.pipeline.write.applier import Applier, NewRecord, WriteOutcome
from kip30.pipeline.write.rate_limit import RateLimit, sharers

from .requests import Requests


class Stepping(Clock):
    """Moves when a thread waits, by as much."""

    def __init__(self) -> None:
        self.moment = 50.0

    @override
    def now(self) -> float:
        return self.moment

    @override
    def wait(self, condition: threading.Condition, timeout: float | None) -> None:
        assert timeout is not None
        self.moment += timeout


def most_in_a_second(times: list[float]) -> int:
    """Return the greatest number of *times*, in their order, within less than a second."""
    most = first = 0
    for last, moment in enumerate(times):
        while times[first] <= moment - 1:
            first += 1
        most = max(most, last - first + 1)
    return most


@pytest.mark.parametrize("rate", [0.3, 1, 3, 10, 99.5, 1000, 40_000])
@pytest.mark.parametrize("pause", [0.0, 3.0])
def test_no_second_has_more(rate: float, pause: float) -> None:
    clock = Stepping()
    limit = RateLimit(rate, clock)
    times: list[float] = []
    begun = clock.now()
    wanted = math.ceil(3 * rate) + 2
    while len(times) < wanted:
        granted = limit.take(wanted - len(times))
        times += [clock.now()] * granted
        if len(times) == wanted // 2:
            clock.moment += pause
    assert most_in_a_second(times) <= max(1.1 * rate, math.ceil(rate))
    assert clock.now() - begun - pause <= wanted / rate + 0.01


@pytest.mark.case("P15")
@pytest.mark.parametrize("slots", [1, 2, 4, 64])
@pytest.mark.parametrize("rate", [0.5, 2, 10, 30, 99.5, 200, 40_000])
@pytest.mark.parametrize("each", [1, 7, 1_000_000])
def test_no_second_of_all_tasks_has_more(slots: int, rate: float, each: int) -> None:
    """P15: tasks begin together, and each is followed by others after *each* writes."""
    tasks = sharers(rate, slots)
    wanted = math.ceil(3 * rate / tasks) + 2
    times: list[float] = []
    for _ in range(tasks):
        clock = Stepping()
        done = 0
        while done < wanted:
            limit, left = RateLimit(rate / tasks, clock), min(each, wanted - done)
            done += left
            while left > 0:
                granted = limit.take(left)
                times += [clock.now()] * granted
                left -= granted
    times.sort()
    assert most_in_a_second(times) <= max(1.1 * rate, math.ceil(rate))
    assert times[-1] - 50.0 <= len(times) / rate + 0.01


def test_it_grants_no_more_than_is_wanted() -> None:
    assert RateLimit(1000, Stepping()).take(3) == 3


@pytest.mark.parametrize("rate", [0, -1, math.inf, math.nan])
def test_a_rate_is_a_number_above_zero(client: PluginLocator, rate: float) -> None:
    with pytest.raises(UsageError, match="rate"):
        Applier(client.backend, "r", seconds=1, rate=rate)


@pytest.mark.case("P15")
def test_an_applier_keeps_its_rate(client: PluginLocator, requests: Requests) -> None:
    records = [NewRecord(f"k/{number}", b"", "1") for number in range(600)]
    clock = SystemClock()
    begun = clock.now()
    applied = Applier(client.backend, "r", seconds=10, rate=400).create(records)
    assert {one.outcome for one in applied} == {WriteOutcome.WRITTEN}
    assert most_in_a_second(requests.times) <= 1.1 * 400
    assert clock.now() - begun >= (600 - 1.1 * 400) / 400


def test_existing_records_take_no_share_of_the_rate(
    client: PluginLocator, requests: Requests
) -> None:
    records = [NewRecord(f"k/{number}", b"", "1") for number in range(100)]
    Applier(client.backend, "r", seconds=10).create(records)
    writer = Applier(client.backend, "r", seconds=10, rate=50)
    writer.create(records[:1])
    requests.counted()
    writer.create(records)
    assert requests.counted() == ([100], [])
