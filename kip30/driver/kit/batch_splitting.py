"""Splitting many items into parts, one for each request."""

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")


def parts(  # noqa: PLR0913  one for each limit of a request
    items: Iterable[T],
    size: Callable[[T], int],
    *,
    most: int,
    most_bytes: int,
    weight: Callable[[T], int] | None = None,
    key: Callable[[T], Hashable] | None = None,
    guards: Callable[[T], Collection[Hashable]] | None = None,
) -> Iterator[list[T]]:
    """Yield *items* in their order, in lists that are as long as they may be.

    An item that is too large by itself is alone in its list.

    Args:
        items: The items to send.
        size: Returns how many bytes an item takes.
        most: How much a list may weigh.
        most_bytes: How many bytes it may take.
        weight: Returns how much an item weighs; without it, one.
        key: Returns a key that may occur only once in a list, if there is such a thing.
        guards: Returns the keys that no other item of its list has as its *key*.
    """
    part, keys, guarding = list[T](), set[Hashable](), set[Hashable]()
    load = taken = 0
    for item in items:
        heavier, larger = weight(item) if weight else 1, size(item)
        is_full = load + heavier > most or taken + larger > most_bytes
        own = (key(item),) if key else ()
        others = guards(item) if guards else ()
        meets = not (keys.isdisjoint(own) and keys.isdisjoint(others) and guarding.isdisjoint(own))
        if part and (is_full or meets):
            yield part
            part, load, taken = [], 0, 0
            keys.clear()
            guarding.clear()
        part.append(item)
        load, taken = load + heavier, taken + larger
        keys.update(own)
        guarding.update(others)
    if part:
        yield part


RECORDS_AT_FIRST = 200
_ANSWER_BYTES = 4 * 1024 * 1024


def records_at_once(sizes: Sequence[int], most: int) -> int:
    """Return how many records to request next, at *most*, if those so far had *sizes* in bytes.

    A server builds each whole response in its memory, so one of many records has about 4 MiB. The
    first one has 200 records, which may have 256 KiB each.
    """
    if not sizes:
        return min(most, RECORDS_AT_FIRST)
    return max(1, min(most, _ANSWER_BYTES * len(sizes) // max(1, sum(sizes))))
