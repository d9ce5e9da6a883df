"""A member whose record was removed, or replaced, notices and joins again."""

import sqlite3
import threading
from collections.abc import Sized
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kip30 import Member, PluginLocator, UnavailableError
from kip30.driver.lease import Lease
from kip30.driver.records import Kind, Snapshot, Target
from kip30.runtime.member_lifecycle import MemberLifecycle
from kip30.runtime.own_record_watch import OwnRecordWatch
from kip30_conformance.polling import eventually, throughout, time_scale

from .conftest import OpenClient
from .trouble import faults

pytestmark = pytest.mark.virtual_time


class Operator:
    """Removes the record of the member ``m`` as another client of the same database would."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / "state" / "kip30.db"

    def remove(self) -> None:
        with closing(sqlite3.connect(self._file, isolation_level=None, timeout=10)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("DELETE FROM member WHERE id = x'6d'")
            connection.execute(
                "INSERT INTO change (root, kind, scope, name) SELECT id, 2, x'67', x'6d' FROM root"
            )
            connection.execute("COMMIT")


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    return Operator(tmp_path)


def watched(client: PluginLocator, member_id: str = "m") -> bool:
    feeds = client._open().subscriptions._feeds
    feed = feeds.get(Target(Kind.MEMBER, "g", member_id))
    return feed is not None and feed.latest is not None


def test_a_removed_member_is_lost_and_joins_again(
    client: PluginLocator, operator: Operator
) -> None:
    events: list[tuple[str, Member]] = []
    group = client.group_membership("g")
    first = group.join(
        "m",
        "x",
        on_lost=lambda member: events.append(("lost", member)),
        on_rejoined=lambda member: events.append(("rejoined", member)),
    )
    for incarnation in range(1, 4):
        eventually(lambda: watched(client))
        operator.remove()
        eventually(partial(_has, events, 2 * incarnation))
        assert group.membership() == {"m": "x"}
    assert [name for name, _ in events] == ["lost", "rejoined"] * 3
    assert events[0][1] is first
    assert not first.is_valid()


def test_a_removal_that_is_seen_before_its_incarnation_begins_is_not_missed(
    open_client: OpenClient, operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its event finds no incarnation to end."""
    looks, rejoined = list[Snapshot | None](), list[Member]()
    look = MemberLifecycle._watch_incarnation

    def noted_look(lifecycle: MemberLifecycle) -> None:
        feed = lifecycle._watch._feed
        latest = None if feed is None else feed.latest
        look(lifecycle)
        looks.append(latest)

    monkeypatch.setattr(MemberLifecycle, "_watch_incarnation", noted_look)
    client = open_client(**{"plugin.session.timeout.ms": 60_000})
    group, sessions = client.group_membership("g"), client._open().lease_tracker
    group.join("m", "x", on_rejoined=rejoined.append)
    eventually(lambda: watched(client), within=60)

    def remove(_lease: Lease) -> None:
        monkeypatch.undo()
        eventually(lambda: looks[-1] and looks[-1].entries)
        operator.remove()
        eventually(lambda: looks[-1] and not looks[-1].entries)

    monkeypatch.setattr(sessions, "adopt", remove)
    operator.remove()
    eventually(lambda: len(rejoined) == 2)
    assert group.membership() == {"m": "x"}


def _has(events: Sized, number: int) -> bool:
    return len(events) == number


def test_an_evicted_member_learns_of_its_successor(
    open_client: OpenClient, operator: Operator
) -> None:
    client, other = open_client(), open_client()
    evicted = threading.Event()
    group = client.group_membership("g")
    group.join("m", "old", on_evicted=lambda _: evicted.set())
    eventually(lambda: watched(client))
    faults(client).watches_paused = True
    operator.remove()
    with other.group_membership("g") as successor:
        successor.join("m", "new")
        faults(client).watches_paused = False
        assert evicted.wait(10 * time_scale())
        assert successor.membership() == {"m": "new"}
    eventually(lambda: not watched(client))


def test_its_own_updates_are_no_loss(client: PluginLocator) -> None:
    group = client.group_membership("g")
    member = group.join("m", "0")
    eventually(lambda: watched(client))
    for number in range(200):
        group.update("m", str(number))
    throughout(member.is_valid, seconds=0.2)
    assert group.membership() == {"m": "199"}


def test_members_that_soon_leave_are_never_watched(
    client: PluginLocator, monkeypatch: pytest.MonkeyPatch
) -> None:
    watches: list[Target] = []
    observe = client.backend.observe.watch

    def watch(target: Target, sink: Any) -> Any:
        watches.append(target)
        return observe(target, sink)

    monkeypatch.setattr(client.backend.observe, "watch", watch)
    client._open().subscriptions._driver = client.backend.observe
    group = client.group_membership("g")
    for number in range(20):
        group.join(f"m{number}", "x")
        group.leave(f"m{number}")
    assert not watches


def test_a_watch_that_begins_while_its_member_leaves_ends_with_it(
    client: PluginLocator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At every moment of leaving: the watch is due while members come and go."""
    monkeypatch.setattr("kip30.runtime.own_record_watch._SETTLED", 0.001)
    group = client.group_membership("g")
    for number in range(100):
        group.join(f"m{number}", "x")
        if number % 3:
            eventually(partial(watched, client, f"m{number}"))
        group.leave(f"m{number}")
    eventually(lambda: not client._open().subscriptions._feeds)
    assert not client.backend._resources.watches  # type: ignore[attr-defined]


def test_closing_ends_all_watches(client: PluginLocator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kip30.runtime.own_record_watch._SETTLED", 0.001)
    group = client.group_membership("g")
    for number in range(50):
        group.join(f"m{number}", "x")
    eventually(lambda: watched(client, "m49"))
    group.close()
    eventually(lambda: not client._open().subscriptions._feeds)


def test_a_watch_that_cannot_begin_is_tried_again(
    client: PluginLocator, operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kip30.runtime.own_record_watch._SETTLED", 0.01)
    subscriptions = client._open().subscriptions
    attach, refused = subscriptions.attach, list[Target]()

    def refuse_once(target: Target, task: Any) -> Any:
        if len(refused) < 3:
            refused.append(target)
            raise UnavailableError("not now")
        return attach(target, task)

    monkeypatch.setattr(subscriptions, "attach", refuse_once)
    lost = threading.Event()
    client.group_membership("g").join("m", "x", on_lost=lambda _: lost.set())
    eventually(lambda: watched(client))
    operator.remove()
    assert lost.wait(10 * time_scale())


def test_closed_watches_begin_no_more(client: PluginLocator) -> None:
    connection = client._open()
    task = connection.dispatcher.task(lambda: None, "none")
    watch = OwnRecordWatch(connection, "g", "m", task)
    watch.close()
    watch.member_began()
    assert not connection.subscriptions._feeds
