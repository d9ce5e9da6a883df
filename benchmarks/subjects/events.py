"""From a write in one process to the callback in another."""

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from typing import NamedTuple

from benchmarks.clients.interfaces import WatchedKey
from benchmarks.clients.opening import watched_key
from benchmarks.processes import Child
from benchmarks.report.figure import Figure
from benchmarks.roles import END, role
from benchmarks.store_address import StoreAddress
from benchmarks.subjects.observation import Observation

_SAMPLES = 150
_SAMPLES_EMBEDDED = 600
_NAME = "write is called to callback"
_PAUSE = (0.010, 0.030)
_PAUSE_EMBEDDED = (0.010, 0.060)
_AT_MOST = {"consul": 2.0}
_USUALLY = 1.5


class Written(NamedTuple):
    """When a write began and returned, in nanoseconds."""

    began: int
    returned: int


def measure(address: StoreAddress) -> list[Figure]:
    observation = Observation.of(address)
    with ExitStack() as stack:
        keys = {
            side: stack.enter_context(closing(watched_key(side, address)))
            for side in observation.sides
        }
        for one in keys.values():
            one.create()
        listeners = {side: stack.enter_context(role("listener", side, address)) for side in keys}
        for child in listeners.values():
            child.expect("listening")
        written = _write(address, observation, keys)
        heard = {side: _heard(child, written[side]) for side, child in listeners.items()}
    asked = {
        side: [(moments[value] - one.began) / 1e6 for value, one in written[side].items()]
        for side, moments in heard.items()
    }
    if not address.is_embedded:
        return observation.figures(_NAME, asked, _AT_MOST.get(address.store, _USUALLY))
    answered = [
        (heard["library"][value] - one.returned) / 1e6 for value, one in written["library"].items()
    ]
    return _figures_of_embedded(asked["library"], answered)


def _figures_of_embedded(asked: Sequence[float], answered: Sequence[float]) -> list[Figure]:
    return [
        Figure.median(f"{_NAME}, median", asked, "ms", at_most=1),
        Figure.percentile(f"{_NAME}, p99", asked, "ms", 99, at_most=20),
        Figure.median("write has returned to callback, median", answered, "ms"),
    ]


def _write(
    address: StoreAddress, observation: Observation, keys: Mapping[str, WatchedKey]
) -> dict[str, dict[str, Written]]:
    """Write by all sides in turn."""
    embedded = address.is_embedded
    samples = observation.rounds(_SAMPLES_EMBEDDED if embedded else _SAMPLES)
    least, most = _PAUSE_EMBEDDED if embedded else _PAUSE
    written: dict[str, dict[str, Written]] = {side: {} for side in keys}
    for number in range(samples):
        for side, one in keys.items():
            time.sleep(observation.pause(number, least, most))
            began = time.monotonic_ns()
            one.write(str(number))
            written[side][str(number)] = Written(began, time.monotonic_ns())
    time.sleep(1)  # so that the end is not merged with the last change
    for one in keys.values():
        one.write(END)
    return written


def _heard(child: Child, written: Mapping[str, Written]) -> dict[str, int]:
    """Return when each value was heard."""
    heard: dict[str, int] = {}
    while END not in heard:
        _, value, moment = child.expect("heard")
        heard[value] = int(moment)
    assert not written.keys() - heard.keys(), "changes were merged: the machine is too busy"
    return heard
