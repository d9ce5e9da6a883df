"""Differences of states: chains of deltas, with gaps, merged states and listeners in between."""

import pickle
import random
from typing import Any
from unittest.mock import Mock, call

import pytest

from kip30.driver.records import Delta, Entry, Kind, Snapshot, Target, Version
from kip30.runtime.key_set_changes import KeySetChange, KeySets
from kip30.runtime.subscriptions import Deltas, Feed, Subscriptions

pytestmark = pytest.mark.virtual_time


def entry(number: int) -> Entry:
    return Entry(Version(number), str(number), b"1")


def state(order: int, *names: str, delta: Delta | None = None) -> Snapshot:
    return Snapshot(order, {name: entry(1) for name in names}, delta=delta)


def step(since: int, *names: str) -> Delta:
    return Delta(since, frozenset(names))


def noted(*states: Snapshot) -> Deltas:
    deltas = Deltas()
    for each in states:
        deltas.note(each)
    return deltas


def test_a_chain_of_deltas_adds_up() -> None:
    deltas = noted(state(1), state(3, delta=step(1, "a")), state(7, delta=step(3, "b", "c")))
    assert deltas.since(7) == frozenset()
    assert deltas.since(3) == frozenset({"b", "c"})
    assert deltas.since(1) == frozenset({"a", "b", "c"})
    assert deltas.since(0) is None


def test_a_state_read_between_two_others_differs_where_the_next_one_does() -> None:
    deltas = noted(state(1), state(3, delta=step(1, "a")), state(7, delta=step(3, "b")))
    assert deltas.since(5) == frozenset({"b"})
    assert deltas.since(2) == frozenset({"a", "b"})


@pytest.mark.parametrize("gap", [None, step(5, "b")])
def test_nothing_is_known_across_a_gap(gap: Delta | None) -> None:
    deltas = noted(state(1), state(3, delta=step(1, "a")), state(7, delta=gap))
    assert deltas.since(3) is None
    assert deltas.since(1) is None
    deltas.note(state(9, delta=step(7, "c")))
    assert deltas.since(7) == frozenset({"c"})


def test_known_changes_include_every_actual_change() -> None:
    """Any states, of which some are merged with later ones, whole ones, and gaps."""
    chance = random.Random(1)  # noqa: S311  which states there are
    for _ in range(300):
        deltas, changes = Deltas(), {0: frozenset[str]()}
        for order in range(1, 100, chance.randrange(1, 4)):
            changes[order] = frozenset(chance.choice("abcdef") for _ in range(chance.randrange(3)))
            if chance.random() < 0.3:
                continue
            since = chance.choice([*changes][-4:])
            delta = Delta(since, _after(changes, since)) if chance.random() < 0.9 else None
            deltas.note(Snapshot(order, {}, delta=delta))
            for earlier in changes:
                known = deltas.since(earlier)
                assert known is None or _after(changes, earlier) <= known


def _after(changes: dict[int, frozenset[str]], order: int) -> frozenset[str]:
    later = (names for number, names in changes.items() if number > order)
    return frozenset[str]().union(*later)


def test_kept_deltas_are_bounded_even_if_they_are_empty() -> None:
    deltas = noted(state(0))
    for order in range(1, 10_000):
        deltas.note(state(order, delta=step(order - 1)))
    assert len(deltas._kept) <= 1000
    deltas.note(state(10_000, delta=step(9_999, *map(str, range(2000)))))
    assert deltas.since(9_999) is None
    assert not deltas._kept


def test_a_feed_returns_its_newest_state_and_the_changed_names() -> None:
    feed, first = Feed(), state(1, "a")
    feed.take(first)
    assert feed.newest(None) == (first, None)
    second = state(2, "a", "b", delta=step(1, "b"))
    feed.take(second)
    feed.take(first)
    assert feed.newest(first) == (second, frozenset({"b"}))


def test_all_listeners_that_begin_with_the_same_state_keep_it_once() -> None:
    feed = Feed()
    target = state(1, "a")
    assert feed.shared(target, Kind.GROUP) is target
    feed.take(state(1, "a", "b"))
    assert feed.latest is not None
    again = feed.shared(state(5, "a", "b"), Kind.GROUP)
    assert again.entries is feed.latest.entries
    assert again.order == 5
    updated = Snapshot(6, {"a": entry(1), "b": entry(2)})
    assert feed.shared(updated, Kind.GROUP) is updated
    assert feed.shared(updated, Kind.NAMESPACE).entries is feed.latest.entries
    assert feed.shared(state(7, "a"), Kind.NAMESPACE).entries.keys() == {"a"}


def test_listeners_of_one_target_leave_in_any_order() -> None:
    driver: Any = Mock()
    subscriptions = Subscriptions(driver)
    target = Target(Kind.GROUP, "g")
    tasks: list[Any] = [object() for _ in range(5)]
    feeds = {id(subscriptions.attach(target, task)) for task in tasks}
    assert len(feeds) == 1
    for task in reversed(tasks):
        subscriptions.detach(target, task)
        subscriptions.detach(target, task)
    assert not subscriptions._feeds
    driver.watch.return_value.close.assert_called_once_with()


def test_an_observer_sees_each_new_state_and_the_end_of_the_watch() -> None:
    driver, observer, task = Mock(), Mock(), Mock()
    subscriptions, target = Subscriptions(driver, observer), Target(Kind.SERVICE, "s")
    feed = subscriptions.attach(target, task)
    second, first = state(2, "a"), state(1, "a")
    for shown in (second, first):
        feed.take(shown)
    assert subscriptions.states() == [(target, second)]
    subscriptions.detach(target, task)
    assert observer.mock_calls == [call.saw(target, second), call.unwatched(target)]
    assert subscriptions.states() == []


class Sets:
    """The key sets of a namespace, and the changes for a listener between states."""

    def __init__(self) -> None:
        self.sets = KeySets("ns")

    def told(self, old: Snapshot | None, new: Snapshot, *names: str) -> KeySetChange:
        change = self.sets.change(old, new, frozenset(names) if names else None)
        assert change is not None
        return change


def test_listeners_share_the_keys_of_a_state() -> None:
    sets, one, two = Sets(), state(1, "a"), state(2, "a", "b")
    first, second = sets.told(None, one), sets.told(None, one)
    assert first.keys is second.keys
    first, second = sets.told(one, two, "b"), sets.told(one, two, "b")
    assert first.added == {"ns/b"}
    assert not first.removed
    assert first.keys == {"ns/a", "ns/b"}
    assert first == second
    assert first.keys is second.keys


def test_a_listener_that_is_behind_takes_no_other_back() -> None:
    sets, one, two = Sets(), state(1, "a"), state(2, "a", "b")
    three, four = state(3, "b"), state(4, "b", "c")
    sets.told(one, three)
    assert sets.told(one, two, "b").keys == {"ns/a", "ns/b"}
    assert sets.sets._state is three
    assert sets.told(three, four, "c").keys == {"ns/b", "ns/c"}
    assert sets.told(two, four).removed == {"ns/a"}


def test_updates_of_values_keep_the_keys() -> None:
    sets, one = Sets(), state(1, "a", "b")
    updated = state(2, "a", "b", delta=step(1, "a"))
    keys = sets.told(None, one).keys
    assert sets.sets.change(one, updated, frozenset({"a"})) is None
    assert sets.sets._state is updated
    added = sets.told(updated, state(3, "a", "b", "c"), "c")
    assert added.keys == keys | {"ns/c"}


def test_the_full_key_set_is_correct_whenever_it_is_read() -> None:
    """After any number of changes, also of the same keys."""
    chance = random.Random(2)  # noqa: S311  the choice of changes
    sets, before, names, asked = Sets(), None, {"a"}, 0
    for order in range(3000):
        changed = {str(chance.randrange(40)) for _ in range(chance.randrange(1, 4))}
        names = names ^ changed
        new = state(order, *names)
        change = sets.told(before, new, *changed)
        before = new
        if chance.random() < 0.01 or order > 2990:
            asked += 1
            assert change.keys == {f"ns/{name}" for name in names}
            assert change.keys is change.keys
    assert asked > 10


def test_a_change_of_keys_reads_like_the_record_that_it_is() -> None:
    change = Sets().told(None, state(1, "a"))
    same = KeySetChange("ns", frozenset({"ns/a"}), frozenset(), frozenset({"ns/a"}))
    assert change == same
    assert hash(change) == hash(same)
    assert pickle.loads(pickle.dumps(change)) == same  # noqa: S301  pickled a moment ago
    assert repr(change) == repr(same)
    assert "keys=frozenset({'ns/a'})" in repr(change)
    assert change != "ns"
    match change:
        case KeySetChange(namespace, added):
            assert (namespace, added) == ("ns", frozenset({"ns/a"}))
