"""The times of a storm, all of them derived from the session timeout."""

from collections.abc import Mapping
from dataclasses import dataclass

from kip30_conformance.polling import time_scale

# All times of a storm are scaled alike, also if the machine becomes slower.
_SCALE = time_scale()


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """The times of a storm, in seconds.

    Attributes:
        session: The session timeout of every client.
        operation: The operation timeout of every client.
        pause_factor: How many times as long as usual the clients pause between their calls, so that
            the servers keep up with them.
        slice: How long a set of keys is worked on before a new one takes its place, so that the
            history of each key stays short enough to be judged.
        look: The length of the end of a calm window, in which all must work.
        look_up: How long a leader may need to see a change after its notification.
        busy: How much longer than its limit a call may take because the machine is busy.
    """

    session: float = 3.0
    operation: float = 2.0
    pause_factor: float = 1.0
    slice: float = 5.0
    look: float = 3.0
    look_up: float = 0.3 * _SCALE
    busy: float = 0.5 * _SCALE

    @property
    def limit(self) -> float:
        """The time within which every call must end: the operation timeout and a tenth of it."""
        return 1.1 * self.operation

    @property
    def grace(self) -> float:
        """The time after the end of a fault within which all must work again."""
        return self.session + 3.0 * _SCALE

    @property
    def calm(self) -> float:
        """The length of the pause between two faults."""
        return self.grace + self.look

    def properties(self) -> dict[str, str]:
        """Return the timeouts as settings of a client."""
        return {
            "plugin.session.timeout.ms": str(round(self.session * 1000)),
            "plugin.operation.timeout.ms": str(round(self.operation * 1000)),
        }


_TIMINGS: Mapping[str, Timing] = {"cassandra": Timing(session=6.0, operation=4.0, pause_factor=3.0)}
"""Each conditional write and serial read of Cassandra is a round of Paxos among all nodes. With
three nodes on two processors, the usual work of a storm (some 270 calls a second) makes many of
them last longer than a second; nodes that had been killed did not keep up for half a minute."""


def timing_of(server: str) -> Timing:
    """Return the times of a storm on *server*."""
    return _TIMINGS.get(server, Timing())
