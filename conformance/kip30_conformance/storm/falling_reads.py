"""Numbers that only rise, and reads of them that overlap each other."""

from collections.abc import Iterable, Iterator


def falling_reads(reads: Iterable[tuple[float, float, int]], what: str) -> Iterator[str]:
    """Yield each read that found a lower number than one that had returned before its call.

    Args:
        reads: When each was called, when it had returned, and the number it found.
        what: The name of the number.
    """
    in_order = sorted(reads)
    returns = sorted((returned, number) for _, returned, number in in_order)
    over, newest = 0, 0
    for called, _, number in in_order:
        while returns[over][0] < called:
            newest = max(newest, returns[over][1])
            over += 1
        if number < newest:
            yield f"{what} {number} read at {called:.3f} although {newest} had been read before"
