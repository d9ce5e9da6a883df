"""Where a table is cut: in a partition that is large, between others that are small."""

from collections.abc import Iterable, Iterator

from kip30_backends.cassandra.partitions import Place, Run, Tally


def cut(tallies: Iterable[Tally], rows: int) -> Iterator[tuple[Run, int]]:
    """Yield runs that follow each other, and how many rows each has: *rows*, or fewer.

    The last one has no end. What has no row is not in a run of its own.
    """
    start: Place | None = None
    end: Place | None = None
    size = 0
    for place, count, ends in tallies:
        if size and size + count > rows:
            yield Run(start, end), size
            start, size = end, 0
        for row in ends:
            end = place._replace(row=row)
            yield Run(start, end), rows
            start = end
        size += count - rows * len(ends)
        end = place
    if size:
        yield Run(start), size
