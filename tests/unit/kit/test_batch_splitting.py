"""Items are cut into parts that fit, in their order, and none is lost."""

import pytest

from kip30.driver.kit.batch_splitting import parts, records_at_once


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ([], []),
        (["a"], [["a"]]),
        (["a", "b", "c", "d"], [["a", "b", "c"], ["d"]]),
        (["aaaa", "bbbb", "cccc"], [["aaaa", "bbbb"], ["cccc"]]),
        (["a", "b" * 20, "c"], [["a"], ["b" * 20], ["c"]]),
    ],
)
def test_parts_are_as_long_as_they_may_be(items: list[str], expected: list[list[str]]) -> None:
    assert list(parts(items, len, most=3, most_bytes=8)) == expected


def test_a_repeated_key_begins_another_part() -> None:
    items = ["a1", "b1", "a2", "b2", "b3"]
    found = parts(items, len, most=9, most_bytes=99, key=lambda item: item[0])
    assert list(found) == [["a1", "b1"], ["a2", "b2"], ["b3"]]


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        (["ag", "bg", "c"], [["ag", "bg", "c"]]),
        (["ag", "g", "b"], [["ag"], ["g", "b"]]),
        (["g", "ag", "bg"], [["g"], ["ag", "bg"]]),
        (["ab", "ba"], [["ab"], ["ba"]]),
        (["ag", "b", "g", "ag"], [["ag", "b"], ["g"], ["ag"]]),
    ],
)
def test_a_key_and_what_it_guards_are_in_different_parts(
    items: list[str], expected: list[list[str]]
) -> None:
    found = parts(
        items,
        len,
        most=9,
        most_bytes=99,
        key=lambda item: item[0],
        guards=lambda item: item[1:],
    )
    assert list(found) == expected


def test_heavy_items_take_more_of_a_part() -> None:
    assert list(parts([2, 2, 1, 3], lambda _: 1, most=4, most_bytes=99, weight=int)) == [
        [2, 2],
        [1, 3],
    ]


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([], 200),
        ([0, 0], 5000),
        ([1024] * 200, 4096),
        ([256 * 1024] * 200, 16),
        ([1, 20 * 1024 * 1024], 1),
    ],
)
def test_a_response_has_as_many_records_as_their_sizes_allow(
    sizes: list[int], expected: int
) -> None:
    assert records_at_once(sizes, 5000) == expected


def test_the_first_response_has_no_more_records_than_any_other() -> None:
    assert records_at_once([], 8) == 8
