"""Watches of many keys receive what has changed, and nothing else."""

import itertools
from collections.abc import Callable
from functools import partial
from time import sleep

from kip30 import BYTES
from kip30.driver.records import Delta, Kind, Snapshot, Target
from kip30_conformance.polling import eventually
from tests.unit.clients import PATIENT, Open


def _watched(open_client: Open, target: Target, change: Callable[[], object]) -> list[Snapshot]:
    """Return the states of *target*; *change* was called until its watch had heard of it."""
    told: list[Snapshot] = []
    open_client(**PATIENT).backend.observe.watch(target, told.append)
    eventually(lambda: told)
    assert told[0].delta is None

    def is_heard() -> bool:
        change()
        return told[-1].delta is not None

    eventually(is_heard)
    eventually(lambda: _is_silent(told))
    return told


def _is_silent(told: list[Snapshot]) -> bool:
    """Return whether nothing arrives for a while."""
    count = len(told)
    sleep(0.2)
    return len(told) == count


def test_an_event_of_a_group_names_the_member_that_changed(open_client: Open) -> None:
    group = open_client(**PATIENT).group_membership("g")
    group.join("old", "1")
    told = _watched(open_client, Target(Kind.GROUP, "g"), lambda: group.update("old", "1"))
    steps: list[tuple[Callable[[], object], set[str], str]] = [
        (partial(group.join, "new", "1"), {"old", "new"}, "new"),
        (partial(group.update, "old", "2"), {"old", "new"}, "old"),
        (partial(group.leave, "new"), {"old"}, "new"),
    ]
    for step, names, changed in steps:
        before = told[-1]
        step()
        eventually(partial(_is_later, told, before))
        assert set(told[-1].entries) == names
        assert told[-1].delta == Delta(before.order, frozenset({changed}))


def _is_later(told: list[Snapshot], before: Snapshot) -> bool:
    return told[-1].order > before.order


def test_updates_tell_a_set_of_keys_nothing(open_client: Open) -> None:
    storage = open_client(**PATIENT).storage(BYTES)
    storage.put("n/k", b"0")
    numbers = itertools.count()
    target = Target(Kind.NAMESPACE, "n")
    told = _watched(open_client, target, lambda: storage.put(f"n/{next(numbers)}", b""))
    before, count = told[-1], len(told)
    for number in range(100):
        storage.update("n/k", b"%d" % number)
    storage.put("n/last", b"")
    eventually(lambda: len(told) > count)
    assert len(told) == count + 1
    assert told[-1].entries.keys() - before.entries.keys() == {"last"}
    assert told[-1].delta == Delta(before.order, frozenset({"last"}))
    storage.delete("n/k")
    storage.put("n/k", b"again")
    storage.delete("n/last")
    eventually(lambda: told[-1].entries.keys() == before.entries.keys())


def test_many_members_are_released_together(open_client: Open) -> None:
    client = open_client(**PATIENT)
    membership = client.backend.membership
    claims = [
        future.result()
        for future in [
            membership.claim("g", f"m{number}", f"{number:016x}", b"") for number in range(250)
        ]
    ]
    other = membership.claim("g", "other", "ff" * 8, b"").result()
    lost = other._replace(entry=other.entry._replace(version=claims[0].entry.version))
    answers = membership.release_many("g", [*claims, lost])
    assert [answer.result() for answer in answers] == [None] * 251
    state = client.backend.observe.snapshot(Target(Kind.GROUP, "g")).result()
    assert set(state.entries) == {"other"}
    assert membership.release_many("g", []) == []
