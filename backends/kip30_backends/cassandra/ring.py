"""Walking the ring of tokens, by which a table's partitions are ordered."""

from collections.abc import Callable, Hashable, Iterator, Sequence

from kip30_backends.cassandra.library import Row

FIRST = -(2**63)
LAST = 2**63 - 1


def walk(
    read: Callable[[int, int, int], Sequence[Row]],
    arc: tuple[int, int],
    limit: Callable[[], int],
    identify: Callable[[Row], Hashable],
) -> Iterator[Sequence[Row]]:
    """Yield what *read* finds in *arc*, both ends included, each row once.

    Args:
        read: Returns rows in order, from one token to another, no more than so many. Each has its
            token as ``ring``.
        arc: The first token and the last one.
        limit: Returns how many new rows to read next.
        identify: Tells rows with the same token apart: two partitions may have the same one, and
            an answer may end between them.
    """
    first, last = arc
    seen = frozenset[Hashable]()
    while True:
        most = limit() + len(seen)
        found = read(first, last, most)
        yield [row for row in found if identify(row) not in seen] if seen else found
        if len(found) < most:
            return
        first = found[-1]["ring"]
        seen = frozenset(identify(row) for row in found if row["ring"] == first)
