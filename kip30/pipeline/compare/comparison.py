"""The rule by which two sides are compared key by key, as far as both of its forms share it.

The rule has two forms, which do the same: `frame_comparison` for DataFrames of any size, and
`table_comparison` for tables that one task holds. tests/pipeline/test_comparison_forms.py compares
them on random sides, so change both. A key that is a record on both sides differs if the values do.
A key that is one on one side alone is missing on the other, but unsettled if the other

* has something there that is no record,
* has rejected something that may hide it, with a prefix of it, or
* is raw, and either side changed the key after the position of its scan.

The last of these also holds for a key that differs.
"""

from bisect import bisect
from collections.abc import Iterable, Sequence

LEFT, RIGHT = "left", "right"
SIDES = (LEFT, RIGHT)

ONLY_LEFT = "only_left"
ONLY_RIGHT = "only_right"
DIFFERS = "differs"
UNSETTLED = "unsettled"
"""Of a key that changed while it was read, or that one side cannot read as a record."""
KINDS = (ONLY_LEFT, ONLY_RIGHT, DIFFERS, UNSETTLED)

_COMPARED = ("version", "value_bytes", "digest", "moving", "rejected", "record", "prefix")
_OF_BOTH = ("version", "bytes", "digest")
COLUMNS = ("key", "kind", *(f"{side}_{name}" for name in _OF_BOTH for side in SIDES))
"""Those of the differences."""


def compared_columns(*, is_raw: bool, full: bool) -> tuple[str, ...]:
    """Return the names of the columns that are compared; the key is the first."""
    value = ("value",) if full else ()
    return ("path" if is_raw else "key", *_COMPARED, *value)


def outermost(prefixes: Iterable[bytes]) -> list[bytes]:
    """Return those of *prefixes* that are below no other one, in order."""
    found = list[bytes]()
    for prefix in sorted(prefixes):
        if not (found and prefix.startswith(found[-1])):
            found.append(prefix)
    return found


def begins_with_any(key: bytes, prefixes: Sequence[bytes]) -> bool:
    """Return whether *key* begins with one of *prefixes*, those of `outermost`."""
    # The one that it begins with sorts before it, and no other one is between them.
    number = bisect(prefixes, key)
    return number > 0 and key.startswith(prefixes[number - 1])
