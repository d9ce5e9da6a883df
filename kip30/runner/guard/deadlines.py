"""Deadlines of a command, as fractions of the lease timeout T before the lease's deadline.

Renewals are sent every T/3, and the deadline the holder sees is the store's less a margin
(a tenth of T or so). While renewals succeed it is never closer than 2T/3 less the margin; with
one renewal lost, T/3 less the margin, that is 0.23 T, and the runner's copy of it is up to T/20
older: 0.18 T. So the first signal, at T/6, needs two renewals to fail. SIGKILL follows at T/12.
The time left after that, T/12 and the margin, is for the kernel to carry it out. The kernel's own
timer, which fires if the guard itself is stalled, is set to T/24.
"""

from .shared_memory import SharedMemory

TERM_PART = 6
"""The part of T before the lease's deadline in which a command is asked to end."""

_KILL_PART = 12
_SWITCH_PART = 24
_BEATS_PER_TIMEOUT = 20
_SLOWEST_BEAT = 250_000_000
_SLACK = 500_000_000


def term_at(memory: SharedMemory) -> int:
    """Return when the command is asked to end because the lease runs out."""
    return memory.deadline - memory.timeout // TERM_PART


def kill_at(memory: SharedMemory) -> int:
    """Return when the command is killed because the lease runs out."""
    return memory.deadline - memory.timeout // _KILL_PART


def switch_at(memory: SharedMemory) -> int:
    """Return when the kernel kills guard and command if the guard does nothing until then."""
    return memory.deadline - memory.timeout // _SWITCH_PART


def beat_period(memory: SharedMemory) -> int:
    """Return how often the guard beats, and reads the shared memory, at least."""
    return min(memory.timeout // _BEATS_PER_TIMEOUT, _SLOWEST_BEAT)


def beat_limit(memory: SharedMemory) -> int:
    """Return how old the last beat of a guard at work may be."""
    return 2 * beat_period(memory) + _SLACK
