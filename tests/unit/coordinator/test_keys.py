"""Places of records: one namespace for those that guard, another for those that are deleted."""

import pytest

from kip30.coordinator.keys import GroupKeys, attempt_name, is_outdated
from kip30.errors import InvalidNameError
from kip30.names import escape, parse_key


def test_guarded_records_share_a_namespace_and_parts_have_their_own() -> None:
    keys = GroupKeys("g")
    guarded = [keys.state, keys.instance("a"), keys.instance("rack/1"), keys.data("x/y")]
    assert {parse_key(key).namespace for key in guarded} == {"kip30.group/g"}
    assert parse_key(keys.part("1.2.0123abcd", 3)).namespace == keys.assignments
    assert keys.assignments == "kip30.assignment/g"
    assert keys.data("name") == "kip30.group/g/d.name"


def test_names_that_differ_have_keys_that_differ() -> None:
    keys = GroupKeys("g")
    names = ["a", "a/b", "a=2Fb", "", ".", "a.b", "ä"]
    assert len({keys.instance(name) for name in names}) == len(names)
    assert keys.instance("a") != keys.data("a")


def test_the_longest_group_id_fits_every_name_made_of_it() -> None:
    keys = GroupKeys("g" * 236)
    parse_key(keys.part(attempt_name(10**15, 10**15, "0" * 16), 99_999))
    parse_key(keys.instance("i" * 253))
    with pytest.raises(InvalidNameError):
        GroupKeys("g" * 237)
    with pytest.raises(InvalidNameError):
        keys.instance("i" * 254)
    assert len(escape("kip30.assignment/")) + 236 == 255


@pytest.mark.parametrize("group_id", ["", "a/", "\ud800"])
def test_a_group_id_that_no_namespace_can_have_is_refused(group_id: str) -> None:
    with pytest.raises(InvalidNameError):
        GroupKeys(group_id)


@pytest.mark.case("K55")
def test_each_publication_has_another_name() -> None:
    names = {
        attempt_name(number, epoch, nonce)
        for number in (1, 2)
        for epoch in (1, 2)
        for nonce in ("0123456789abcdef", "1123456789abcdef")
    }
    assert len(names) == 8


@pytest.mark.parametrize(
    ("part_name", "generation", "outdated"),
    [
        ("4.1.0123abcd.0", 6, True),
        ("4.9.0123abcd.12", 7, True),
        ("5.1.0123abcd.0", 6, False),  # a member that is one generation behind reads it
        ("6.1.0123abcd.0", 6, False),
        ("7.2.0123abcd.0", 6, False),  # another leader may be writing it
        ("10.1.0123abcd.0", 11, False),
        ("notes", 99, False),
        ("4.1.0123abcd", 99, False),
        ("x4.1.0123abcd.0", 99, False),
    ],
)
def test_parts_are_outdated_two_generations_later(
    part_name: str, generation: int, *, outdated: bool
) -> None:
    assert is_outdated(part_name, generation) == outdated
