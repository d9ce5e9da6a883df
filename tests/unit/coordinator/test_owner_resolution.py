"""The owner of an item that several members claim."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip30.coordinator.owner_resolution import Ownership, owners

OWNERSHIPS = st.lists(
    st.builds(
        Ownership,
        st.sampled_from("abc"),
        st.integers(-1, 3),
        st.frozensets(st.integers(0, 3)),
    ),
    max_size=6,
    unique_by=lambda one: (one.member, one.generation),
)


@pytest.mark.case("K48")
@pytest.mark.parametrize(
    ("ownerships", "expected"),
    [
        ([("a", 5, [1, 2]), ("b", 5, [3])], {1: "a", 2: "a", 3: "b"}),
        ([("a", 5, [1]), ("b", 6, [1])], {1: "b"}),
        ([("b", 6, [1]), ("a", 5, [1])], {1: "b"}),
        ([("a", 5, [1, 2]), ("b", 5, [1])], {2: "a"}),
        ([("a", 5, [1]), ("b", 5, [1]), ("c", 6, [1])], {1: "c"}),
        ([("c", 6, [1]), ("a", 7, [1]), ("b", 7, [1])], {}),
        ([("a", -1, [])], {}),
        ([("a", 5, [1, 1])], {1: "a"}),
    ],
)
def test_the_highest_generation_wins_and_a_tie_voids_both(
    ownerships: list[tuple[str, int, list[int]]], expected: dict[int, str]
) -> None:
    assert owners(Ownership(*one) for one in ownerships) == expected


@pytest.mark.case("K48")
@given(OWNERSHIPS, st.randoms())
def test_the_order_of_members_does_not_matter(ownerships: list[Ownership], random: Random) -> None:
    shuffled = list(ownerships)
    random.shuffle(shuffled)
    assert owners(shuffled) == owners(ownerships)
