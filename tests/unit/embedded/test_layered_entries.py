"""Entries with changes over them are equal to a dict that was changed."""

import random

import pytest

from kip30.driver.records import Entry, Version
from kip30_backends.embedded.target_states import LayeredEntries, changed


def test_layers_read_like_the_dict_that_they_stand_for() -> None:
    chance = random.Random(5)  # noqa: S311  what changes
    names = [str(number) for number in range(400)]
    plain = {name: Entry(Version(0), "n", b"") for name in names[:200]}
    entries, layered = changed(plain, {}), 0
    for number in range(2000):
        now = {
            chance.choice(names): chance.choice([None, Entry(Version(number), "n", b"")])
            for _ in range(chance.randrange(4))
        }
        entries = changed(entries, now)
        for name, entry in now.items():
            if entry is None:
                plain.pop(name, None)
            else:
                plain[name] = entry
        layered += isinstance(entries, LayeredEntries)
        assert (len(entries), dict(entries), entries == plain) == (len(plain), plain, True)
        name = chance.choice(names)
        assert (name in entries, entries.get(name)) == (name in plain, plain.get(name))
    assert layered > 1500
    assert 7 not in entries  # type: ignore[comparison-overlap]


def test_later_changes_leave_an_earlier_state_unchanged() -> None:
    entry = Entry(Version(0), "n", b"")
    first = changed({"a": entry, "b": entry, "c": entry}, {})
    second = changed(first, {"a": None})
    third = changed(second, {"a": entry, "d": entry, "b": None})
    assert (set(first), set(second), set(third)) == ({*"abc"}, {*"bc"}, {*"acd"})
    with pytest.raises(KeyError):
        second["a"]
