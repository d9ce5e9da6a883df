"""From a write in one process to the callback in another."""

import time
from collections.abc import Mapping
from contextlib import ExitStack

from benchmarks.clients.interfaces import WatchedKey
from benchmarks.clients.opening import watched_key
from benchmarks.processes import Child
from benchmarks.remote.pace import Pace
from benchmarks.remote.roles import END, started
from benchmarks.report.figure import Figure
from benchmarks.store_address import StoreAddress

SAMPLES = 150
_LEAST_PAUSE_SECONDS = 0.010
_AT_MOST = {"consul": 2.0}
_USUALLY = 1.5


def measure(address: StoreAddress) -> list[Figure]:
    pace = Pace.of(address)
    with ExitStack() as stack:
        keys = {side: watched_key(side, address) for side in pace.sides}
        for one in keys.values():
            one.create()
        children = {
            side: stack.enter_context(started("listener", side, address)) for side in pace.sides
        }
        sent = _write(pace, keys, children)
        times = {side: _delays(sent[side], children[side]) for side in pace.sides}
    at_most = _AT_MOST.get(address.store, _USUALLY)
    return pace.figures("write is called to callback", times, at_most)


def _write(
    pace: Pace, keys: Mapping[str, WatchedKey], children: Mapping[str, Child]
) -> dict[str, dict[str, int]]:
    """Write by both in turn; return when each write began."""
    for child in children.values():
        child.told("listening")
    sent: dict[str, dict[str, int]] = {side: {} for side in keys}
    for number in range(pace.rounds(SAMPLES)):
        for side, one in keys.items():
            time.sleep(pace.pause(number, _LEAST_PAUSE_SECONDS))
            sent[side][str(number)] = time.monotonic_ns()
            one.write(str(number))
    time.sleep(1)  # so that the end is not merged with the last change
    for one in keys.values():
        one.write(END)
    return sent


def _delays(sent: dict[str, int], child: Child) -> tuple[float, ...]:
    """Return the milliseconds from each write to its notification."""
    heard: dict[str, int] = {}
    while END not in heard:
        _, value, moment = child.told("heard")
        heard[value] = int(moment)
    assert not sent.keys() - heard.keys(), "changes were merged: the machine is too busy"
    return tuple((heard[value] - began) / 1e6 for value, began in sent.items())
