"""From the resignation of a leader in one process to the next leader's callback in another."""

import time
from contextlib import ExitStack

from benchmarks.processes import Child
from benchmarks.report.figure import Figure
from benchmarks.roles import role
from benchmarks.store_address import StoreAddress
from benchmarks.subjects.observation import Observation

ROUNDS = 30
PAUSE = (0.050, 0.150)
_AT_MOST = 2.0


class CandidatePair:
    """Two candidates, in processes of their own, of whom the second waits for the first."""

    def __init__(self, stack: ExitStack, side: str, address: StoreAddress) -> None:
        self._leader, self._heir = (
            stack.enter_context(role("candidates", side, address, number, 1)) for number in range(2)
        )
        self._numbers: dict[Child, int] = {self._leader: 0, self._heir: 1}
        self._send(self._leader, "campaign")
        self._leader.expect("elected")
        # A raw client's lease outlives its process by minutes, and its key is wanted for locks.
        stack.callback(self._resign)

    def handover(self, settle_seconds: float) -> float:
        """Let the leader resign and the other follow; return the milliseconds in between."""
        self._send(self._heir, "campaign")
        self._heir.expect("campaigning")
        time.sleep(settle_seconds)
        began = self._resign()
        *_, elected = self._heir.expect("elected")
        self._leader, self._heir = self._heir, self._leader
        return (int(elected) - began) / 1e6

    def _resign(self) -> int:
        self._send(self._leader, "resign")
        *_, began = self._leader.expect("resigned")
        return int(began)

    def _send(self, child: Child, verb: str) -> None:
        child.send(f"{verb} {self._numbers[child]}")


def measure(address: StoreAddress) -> list[Figure]:
    observation = Observation.of(address)
    times: dict[str, list[float]] = {side: [] for side in observation.sides}
    with ExitStack() as stack:
        pairs = {side: CandidatePair(stack, side, address) for side in times}
        for number in range(observation.rounds(ROUNDS)):
            for side, pair in pairs.items():
                times[side].append(pair.handover(observation.pause(number, *PAUSE)))
    return observation.figures("resign is called to the next on_elected", times, _AT_MOST)
