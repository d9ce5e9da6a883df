"""Views of a group: mappings that cannot be changed, with an order."""

import logging
import pickle
from collections.abc import Iterator
from typing import Any

import pytest
from typing_extensions import override

from kip30 import JSON, STR, Members
from kip30.driver.records import Entry, Snapshot, Version
from kip30.runtime.group_views import Changes, GroupViews

pytestmark = pytest.mark.virtual_time

VIEW = Members(
    {"a": 1, "b": 2}, 7, frozenset({"c"}), incarnations={"a": Version(3), "c": Version(4)}
)


def snapshot(order: int, **data: bytes) -> Snapshot:
    """Return a state in which each member has a record of its own, known by its data."""
    entries = {name: Entry(Version(1), repr(value), value) for name, value in data.items()}
    return Snapshot(order, entries)


def test_a_view_is_equal_to_a_dict_and_reads_like_one() -> None:
    assert VIEW == {"a": 1, "b": 2}
    assert Members({"a": 1, "b": 2}, 8) == VIEW
    assert VIEW != {"a": 1}
    assert dict(VIEW) == {"a": 1, "b": 2}
    assert (len(VIEW), list(VIEW), VIEW["a"], VIEW.get("c")) == (2, ["a", "b"], 1, None)
    assert "a" in VIEW
    assert "c" not in VIEW
    assert list(VIEW.items()) == [("a", 1), ("b", 2)]
    assert (list(VIEW.keys()), list(VIEW.values())) == (["a", "b"], [1, 2])


def test_a_view_cannot_be_changed_or_hashed() -> None:
    view: Any = VIEW
    with pytest.raises(AttributeError):
        view.order = 8
    with pytest.raises(TypeError):
        hash(view)


def test_a_view_survives_a_way_through_another_process() -> None:
    after = pickle.loads(pickle.dumps(VIEW))  # noqa: S301  what was pickled a moment ago
    assert (after, after.order, after.undecodable) == (VIEW, VIEW.order, VIEW.undecodable)
    assert after.incarnations == VIEW.incarnations


def test_a_view_shows_what_it_holds() -> None:
    assert repr(VIEW) == "Members({'a': 1, 'b': 2}, order=7, undecodable={'c'})"
    assert repr(Members({}, 0)) == "Members({}, order=0)"


def test_a_codec_that_raises_anything_hides_its_own_record_only() -> None:
    class Picky:
        name = "picky"

        def encode(self, value: str) -> bytes:
            return value.encode()

        def decode(self, data: bytes) -> str:
            return {b"good": "good"}[data]

    view = GroupViews("g", Picky()).members(snapshot(1, a=b"good", b=b"bad"))
    assert view == {"a": "good"}
    assert view.undecodable == {"b"}


def test_each_undecodable_record_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    views = GroupViews("g", JSON)
    with caplog.at_level(logging.WARNING):
        for state in (snapshot(1, a=b"?", b=b"1"), snapshot(2, a=b"?"), snapshot(1, a=b"?")):
            views.members(state)
        assert len(caplog.records) == 1
        views.members(snapshot(3, a=b"!"))
        assert len(caplog.records) == 2
        views.members(snapshot(2, a=b"?"))
    assert len(caplog.records) == 2


def test_nothing_is_decoded_again_to_describe_a_change() -> None:
    decoded: list[bytes] = []

    class Counting:
        name = "counting"

        def encode(self, value: str) -> bytes:
            return value.encode()

        def decode(self, data: bytes) -> str:
            decoded.append(data)
            return STR.decode(data)

    changes = Changes(GroupViews("g", Counting()))
    first, same, second = snapshot(1, a=b"1"), snapshot(2, a=b"1"), snapshot(3, a=b"2")
    assert changes(None, first, None) is not None
    assert changes(first, same, None) is None
    assert changes(same, second, None) is not None
    assert decoded == [b"1", b"2"]


def test_another_undecodable_record_of_the_same_member_is_no_event() -> None:
    changes = Changes(GroupViews("g", JSON))
    first, second, third = snapshot(1, a=b"?"), snapshot(2, a=b"!"), snapshot(3)
    assert changes(None, first, None) is not None
    assert changes(first, second, None) is None
    last = changes(second, third, None)
    assert last is not None
    assert (last.left, last.members.undecodable) == (frozenset(), frozenset())


def test_a_new_incarnation_of_an_undecodable_member_is_an_event() -> None:
    changes = Changes(GroupViews("g", JSON))
    first = snapshot(1, a=b"?")
    again = Snapshot(2, {"a": first.entries["a"]._replace(version=Version(2), nonce="again")})
    assert changes(None, first, None) is not None
    change = changes(first, again, None)
    assert change is not None
    assert change.incarnations == {"a": Version(2)}
    assert not change.joined | change.left | change.updated


def test_incarnations_read_like_a_dict() -> None:
    entries = {"a": Entry(Version(2), "", b""), "b": Entry(Version(1), "", b"")}
    incarnations = GroupViews("g", JSON).members(Snapshot(1, entries)).incarnations
    expected = {"a": Version(2), "b": Version(1)}
    assert incarnations == expected == dict(incarnations)
    assert (len(incarnations), list(incarnations), incarnations["b"]) == (2, ["a", "b"], Version(1))
    assert "a" in incarnations
    assert "c" not in incarnations
    assert incarnations.get("c") is None
    assert sorted(incarnations, key=incarnations.__getitem__) == ["b", "a"]
    assert list(incarnations.values()) == list(expected.values())
    assert list(incarnations.items()) == list(expected.items())
    assert repr(incarnations) == f"Incarnations({expected!r})"
    after = pickle.loads(pickle.dumps(incarnations))  # noqa: S301  what was pickled a moment ago
    assert (type(after), after) == (dict, expected)


class Counted(dict[str, Entry]):
    """The records of a group, and how many of them were read."""

    reads = 0

    @override
    def __getitem__(self, name: str) -> Entry:
        self.reads += 1
        return super().__getitem__(name)

    @override
    def get(self, name: str, default: Any = None) -> Any:
        self.reads += 1
        return super().get(name, default)

    @override
    def __iter__(self) -> Iterator[str]:
        self.reads += len(self)
        return super().__iter__()

    @override
    def items(self) -> Any:
        self.reads += len(self)
        return super().items()


def test_an_event_of_a_large_group_reads_what_has_changed() -> None:
    changes = Changes(GroupViews("g", STR))
    entry = Entry(Version(1), "1", b"1")
    old = Snapshot(1, Counted({f"m{number}": entry for number in range(10_000)}))
    newer = Counted(old.entries)
    newer["m7"] = Entry(Version(2), "2", b"2")
    assert changes(None, old, None) is not None
    change = changes(old, Snapshot(2, newer), frozenset({"m7"}))
    assert change is not None
    assert change.updated == {"m7"}
    assert change.incarnations["m7"] == Version(2)
    assert newer.reads < 10
    assert len(change.incarnations) == 10_000
