"""Sets of items as text."""

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip30 import CodecError
from kip30.coordinator import Item
from kip30.coordinator.item_texts import decode, encode, items_in, ranges_of

ITEMS = st.sets(st.builds(Item, st.sampled_from(["orders", "ä", ""]), st.integers(0, 300)))


@given(ITEMS)
def test_items_come_back(items: set[Item]) -> None:
    assert items_in(decode(encode({"items": ranges_of(items)}))["items"]) == sorted(items)


def test_neighbours_are_a_range() -> None:
    items = [Item("orders", number) for number in (*range(42), 57)]
    assert ranges_of(items) == {"orders": "0-41,57"}


def test_a_long_text_is_compressed() -> None:
    scattered = encode({"items": ranges_of(Item("t", 2 * number) for number in range(10_000))})
    assert len(scattered) < 30_000
    assert encode({"a": 1}) == b'{"a":1}'
    assert decode(b"") == {}


@pytest.mark.parametrize("data", [b"{", b"[]", b"x", zlib.compress(b"[]")])
def test_malformed_data_is_refused(data: bytes) -> None:
    with pytest.raises(CodecError):
        decode(data)


def test_oversized_data_is_refused() -> None:
    data = zlib.compress(b" " * 2**27)
    with pytest.raises(CodecError):
        decode(data)


@pytest.mark.parametrize("ranges", [1, "0-4", {"t": 1}, {"t": "a"}, {"t": ""}])
def test_ranges_that_are_none_are_refused(ranges: object) -> None:
    with pytest.raises(CodecError):
        items_in(ranges)
