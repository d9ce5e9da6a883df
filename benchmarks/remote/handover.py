"""From the resignation of a leader in one process to the next leader's callback in another."""

import time
from contextlib import ExitStack

from benchmarks.processes import Child
from benchmarks.remote.pace import Pace
from benchmarks.remote.roles import started
from benchmarks.report.figure import Figure
from benchmarks.store_address import StoreAddress

ROUNDS = 30
LEAST_PAUSE_SECONDS = 0.050
_AT_MOST = 2.0


class Pair:
    """Two candidates, in processes of their own, of whom the second waits for the first."""

    def __init__(self, stack: ExitStack, side: str, address: StoreAddress) -> None:
        self._leader, self._heir = (_candidate(stack, side, address) for _ in range(2))
        self._leader.say("campaign")
        self._leader.told("elected")

    def handover(self, settle_seconds: float) -> float:
        """Let the leader resign and the other follow; return the milliseconds in between."""
        self._heir.say("campaign")
        self._heir.told("campaigning")
        time.sleep(settle_seconds)
        self._leader.say("resign")
        began = int(self._leader.told("resigned")[1])
        elected = int(self._heir.told("elected")[1])
        self._leader, self._heir = self._heir, self._leader
        return (elected - began) / 1e6


def measure(address: StoreAddress) -> list[Figure]:
    pace = Pace.of(address)
    with ExitStack() as stack:
        pairs = {side: Pair(stack, side, address) for side in pace.sides}
        rounds = [
            {
                side: pair.handover(pace.pause(number, LEAST_PAUSE_SECONDS))
                for side, pair in pairs.items()
            }
            for number in range(pace.rounds(ROUNDS))
        ]
    times = {side: tuple(one[side] for one in rounds) for side in pairs}
    return pace.figures("resign is called to the next on_elected", times, _AT_MOST)


def _candidate(stack: ExitStack, side: str, address: StoreAddress) -> Child:
    return stack.enter_context(started("candidate", side, address))
