"""Guarantees of every store for views of a group: their order, and unreadable records."""

import contextlib
import itertools
import logging
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple, cast

import pytest

from kip30 import BYTES, JSON, GroupMembership, Member, Members, MembershipChange, UnavailableError
from kip30_conformance.clients.callback_recorder import Recorder
from kip30_conformance.clients.crowd import together
from kip30_conformance.suite import OpenClient, Suite

_ROUNDS = 10
_BAD = b"\xff"


class _Acknowledged(NamedTuple):
    """A join or an update that has returned, and the order of the member after it."""

    member_id: str
    number: int
    order: int


class MembershipViewTests(Suite):
    """Reads and events of one client can be put in order, and one record never hides others."""

    def test_M28_orders_of_one_after_the_other(self, open_client: OpenClient) -> None:
        """Later reads and events never have a smaller order; other states have other orders."""
        group, other = (open_client().group_membership("g") for _ in range(2))
        changes = Recorder[MembershipChange[str]]()
        group.add_listener(changes)
        views = [group.membership()]
        for holder in (group, other):
            member = holder.join("m", "1")
            views.append(group.membership())
            assert holder.membership().order >= member.order
            holder.update("m", "2")
            views.append(group.membership())
            assert holder.membership().order >= member.order
            holder.leave("m")
            views.append(group.membership())
        other.join("last", "")
        last = changes.expect(lambda change: change.members == {"last": ""})
        _expect_in_order(views)
        _expect_in_order([change.members for change in changes.events])
        assert last.members.order > views[-1].order

    def test_M28_orders_of_concurrent_changes(self, open_client: OpenClient) -> None:
        """Views in their order tell one story, while several clients join, update and leave.

        A view with at least the order of a member shows what it had acknowledged, or later data.
        """
        kept: dict[str, Any] = {"plugin.session.timeout.ms": 30_000}  # also on a busy machine
        groups = [open_client(**kept).group_membership("g") for _ in range(3)]
        observed = groups[0]
        changes = Recorder[MembershipChange[str]]()
        observed.add_listener(changes)
        acting = threading.Event()
        acting.set()
        actors = [partial(_act, group, f"m{n}", acting) for n, group in enumerate(groups)]
        readers = [partial(_read, observed, acting)] * 2
        results = together([*actors, *readers])
        own, *_ = (result for result in results[:1])
        reads = [cast("Members[str]", view) for result in results[3:] for view in result]
        views = [*reads, *(change.members for change in changes.events)]
        _expect_in_order([change.members for change in changes.events])
        _expect_one_story(views, [f"m{n}" for n in range(3)])
        for acknowledged in own:
            assert isinstance(acknowledged, _Acknowledged)
            _expect_shown(acknowledged, views)

    def test_M29_undecodable_member(
        self, open_client: OpenClient, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A member whose data a reader cannot decode hides no other member from it.

        The reader is warned once of each such record: again only if the member had to re-join.
        """
        raw = open_client().group_membership("g", BYTES)
        client = open_client()
        group, plain = client.group_membership("g", JSON), client.group_membership("g", BYTES)
        changes, again = Recorder[MembershipChange[object]](), Recorder[Member]()
        group.add_listener(changes)
        with caplog.at_level(logging.WARNING, logger="kip30"):
            raw.join("bad", _BAD, on_rejoined=again)
            raw.join("good", b"1")
            changes.expect(lambda change: "good" in change.joined)
            for _ in range(3):
                assert group.membership() == {"good": 1}
        assert group.membership().undecodable == {"bad"}
        assert group.membership_list() == {"bad", "good"}
        assert plain.membership() == {"bad": _BAD, "good": b"1"}
        assert changes.events[-1].members.undecodable == {"bad"}
        warned = [
            one.getMessage() for one in caplog.records if one.name == "kip30.runtime.group_views"
        ]
        assert all(text.startswith("member 'bad' of 'g'") for text in warned)
        assert 1 <= len(warned) <= 1 + len(again.events)

    def test_M29_undecodable_for_a_while(self, open_client: OpenClient) -> None:
        """A member joins when its data can be decoded, and leaves when it no longer can."""
        raw = open_client().group_membership("g", BYTES)
        group = open_client().group_membership("g", JSON)
        raw.join("m", _BAD)
        changes = Recorder[MembershipChange[object]]()
        group.add_listener(changes, initial=True)
        assert _sets(changes.expect_count(1)[0]) == (set(), set(), set())
        nothing: set[str] = set()
        for number, (data, expected) in enumerate(
            [
                (b"1", ({"m"}, nothing, nothing)),
                (b"2", (nothing, nothing, {"m"})),
                (_BAD, (nothing, {"m"}, nothing)),
                (b"3", ({"m"}, nothing, nothing)),
            ],
            start=2,
        ):
            raw.update("m", data)
            assert _sets(changes.expect_count(number)[-1]) == expected
        assert changes.events[-1].members == {"m": 3}


def _act(group: GroupMembership[str], member_id: str, acting: threading.Event) -> list[object]:
    """Join, update twice and leave, with data that only grows; end the reading in the end."""
    numbers, done = itertools.count(), list[object]()
    try:
        for _ in range(_ROUNDS):
            done += _joined_for_a_while(group, member_id, numbers)
    finally:
        acting.clear()
    return done


def _joined_for_a_while(
    group: GroupMembership[str], member_id: str, numbers: Iterator[int]
) -> list[_Acknowledged]:
    number = next(numbers)
    member = group.join(member_id, str(number))
    done = [_Acknowledged(member_id, number, member.order)]
    for number in itertools.islice(numbers, 2):
        group.update(member_id, str(number))
        done.append(_Acknowledged(member_id, number, member.order))
    group.leave(member_id)
    return done


def _read(group: GroupMembership[str], acting: threading.Event) -> list[object]:
    """Read without a pause for as long as all actors act; a read may fail under contention."""
    views = list[object]()
    while acting.is_set():
        with contextlib.suppress(UnavailableError):
            views.append(group.membership())
    return views


def _expect_in_order(views: Sequence[Members[str]]) -> None:
    """Require each view to be no older than the one before it."""
    for earlier, later in pairwise(views):
        assert earlier.order < later.order or (earlier.order, earlier) == (later.order, later)


def _expect_one_story(views: Iterable[Members[str]], ids: Sequence[str]) -> None:
    """Require that, in the order of *views*, no member goes back to what it was before."""
    story = sorted(views, key=lambda view: view.order)
    for member_id in ids:
        states = [view.get(member_id) for view in story]
        moves = [state for state, _ in itertools.groupby(states) if state is not None]
        numbers = [int(state) for state in moves]
        assert numbers == sorted(set(numbers)), f"{member_id} goes back: {numbers}"
    for earlier, later in pairwise(story):
        assert earlier.order != later.order or earlier == later


def _expect_shown(acknowledged: _Acknowledged, views: Iterable[Mapping[str, str]]) -> None:
    """Require *acknowledged* to be in all views of its order or a greater one, unless later."""
    for view in views:
        assert isinstance(view, Members)
        shown = view.get(acknowledged.member_id)
        if view.order >= acknowledged.order and shown is not None:
            assert int(shown) >= acknowledged.number


def _sets(change: MembershipChange[object]) -> tuple[object, object, object]:
    return change.joined, change.left, change.updated
