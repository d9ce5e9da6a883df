"""From the resignation of a leader in one process to the next leader's callback in another."""

import time
from contextlib import ExitStack

from benchmarks.figure import Figure, middle
from benchmarks.processes import Child
from benchmarks.remote.place import Place
from benchmarks.remote.roles import started

ROUNDS = 30


class Pair:
    """Two candidates, in processes of their own, of whom the second waits for the first."""

    def __init__(self, stack: ExitStack, side: str, place: Place) -> None:
        self._leader, self._heir = (_candidate(stack, side, place) for _ in range(2))
        self._leader.say("campaign")
        self._leader.told("elected")

    def handover(self, settle_seconds: float) -> float:
        """Have the leader resign and the other follow; return the milliseconds in between."""
        self._heir.say("campaign")
        self._heir.told("campaigning")
        time.sleep(settle_seconds)
        self._leader.say("resign")
        began = int(self._leader.told("resigned")[1])
        elected = int(self._heir.told("elected")[1])
        self._leader, self._heir = self._heir, self._leader
        return (elected - began) / 1e6


def measure(place: Place) -> list[Figure]:
    with ExitStack() as stack:
        pairs = {side: Pair(stack, side, place) for side in ("library", "raw")}
        rounds = [
            {side: pair.handover(settle_seconds(number)) for side, pair in pairs.items()}
            for number in range(ROUNDS)
        ]
    return _figures({side: tuple(one[side] for one in rounds) for side in pairs})


def settle_seconds(number: int) -> float:
    """Return 50 to 150 ms, so that nothing beats in time with it."""
    return 0.050 + (number * 7919 % 1000) * 1e-4


def _candidate(stack: ExitStack, side: str, place: Place) -> Child:
    return stack.enter_context(started("candidate", side, place))


def _figures(times: dict[str, tuple[float, ...]]) -> list[Figure]:
    name = "resign is called to the next on_elected"
    medians = {side: middle(samples) for side, samples in times.items()}
    return [
        Figure(
            subject="handover",
            name=name,
            value=medians["library"] / medians["raw"],
            unit="x raw",
            at_most=2,
        ),
        *(
            Figure(
                subject="handover",
                name=f"{name}, {side}, median",
                value=medians[side],
                unit="ms",
                samples=samples,
            )
            for side, samples in times.items()
        ),
    ]
