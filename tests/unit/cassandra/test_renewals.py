"""Renewing much: together what is in one place, and never all at once."""

from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial

import pytest

from kip30 import Member, UnavailableError, Version
from kip30.driver.kit.futures import Completed
from kip30.driver.kit.operation import Steps
from kip30.driver.records import Entry
from kip30_backends.cassandra import CassandraBackend
from kip30_backends.cassandra.partition_queue import ConcurrencyLimit
from kip30_backends.cassandra.session import (
    ClaimBatch,
    ClaimRow,
    HeldClaim,
    renew_all,
    renewal_batches,
)
from kip30_conformance.clients.callback_recorder import Recorder
from kip30_conformance.polling import eventually, time_scale
from kip30_conformance.servers import Ensemble
from tests.unit.clients import PATIENT, Open

from .admin import Admin

MEMBERS = 120
LANES = 16


def _held(number: int, *, kind: str = "members", scope: str = "g", size: int = 1) -> HeldClaim:
    entry = Entry(Version(number), f"n{number}", bytes(size))
    return HeldClaim(ClaimRow(kind, scope, f"m{number}"), entry, sent_at=float(number))


def _sizes(made: Sequence[ClaimBatch]) -> list[int]:
    return [len(batch) for batch in made]


def test_members_of_one_group_travel_together() -> None:
    held = [_held(number) for number in range(MEMBERS)]
    assert _sizes(renewal_batches(held)) == [50, 50, 20]
    assert _sizes(renewal_batches(_held(number, scope=str(number % 3)) for number in range(9))) == [
        3,
        3,
        3,
    ]


def test_large_ones_do_not_fill_a_statement() -> None:
    assert _sizes(renewal_batches(_held(number, size=100_000) for number in range(5))) == [2, 2, 1]
    assert _sizes(renewal_batches([_held(0, size=300_000), _held(1)])) == [1, 1]


def test_the_claim_renewed_longest_ago_is_renewed_first() -> None:
    held = [_held(number, kind="leaders", scope=f"s{9 - number}") for number in (3, 1, 2)]
    assert [batch[0].sent_at for batch in renewal_batches(held)] == [1.0, 2.0, 3.0]


def test_a_limited_number_runs_at_once_and_each_response_is_reported() -> None:
    held = [[_held(number, scope=str(number))] for number in range(3 * LANES)]
    under_way, heard = list[Future[ClaimBatch]](), list[Future[ClaimBatch]]()

    def renew(_: ClaimBatch) -> Future[ClaimBatch]:
        under_way.append(Future())
        return under_way[-1]

    done = renew_all(held, renew, heard.append, ConcurrencyLimit(LANES))
    for number in range(len(held)):
        assert len(under_way) == min(number + LANES, len(held))
        assert not done.done()
        under_way[number].set_result(())
    assert len(heard) == len(held)
    assert done.done()


def test_the_parcels_of_one_place_come_one_after_the_other() -> None:
    """So that they do not keep others waiting who write there too."""
    there, elsewhere = [[_held(number)] for number in range(3)], [[_held(9, scope="h")]]
    under_way, heard = list[tuple[ClaimBatch, Future[ClaimBatch]]](), list[Future[ClaimBatch]]()

    def renew(batch: ClaimBatch) -> Future[ClaimBatch]:
        under_way.append((batch, Future()))
        return under_way[-1][1]

    done = renew_all([*there, *elsewhere], renew, heard.append, ConcurrencyLimit(LANES))
    assert [batch for batch, _ in under_way] == [there[0], *elsewhere]
    under_way[0][1].set_exception(UnavailableError("no answer"))
    assert [batch for batch, _ in under_way] == [there[0], *elsewhere, there[1]]
    under_way[2][1].set_result(())
    under_way[3][1].set_result(())
    assert not done.done()
    under_way[1][1].set_result(())
    assert done.done()
    assert len(heard) == 4


def test_a_failure_stops_nothing() -> None:
    held = [[_held(number)] for number in range(1000)]
    heard = list[Future[ClaimBatch]]()

    def renew(batch: ClaimBatch) -> Future[ClaimBatch]:
        if batch[0].sent_at % 2:
            raise UnavailableError("no answer")
        return Completed(())

    assert renew_all(held, renew, heard.append, ConcurrencyLimit(LANES)).done()
    assert len([one for one in heard if one.exception()]) == 500


def test_nothing_to_renew() -> None:
    assert renewal_batches([]) == []
    assert renew_all([], lambda _: Completed(()), print, ConcurrencyLimit(LANES)).done()


@pytest.mark.timeout(300)
def test_many_members_of_one_group_cost_little(ensemble: Ensemble, open_client: Open) -> None:
    with ensemble.link() as link:
        group = open_client(**link.settings()).group_membership("g")
        members = [group.join(f"m{number}", str(number)) for number in range(MEMBERS)]
        before, deadline = link.round_trips(), members[0].deadline
        eventually(lambda: members[0].deadline > deadline + 3, what="it was renewed three times")
        assert link.round_trips() - before < MEMBERS / 2
        assert all(member.is_valid() for member in members)
        assert group.membership() == {f"m{number}": str(number) for number in range(MEMBERS)}


@pytest.mark.timeout(300)
def test_many_members_leave_with_their_client(open_client: Open) -> None:
    client, group = open_client(**PATIENT), open_client(**PATIENT).group_membership("g")
    for number in range(MEMBERS):
        client.group_membership("g").join(f"m{number}", "")
    assert len(group.membership_list()) == MEMBERS
    client.close()
    assert not group.membership_list()


def _until_done(done: Future[None], _until: float) -> Steps[None]:
    yield done


def test_a_renewal_overtakes_most_of_the_requests_that_wait(open_client: Open) -> None:
    client = open_client(**PATIENT)
    client.group_membership("g").join("m", "")
    assert isinstance(client.backend, CassandraBackend)
    claims = client.backend._resources.claims
    first, stuck = Future[None](), Future[None]()
    waiting = [first, *(Completed(None) for _ in range(50)), stuck]
    turns = [claims.in_turn(("members", "g"), partial(_until_done, done)) for done in waiting]
    renewal = claims._renewed(claims.sessions.held())
    first.set_result(None)
    assert renewal.result(20 * time_scale()) == ()
    assert not turns[-1].done()
    stuck.set_result(None)
    turns[-1].result(20 * time_scale())


@pytest.mark.timeout(300)
def test_one_of_many_that_is_gone_is_found(open_client: Open, admin: Admin, namespace: str) -> None:
    group, lost = open_client().group_membership("g"), Recorder[Member]()
    names = {f"m{number}" for number in range(MEMBERS)}
    for name in names:
        group.join(name, "", on_lost=lost)
    admin.tell(
        "DELETE FROM kip30.members WHERE root = %s AND in_group = 'g' AND id = 'm77' IF EXISTS",
        namespace,
    )
    eventually(lambda: {one.id for one in lost.events} == names, what="the lease is over")
    eventually(lambda: group.membership_list() == names, within=30, what="all join again")
