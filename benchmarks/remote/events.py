"""From a write in one process to the callback in another."""

import time
from contextlib import ExitStack

from benchmarks.figure import Figure, middle
from benchmarks.processes import Child
from benchmarks.remote.listening import Wire, wire
from benchmarks.remote.place import Place
from benchmarks.remote.roles import END, started

SAMPLES = 150
_SIDES = ("library", "raw")


def measure(place: Place) -> list[Figure]:
    with ExitStack() as stack:
        wires = {side: wire(side, place) for side in _SIDES}
        for one in wires.values():
            one.create()
        children = {side: stack.enter_context(started("listener", side, place)) for side in _SIDES}
        sent = _write(wires, children)
        times = {side: _delays(sent[side], children[side]) for side in _SIDES}
    return _figures(times)


def _write(wires: dict[str, Wire], children: dict[str, Child]) -> dict[str, dict[str, int]]:
    """Write by both in turn; return when each write began."""
    for child in children.values():
        child.told("listening")
    sent: dict[str, dict[str, int]] = {side: {} for side in wires}
    for number in range(SAMPLES):
        for side, one in wires.items():
            time.sleep(_pause(number))
            sent[side][str(number)] = time.monotonic_ns()
            one.write(str(number))
    time.sleep(1)  # lest the end be merged with the last change
    for one in wires.values():
        one.write(END)
    return sent


def _pause(number: int) -> float:
    """Return 10 to 30 ms, so that the listener is idle and nothing beats in time with it."""
    return 0.010 + (number * 7919 % 1000) * 2e-5


def _delays(sent: dict[str, int], child: Child) -> tuple[float, ...]:
    """Return how many milliseconds each write took to be heard of."""
    heard: dict[str, int] = {}
    while END not in heard:
        _, value, moment = child.told("heard")
        heard[value] = int(moment)
    assert not sent.keys() - heard.keys(), "changes were merged: the machine is too busy"
    return tuple((heard[value] - began) / 1e6 for value, began in sent.items())


def _figures(times: dict[str, tuple[float, ...]]) -> list[Figure]:
    name = "write is called to callback"
    medians = {side: middle(samples) for side, samples in times.items()}
    return [
        Figure(
            subject="event",
            name=name,
            value=medians["library"] / medians["raw"],
            unit="x raw",
            at_most=1.5,
        ),
        *(
            Figure(
                subject="event",
                name=f"{name}, {side}, median",
                value=medians[side],
                unit="ms",
                samples=samples,
            )
            for side, samples in times.items()
        ),
    ]
