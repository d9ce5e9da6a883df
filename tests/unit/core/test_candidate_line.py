"""The line of candidates under trouble that only the core has to deal with."""

import os
import socket
import time

import pytest

from kip30 import PluginLocator
from kip30.names import MAX_NAME_BYTES
from kip30.runtime import vacancies
from kip30.runtime.candidate_line import CandidateLine, decode_place, encode_place, line_group
from kip30_conformance.polling import eventually, throughout, time_scale

from .conftest import OpenClient
from .trouble import faults, has_arrived

pytestmark = pytest.mark.virtual_time

LINE = line_group("s")


def _in_line(client: PluginLocator) -> int:
    return len(client.group_membership(LINE).membership_list())


def _wait_for(client: PluginLocator, number: int) -> None:
    eventually(lambda: _in_line(client) == number)


def test_a_candidate_that_leads_at_once_joins_no_line(open_client: OpenClient) -> None:
    client, other = open_client(), open_client()
    election = client.leader_election("s")
    for _ in range(3):
        assert election.nominate("a", "")
        election.resign("a")
    assert election.nominate("a", "")
    throughout(lambda: _in_line(other) == 0, seconds=0.2)


def test_a_candidate_leaves_the_line_when_it_leads_or_resigns(open_client: OpenClient) -> None:
    first, second, third = (open_client().leader_election("s") for _ in range(3))
    observer = open_client()
    for name, election in (("a", first), ("b", second), ("c", third)):
        election.nominate(name, "")
    eventually(lambda: _in_line(observer) == 2)
    third.resign("c")
    eventually(lambda: _in_line(observer) == 1)
    first.resign("a")
    assert second.wait_elected("b", 10)
    eventually(lambda: _in_line(observer) == 0)


@pytest.mark.parametrize("times", [1, 2, 5])
def test_lost_answers_to_joining_the_line_leave_no_place_behind(
    open_client: OpenClient, times: int
) -> None:
    client, other = open_client(), open_client()
    leads, waits = other.leader_election("s"), client.leader_election("s")
    leads.nominate("a", "")
    faults(client).lose_answers("membership.claim", times=times)
    waits.nominate("b", "")
    eventually(lambda: faults(client).counted() == times)
    eventually(lambda: _in_line(other) == 1)
    leads.resign("a")
    assert waits.wait_elected("b", 10)
    eventually(lambda: _in_line(other) == 0)


def test_a_resignation_takes_back_a_place_whose_claim_was_never_answered(
    open_client: OpenClient,
) -> None:
    client, other = open_client(), open_client()
    waits = client.leader_election("s")
    other.leader_election("s").nominate("a", "")
    faults(client).lose_answers("membership.claim", times=None)
    waits.nominate("b", "")
    eventually(lambda: _in_line(other) == 1)
    faults(client).clear()
    waits.resign("b")
    eventually(lambda: _in_line(other) == 0)


def test_a_request_for_a_place_that_arrives_after_its_end_leaves_no_place_behind(
    open_client: OpenClient,
) -> None:
    client, other = open_client(), open_client()
    waits = client.leader_election("s")
    other.leader_election("s").nominate("a", "")
    faults(client).arrive_late("membership.claim", 2.0 * time_scale())
    waits.nominate("b", "")
    eventually(lambda: _in_line(other) == 1)
    waits.resign("b")
    eventually(lambda: _in_line(other) == 0)
    assert not has_arrived()
    eventually(has_arrived)
    eventually(lambda: _in_line(other) == 0)


def test_a_candidate_that_cannot_join_the_line_leads_all_the_same(open_client: OpenClient) -> None:
    client, other = open_client(), open_client()
    leads, waits = other.leader_election("s"), client.leader_election("s")
    leads.nominate("a", "")
    faults(client).fail("membership.claim", times=None)
    waits.nominate("b", "")
    eventually(lambda: faults(client).counted() > 1)
    leads.resign("a")
    assert waits.wait_elected("b", 10)


def test_a_candidate_that_cannot_look_leads_all_the_same(open_client: OpenClient) -> None:
    client, other = open_client(), open_client()
    leads, waits = other.leader_election("s"), client.leader_election("s")
    leads.nominate("a", "")
    faults(client).fail("observe.snapshot", times=None)
    waits.nominate("b", "")
    eventually(lambda: faults(client).counted() > 1)
    leads.resign("a")
    assert waits.wait_elected("b", 10)
    faults(client).clear()
    eventually(lambda: _in_line(other) == 0)


def test_a_place_that_an_operator_removed_is_taken_again(open_client: OpenClient) -> None:
    clients = [open_client() for _ in range(4)]
    elections = [client.leader_election("s") for client in clients]
    for number, election in enumerate(elections):
        election.nominate(str(number), "")
        _wait_for(clients[0], number)
    line = elections[2]._campaign._line
    claim = line._place.claim
    assert claim is not None
    clients[0].backend.membership.release(LINE, claim).result()
    elections[1].resign("1")  # which the next one in the line watches
    eventually(lambda: _in_line(clients[0]) == 2, what="two of two that wait are in the line")
    elections[0].resign("0")
    eventually(lambda: elections[2].leadership("2") or elections[3].leadership("3"))


def test_a_lost_session_loses_the_place_and_not_the_candidacy(open_client: OpenClient) -> None:
    client, other = open_client(), open_client()
    leads, waits = other.leader_election("s"), client.leader_election("s")
    leads.nominate("a", "")
    waits.nominate("b", "")
    (place,) = eventually(lambda: other.group_membership(LINE).membership_list())
    faults(client).expire_session()
    eventually(lambda: other.group_membership(LINE).membership_list() - {place})
    leads.resign("a")
    assert waits.wait_elected("b", 10)


def test_candidates_of_one_handle_have_one_place_and_go_behind_the_others(
    open_client: OpenClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vacancies, "TURN_SECONDS", 3.0)  # that no slow machine exceeds
    clients = [open_client() for _ in range(3)]
    first, many, last = (client.leader_election("s") for client in clients)
    first.nominate("first", "")
    for name in ("a", "b"):
        many.nominate(name, "")
    eventually(lambda: _in_line(clients[0]) == 1)
    last.nominate("last", "")
    eventually(lambda: _in_line(clients[0]) == 2)
    first.resign("first")
    assert many.wait_elected("a", 30)
    eventually(lambda: many._campaign._line.rank == 1)
    eventually(lambda: last._campaign._line.rank == 0)
    many.resign("a")
    assert last.wait_elected("last", 30)
    last.resign("last")
    assert many.wait_elected("b", 30)


def test_one_that_is_not_near_looks_at_the_service_now_and_then(
    open_client: OpenClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CandidateLine, "is_near", lambda line: line._looks)
    client, other = open_client(), open_client()
    leads, waits = other.leader_election("s"), client.leader_election("s")
    leads.nominate("a", "")
    waits.nominate("b", "")
    eventually(lambda: _in_line(other) == 1)
    leads.resign("a")
    assert waits.wait_elected("b", 20)


def test_a_service_with_the_longest_name_has_a_line(open_client: OpenClient) -> None:
    service = "s" * MAX_NAME_BYTES
    first, second = (open_client().leader_election(service) for _ in range(2))
    observer = open_client().group_membership(line_group(service))
    first.nominate("a", "")
    second.nominate("b", "")
    eventually(lambda: len(observer.membership_list()) == 1)
    first.resign("a")
    assert second.wait_elected("b", 10)


def test_a_place_has_the_candidate_its_process_and_when_it_was_taken() -> None:
    before = time.time()
    place = decode_place(encode_place("ü\u202e"))
    assert place is not None
    assert (place.candidate, place.host, place.pid) == (
        "ü\u202e",
        socket.gethostname(),
        os.getpid(),
    )
    assert place.since >= before - 0.001


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"\xff", b"[]", b"5", b'{"candidate": "c"}', b"[" * 100_000),
        b'{"candidate": "c", "host": "h", "pid": 1e999, "since": 0}',
    ],
)
def test_data_of_another_program_is_no_place(data: bytes) -> None:
    assert decode_place(data) is None
