"""Text form of sets of items in metadata and shares: ranges per topic, ``"0-41,57"``.

One member with 10,000 items of ten topics needs a few hundred bytes if they are in ranges. A text
above 1 KiB is compressed: scattered numbers shrink to about a third.
"""

import json
import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, cast

from kip30.coordinator.assignors import Item
from kip30.errors import CodecError

_PLAIN_BYTES = 1024
_MOST_BYTES = 64 * 1024 * 1024
"""The largest text that is decompressed."""


def encode(value: Mapping[str, object]) -> bytes:
    """Return *value*, which consists of JSON types, as bytes."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode()
    return text if len(text) <= _PLAIN_BYTES else zlib.compress(text)


def decode(data: bytes) -> Mapping[str, Any]:
    """Return the value that `encode` wrote; for no bytes, which mean no share, an empty mapping.

    Raises:
        CodecError: *data* is not of `encode`.
    """
    if not data:
        return {}
    try:
        text = data if data[:1] == b"{" else _decompressed(data)
        found: Any = json.loads(text)
    except (ValueError, RecursionError, zlib.error) as error:
        raise CodecError(f"not what a member of kip30 writes: {error}") from error
    if not isinstance(found, dict):
        raise CodecError("not what a member of kip30 writes: no object")
    return cast("Mapping[str, Any]", found)


def _decompressed(data: bytes) -> bytes:
    decompressor = zlib.decompressobj()
    text = decompressor.decompress(data, _MOST_BYTES)
    if decompressor.unconsumed_tail:
        raise CodecError("a text of a member is longer than any that kip30 writes")
    return text


def ranges_of(items: Iterable[Item]) -> dict[str, str]:
    """Return the numbers of *items* as ranges, by topic."""
    by_topic: defaultdict[str, list[int]] = defaultdict(list)
    for topic, number in sorted(set(items)):
        by_topic[topic].append(number)
    return {topic: ",".join(_ranges(numbers)) for topic, numbers in by_topic.items()}


def items_in(ranges: object) -> list[Item]:
    """Return the items that `ranges_of` was given, in order.

    Raises:
        CodecError: *ranges* is not of `ranges_of`.
    """
    try:
        found = cast("Mapping[str, str]", ranges).items()
        return [Item(topic, number) for topic, text in found for number in _numbers(text)]
    except (AttributeError, TypeError, ValueError) as error:
        raise CodecError(f"not what a member of kip30 writes: {error}") from error


def _ranges(numbers: list[int]) -> Iterable[str]:
    first = last = numbers[0]
    for number in numbers[1:]:
        if number != last + 1:
            yield _range(first, last)
            first = number
        last = number
    yield _range(first, last)


def _range(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def _numbers(text: str) -> Iterable[int]:
    for piece in text.split(","):
        first, _, last = piece.partition("-")
        yield from range(int(first), int(last or first) + 1)
