"""Assignments inline while they are small, then in parts, and a large share alone (K64)."""

from collections.abc import Mapping
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip30.coordinator.packing import (
    INLINE_BYTES,
    PART_BYTES,
    Packed,
    PackingLimits,
    pack,
    part_of,
)
from kip30.coordinator.records import PART, STATE, STATE_BYTES, Assignment
from kip30.errors import GroupError

from .made import assignment, state

LIMITS = PackingLimits()
VALUE_BYTES = 256 * 1024
pytestmark = pytest.mark.case("K64")


def shares(sizes: Mapping[str, int]) -> dict[str, Assignment]:
    return {name: assignment(name, share=b"s" * size) for name, size in sizes.items()}


def many(members: int, size: int) -> dict[str, Assignment]:
    return shares({f"member-{number:032x}": size for number in range(members)})


def found(packed: Packed, name: str) -> tuple[Assignment | int | None, int]:
    """Look *name* up as a member does; return what it finds, and in how many reads."""
    number = part_of(name, packed.divided_by)
    one = PART.decode(packed.parts[number])[name]
    if isinstance(one, int):
        return PART.decode(packed.parts[one])[name], 2
    return one, 1


def all_found(packed: Packed, assignments: Mapping[str, Assignment]) -> bool:
    return all(found(packed, name)[0] == one for name, one in assignments.items())


@pytest.mark.parametrize(("beyond", "is_inline"), [(-1, True), (0, True), (1, False)])
def test_up_to_8_kib_go_inline(beyond: int, *, is_inline: bool) -> None:
    room = INLINE_BYTES - len(PART.encode(shares({"a": 1000})))
    assignments = shares({"a": 1000 + room + beyond})
    assert len(PART.encode(assignments)) == INLINE_BYTES + beyond
    packed = pack(assignments, LIMITS)
    assert (packed.divided_by == 0) == is_inline
    if is_inline:
        assert packed.parts == {}
        longest = "x" * 255
        written = state(
            2**62, inline=assignments, leader=longest, protocol=longest, protocol_type=longest
        )
        assert len(STATE.encode(written)) <= STATE_BYTES
    else:
        assert all_found(packed, assignments)


def test_thirty_members_go_inline() -> None:
    assert pack(many(30, 40), LIMITS).divided_by == 0


@pytest.mark.parametrize(("beyond", "parts"), [(-1, 1), (0, 1), (1, 2)])
def test_a_part_has_32_kib_at_most(beyond: int, parts: int) -> None:
    assert {part_of(name, 2) for name in "ad"} == {0, 1}
    room = PART_BYTES - len(PART.encode(shares({"a": 10_000, "d": 10_000})))
    assignments = shares({"a": 10_000, "d": 10_000 + room + beyond})
    packed = pack(assignments, LIMITS)
    assert packed.divided_by == parts
    assert max(map(len, packed.parts.values())) <= PART_BYTES
    assert all_found(packed, assignments)


def test_a_thousand_members_need_few_parts_and_one_read_each() -> None:
    assignments = many(1000, 60)
    packed = pack(assignments, LIMITS)
    assert 8 <= packed.divided_by <= 16
    assert max(map(len, packed.parts.values())) <= PART_BYTES
    assert all(found(packed, name) == (one, 1) for name, one in assignments.items())


def test_a_large_share_has_its_own_part_and_other_shares_need_one_read() -> None:
    assignments = many(200, 60) | shares({"large": 100_000})
    packed = pack(assignments, LIMITS)
    assert packed.divided_by <= 4
    assert found(packed, "large") == (assignments["large"], 2)
    assert sum(found(packed, name)[1] for name in assignments) == len(assignments) + 1


@pytest.mark.parametrize("beyond", [-1, 0])
def test_a_share_fills_a_value_of_the_store(beyond: int) -> None:
    room = VALUE_BYTES - len(PART.encode(shares({"large": 100_000})))
    assignments = shares({"small": 10, "large": 100_000 + room + beyond})
    packed = pack(assignments, LIMITS)
    assert max(map(len, packed.parts.values())) == VALUE_BYTES + beyond
    assert all_found(packed, assignments)


def test_a_share_above_the_limit_names_its_member() -> None:
    room = VALUE_BYTES - len(PART.encode(shares({"large": 100_000})))
    with pytest.raises(GroupError, match=r"'large' has \d{6} bytes"):
        pack(shares({"small": 10, "large": 100_000 + room + 1}), LIMITS)


def test_instances_with_one_checksum_find_their_shares() -> None:
    first, second = "plumless", "buckeroo"  # a known collision of CRC-32
    assert crc32(first.encode()) == crc32(second.encode())
    assignments = shares({first: 20_000, second: 20_000})
    packed = pack(assignments, LIMITS)
    assert sorted(found(packed, name)[1] for name in assignments) == [1, 2]
    assert all_found(packed, assignments)


@given(
    st.dictionaries(st.text("abcdef", min_size=1), st.integers(0, 900), min_size=1, max_size=12),
    st.integers(150, 600),
)
def test_every_member_finds_its_share_in_parts_that_fit(sizes: dict[str, int], room: int) -> None:
    assignments = shares(sizes)
    packed = pack(assignments, PackingLimits(0, room, 2_000))
    assert all_found(packed, assignments)
    shared = [data for number, data in packed.parts.items() if number < packed.divided_by]
    assert all(len(data) <= room or len(PART.decode(data)) == 1 for data in shared)


def test_parts_that_would_be_empty_are_not_written() -> None:
    packed = pack(many(40, 2_000), LIMITS)
    assert set(packed.parts) <= set(range(packed.divided_by))
    assert all(PART.decode(data) for data in packed.parts.values())
