"""Layout of the assignments of a generation: in the state record, or in parts.

All of them go into the state while they are small, which saves a write and a read. Otherwise the
assignment of an instance is in part ``crc32(instance) % P``, so that each member reads one part of
about 32 KiB and the leader writes few of them. An assignment that is larger than a part has one
alone, behind the others, and its part of the P says which.

Decided here: P is found by trying powers of two, from the number of bytes on, until no part is too
large. Only 4,096 are tried, because two instances may have the same checksum; a part that is still
too large then loses its largest assignment to a part of its own. A large share does not raise P
either: to be alone by its checksum it would scatter all others.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple
from zlib import crc32

from kip30.coordinator.records import PART, Assignment, Part
from kip30.errors import GroupError

INLINE_BYTES = 8 * 1024
"""The largest set of assignments that is written into the state."""
PART_BYTES = 32 * 1024
"""The largest part with several assignments."""

_MOST_PARTS = 4096
_REFERENCE = _MOST_PARTS * 100
_EMPTY = len(PART.encode({}))


class PackingLimits(NamedTuple):
    """Up to which sizes, in bytes, assignments go inline, into a part, and into the store."""

    inline_bytes: int = INLINE_BYTES
    part_bytes: int = PART_BYTES
    value_bytes: int = 256 * 1024


class Packed(NamedTuple):
    """Assignments as they are published.

    Attributes:
        divided_by: Into how many parts they are divided; 0 if they go inline.
        parts: The encoded parts by number; those that would be empty are left out.
    """

    divided_by: int
    parts: Mapping[int, bytes]


def pack(assignments: Mapping[str, Assignment], limits: PackingLimits) -> Packed:
    """Divide *assignments* into parts.

    Raises:
        GroupError: A share is larger than a value of the store; the error names its member.
            Nothing was sent.
    """
    if len(PART.encode(assignments)) <= limits.inline_bytes:
        return Packed(0, {})
    sizes = {name: _size(name, one) for name, one in assignments.items()}
    room = limits.part_bytes - _EMPTY + 1  # no comma before the first
    alone = [name for name, size in sizes.items() if size > room]
    shared = sizes | {name: _size(name, _REFERENCE) for name in alone}
    count = _count(shared, room)
    for names in _divided(shared, count).values():
        alone += _overflow({name: shared[name] for name in names}, room)
    return Packed(count, _encoded(assignments, count, alone, limits))


def part_of(instance: str, count: int) -> int:
    """Return the number of the part that says where the assignment of *instance* is."""
    return crc32(instance.encode()) % count


def _size(instance: str, one: Assignment | int) -> int:
    """Return how many bytes *one* adds to a part, with the comma before it."""
    return len(PART.encode({instance: one})) - _EMPTY + 1


def _count(sizes: Mapping[str, int], room: int) -> int:
    count = 1
    while count * room < sum(sizes.values()):
        count *= 2
    while count < _MOST_PARTS and any(
        sum(sizes[name] for name in names) > room for names in _divided(sizes, count).values()
    ):
        count *= 2
    return min(count, _MOST_PARTS)


def _divided(instances: Iterable[str], count: int) -> dict[int, list[str]]:
    parts: dict[int, list[str]] = {}
    for instance in instances:
        parts.setdefault(part_of(instance, count), []).append(instance)
    return parts


def _overflow(sizes: dict[str, int], room: int) -> list[str]:
    """Return the largest of *sizes*, as many as must go so that the part fits into *room*."""
    moved: list[str] = []
    for name in sorted(sizes, key=sizes.__getitem__, reverse=True):
        size = _size(name, _REFERENCE)
        if sum(sizes.values()) > room and size < sizes[name]:
            sizes[name] = size
            moved.append(name)
    return moved


def _encoded(
    assignments: Mapping[str, Assignment], count: int, alone: list[str], limits: PackingLimits
) -> dict[int, bytes]:
    numbers = {name: count + index for index, name in enumerate(alone)}
    content: dict[int, Part] = {
        number: {name: numbers.get(name, assignments[name]) for name in names}
        for number, names in _divided(assignments, count).items()
    }
    content |= {number: {name: assignments[name]} for name, number in numbers.items()}
    encoded = {number: PART.encode(part) for number, part in content.items()}
    for number, data in encoded.items():
        if len(data) > limits.value_bytes:
            name = max(content[number], key=lambda name: _size(name, content[number][name]))
            raise GroupError(
                f"the share of member {assignments[name].member_id!r} has"
                f" {len(assignments[name].share)} bytes, and the store takes"
                f" {limits.value_bytes} with the record around it: give it less"
            )
    return encoded
