"""Claims end here before they can end in the store, where a row may end a second early."""

import time

import pytest

from kip30 import Leadership, Member
from kip30.driver.clock import SystemClock
from kip30_conformance.clients.callback_recorder import Recorder
from kip30_conformance.polling import eventually, throughout
from kip30_conformance.servers import Ensemble
from tests.unit.clients import Open

from .admin import Admin
from .rows import ROW_SECONDS, ends, row

SESSION_SECONDS = 3.0
MARGIN_SECONDS = 0.3


def test_the_deadline_is_a_second_and_the_margin_before_the_rows_end(
    open_client: Open, admin: Admin, namespace: str
) -> None:
    before = SystemClock().now()
    member = open_client().group_membership("g").join("m", "")
    after = SystemClock().now()
    found = row(admin, namespace)
    assert found is not None
    assert member.timeout_seconds == SESSION_SECONDS
    assert before <= member.deadline - SESSION_SECONDS + MARGIN_SECONDS <= after
    assert found["seconds"] in {ROW_SECONDS - 1, ROW_SECONDS}


@pytest.mark.parametrize("offset", [0.0, 0.3, 0.6, 0.9])
def test_a_disconnected_member_ends_before_its_row_expires(
    ensemble: Ensemble, open_client: Open, admin: Admin, namespace: str, offset: float
) -> None:
    with ensemble.link() as link:
        group = open_client(**link.settings()).group_membership("g")
        eventually(lambda: abs(time.time() % 1 - offset) < 0.05, what="a part of a second")
        member = group.join("m", "")
        link.cut()
        ended, gone = ends(member, [admin], namespace)
        link.heal()
    assert ended < gone
    assert gone - ended < ROW_SECONDS


def test_one_lease_over_all_claims(open_client: Open, admin: Admin, namespace: str) -> None:
    client = open_client()
    lost = Recorder[Member | Leadership]()
    group, election = client.group_membership("g"), client.leader_election("s")
    member = group.join("m", "", on_lost=lost)
    election.nominate("c", "", on_lost=lost)
    term = election.leadership("c")
    assert term is not None
    assert member.lease is term.lease
    admin.tell(
        "DELETE FROM kip30.members WHERE root = %s AND in_group = 'g' AND id = 'm' IF EXISTS",
        namespace,
    )
    eventually(lambda: set(lost.events) == {member, term}, what="both are lost")
    new = eventually(lambda: group.member("m"), what="the member joins again")
    again = eventually(lambda: election.leadership("c"), what="the candidate leads again")
    assert new.incarnation > member.incarnation
    assert again.epoch > term.epoch


def test_all_columns_are_renewed(open_client: Open, admin: Admin, namespace: str) -> None:
    group = open_client().group_membership("g")
    group.join("m", "old")
    group.update("m", "new")
    throughout(lambda: group.membership() == {"m": "new"}, seconds=1.5 * ROW_SECONDS)
    assert row(admin, namespace) is not None
