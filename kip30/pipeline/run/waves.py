"""Waves: the spans of a plan in a shuffled order, run in groups that take about half a minute.

A wave is one Spark job. It is long enough for Spark's own costs not to matter, and short enough
for little to be lost when a run stops. Waves begin small, because nothing is known of the speed.
"""

import random
from collections.abc import Collection, Sequence

from kip30.driver.scanning import Span

WAVE_SECONDS = 30.0
_TOKEN_BYTES = 512 * 1024
"""The most bytes that the spans of a wave may take in a job's description."""


class Waves:
    """The order in which spans are read.

    Spans of one region of a store are next to each other in the plan, so the order is shuffled:
    each wave then loads all servers, and its speed tells something about the next wave.
    """

    def __init__(
        self, spans: Sequence[Span], finished: Collection[int], seed: str, slots: int
    ) -> None:
        """Leave out the spans whose numbers are *finished*; *seed* decides the order."""
        left = [number for number in range(len(spans)) if number not in finished]
        random.Random(seed).shuffle(left)  # noqa: S311  no secret
        self._spans = spans
        self._left = left
        self._halves: list[list[int]] = []
        self._slots = slots
        self._wanted_rows = 0.0

    def next(self) -> list[int]:
        """Return the numbers of the spans of the next wave; none if all are done."""
        if self._halves:
            return self._halves.pop()
        taken: list[int] = []
        rows = size = 0
        while self._left and (len(taken) < self._slots or rows < self._wanted_rows):
            span = self._spans[self._left[-1]]
            size += len(span.token)
            if taken and size > _TOKEN_BYTES:
                break
            taken.append(self._left.pop())
            rows += _weight(span)
        return taken

    def adapt(self, numbers: Sequence[int], seconds: float) -> None:
        """Note that the wave of *numbers* took *seconds*."""
        rows = sum(_weight(self._spans[number]) for number in numbers)
        fitting = rows * WAVE_SECONDS / max(seconds, 0.001)
        self._wanted_rows = min(fitting, 4 * rows)

    def halve(self, numbers: Sequence[int]) -> None:
        """Run the two or more spans of a wave that failed once more, in the next two waves."""
        middle = len(numbers) // 2
        self._halves += [list(numbers[middle:]), list(numbers[:middle])]
        self._wanted_rows = 0.0


def partitions(spans: Sequence[Span], slots: int) -> list[list[Span]]:
    """Return *spans* in up to *slots* groups of about as many rows.

    Spans of one region are next to each other in a group: a store may have to find a region first.
    """
    groups: list[list[Span]] = [[] for _ in range(min(slots, len(spans)))]
    rows = [0] * len(groups)
    for span in sorted(spans, key=lambda one: one.rows, reverse=True):
        least = rows.index(min(rows))
        groups[least].append(span)
        rows[least] += _weight(span)
    return [sorted(group) for group in groups]


def _weight(span: Span) -> int:
    """Return the work for *span* in rows; one that is expected to be empty counts, too."""
    return max(span.rows, 1)
