"""The findings after a number of deletions, and the verdict on all of them."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, NamedTuple

from benchmarks.report import machine

MOST_GROWTH = 1.5
"""The greatest ratio of the last latency to the first, and of the old place to a fresh one."""


class Churned(NamedTuple):
    """The keys that were put and deleted, and the members that joined and left."""

    cycles: int
    leaves: int


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """The findings after a number of cycles and leaves.

    Attributes:
        cycles: Keys that were put and deleted in the old namespace so far.
        leaves: Members that joined and left the old group so far.
        cycles_per_second: The rate since the checkpoint before.
        leaves_per_second: The same, of members, at the same time.
        put_delete_ms: Median milliseconds of a put and its delete, in the old namespace and in a
            fresh one, which alternated.
        join_leave_ms: The same of a join and its leave.
        list_ms: The same of a list of all keys.
        heard_after_seconds: From the answer to each change until its listener was called.
        tombstones_of_a_read: The most that a recent read of each table met.
        warnings: Of the server, about tombstones, since its start.
        failures: The checks that failed.
    """

    cycles: int
    leaves: int
    cycles_per_second: float
    leaves_per_second: float
    put_delete_ms: tuple[float, float]
    join_leave_ms: tuple[float, float]
    list_ms: tuple[float, float]
    heard_after_seconds: dict[str, float]
    tombstones_of_a_read: dict[str, float]
    warnings: int
    failures: list[str]

    @property
    def line(self) -> str:
        heard = ", ".join(f"{one} {late:.2f}" for one, late in self.heard_after_seconds.items())
        return (
            f"{self.cycles:,} cycles ({self.cycles_per_second:.0f}/s), {self.leaves:,} leaves"
            f" ({self.leaves_per_second:.0f}/s): put+delete {_pair(self.put_delete_ms)},"
            f" join+leave {_pair(self.join_leave_ms)}, list {_pair(self.list_ms)};"
            f" heard after {heard} s; tombstones of a read {self.tombstones_of_a_read},"
            f" {self.warnings} warnings;"
            f" {'; '.join(self.failures) or 'all holds'}"
        )


def _pair(times: tuple[float, float]) -> str:
    old, fresh = times
    return f"{old:.1f} ms ({old / fresh:.2f} x fresh)"


def summary(checkpoints: Sequence[Checkpoint], broken: Sequence[str]) -> dict[str, Any]:
    """Return the figures and the verdict; *broken* has the errors that ended the run early."""
    growth = {name: _growth(checkpoints, name) for name in ("put_delete_ms", "join_leave_ms")}
    failures = [*(failure for one in checkpoints for failure in one.failures), *broken]
    late = [late for one in checkpoints for late in one.heard_after_seconds.values()]
    grown = max(max(one["growth"], one["last, old over fresh"]) for one in growth.values())
    return {
        "holds": not failures and grown <= MOST_GROWTH,
        "failures": failures,
        "latency": growth,
        "heard_after_seconds": {"median": median(late), "most": max(late)},
        "machine": machine.description(),
        "checkpoints": [asdict(one) for one in checkpoints],
    }


def _growth(checkpoints: Sequence[Checkpoint], name: str) -> dict[str, float]:
    """Return the first and the last median in the old place, and their ratios.

    *growth* is the ratio of both after each was divided by the median in the fresh place at that
    time, so that it does not depend on how busy the machine was.
    """
    first, last = (getattr(one, name) for one in (checkpoints[0], checkpoints[-1]))
    return {
        "first": first[0],
        "last": last[0],
        "last over first": last[0] / first[0],
        "last, old over fresh": last[0] / last[1],
        "growth": (last[0] / last[1]) / (first[0] / first[1]),
    }
