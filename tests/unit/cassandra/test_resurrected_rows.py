"""Rows that reappear after they were missed, because a node delayed a renewal."""

from collections.abc import Callable
from typing import NamedTuple

import pytest

from kip30 import LeaderChange, MembershipChange
from kip30.driver.clock import ManualClock
from kip30.driver.records import Entry, Version
from kip30_backends.cassandra.target_states import ResurrectedRows
from kip30_conformance.clients.callback_recorder import Recorder
from kip30_conformance.polling import eventually
from tests.unit.clients import Open

from .admin import Admin

SESSION_SECONDS = 3.0


class Statements(NamedTuple):
    """Statements that read a row, and insert it again."""

    read: str
    make: str


MEMBER = Statements(
    "SELECT JSON root, in_group, id, version, nonce, data FROM kip30.members"
    " WHERE root = %s AND in_group = 'g'",
    "INSERT INTO kip30.members JSON %s DEFAULT UNSET IF NOT EXISTS USING TTL 60",
)
LEADER = Statements(
    "SELECT JSON root, service, seat, candidate, nonce, data FROM kip30.leaders"
    " WHERE root = %s AND service = 's'",
    "INSERT INTO kip30.leaders JSON %s DEFAULT UNSET IF NOT EXISTS USING TTL 60",
)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def resurrected(clock: ManualClock) -> ResurrectedRows:
    return ResurrectedRows(clock, SESSION_SECONDS)


def test_a_vanished_row_is_left_out_for_two_timeouts_and_a_second(
    clock: ManualClock, resurrected: ResurrectedRows
) -> None:
    old, other = {"m": Entry(Version(1), "old", b"")}, {"n": Entry(Version(2), "other", b"")}
    assert resurrected.left_out(old) == old
    assert resurrected.left_out(other) == other
    clock.advance(1.9 * SESSION_SECONDS)
    assert resurrected.left_out({**old, **other}) == other
    clock.advance(0.5 * SESSION_SECONDS)
    assert resurrected.left_out({**old, **other}) == {**old, **other}


def test_a_row_claimed_again_under_the_same_nonce_is_not_left_out(
    resurrected: ResurrectedRows,
) -> None:
    old, new = ({"m": Entry(Version(number), "same", b"")} for number in (1, 2))
    assert resurrected.left_out(old) == old
    assert resurrected.left_out({}) == {}
    assert resurrected.left_out(new) == new
    assert resurrected.left_out(old) == {}


def test_a_row_with_a_restarted_version_is_not_left_out(resurrected: ResurrectedRows) -> None:
    for nonce in ("before all was lost", "after"):
        entries = {"m": Entry(Version(1), nonce, b"")}
        assert resurrected.left_out(entries) == entries
        assert resurrected.left_out({}) == {}


def test_a_resurrected_member_is_hidden_from_listeners_for_a_while(
    open_client: Open, admin: Admin, namespace: str
) -> None:
    heard = Recorder[MembershipChange[str]]()
    open_client().group_membership("g").add_listener(heard)
    group = open_client().group_membership("g")
    group.join("m", "")
    heard.expect(lambda event: set(event.members) == {"m"})
    bring_back = _remembered(admin, MEMBER, namespace)
    group.leave("m")
    eventually(lambda: not heard.events[-1].members, what="the listener is notified")
    bring_back()
    assert group.membership_list() == {"m"}, "a read finds it"
    group.join("new", "")
    event = heard.expect(lambda event: "new" in event.members)
    assert set(event.members) == {"new"}
    assert set(group.membership_list()) == {"m", "new"}
    heard.expect(lambda event: set(event.members) == {"m", "new"}, within=20)


def test_listeners_are_not_notified_of_a_resurrected_term(
    open_client: Open, admin: Admin, namespace: str
) -> None:
    heard = Recorder[LeaderChange[str]]()
    open_client().leader_election("s").add_listener(heard)
    election = open_client().leader_election("s")
    with election.lead("c", "") as term:
        heard.expect(lambda event: event.leader is not None)
        bring_back = _remembered(admin, LEADER, namespace)
    eventually(lambda: heard.events[-1].leader is None, what="the listener is notified")
    bring_back()
    found = election.get_leader()
    assert found is not None
    assert found.epoch == term.epoch, "a read finds it"
    admin.tell(
        "DELETE FROM kip30.leaders WHERE root = %s AND service = 's' AND seat = 0 IF EXISTS",
        namespace,
    )
    with election.lead("c", "") as new:
        eventually(lambda: _epochs(heard)[-1:] == [new.epoch], what="the listener is notified")
    assert _epochs(heard) == [term.epoch, new.epoch]


def _epochs(heard: Recorder[LeaderChange[str]]) -> list[int]:
    return [event.leader.epoch for event in heard.events if event.leader is not None]


def _remembered(admin: Admin, statements: Statements, namespace: str) -> Callable[[], object]:
    """Return a function that inserts the only present row again."""
    (row,) = admin.tell(statements.read, namespace)
    return lambda: admin.tell(statements.make, row["[json]"])
