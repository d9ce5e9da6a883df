"""The health endpoint of a program, on the embedded store."""

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from kip30 import LeaderElection, Leadership, PluginLocator, UsageError
from kip30.aio import AsyncPluginLocator
from kip30.config import Written
from kip30.driver.clock import Clock, ManualClock, SystemClock
from kip30.driver.lease import Lease
from kip30.driver.records import Claim, Entry, Version
from kip30.errors import LifecycleError
from kip30.runtime.term_work import WorkInProgress
from kip30.serving import Health
from kip30.serving.health import HealthServer
from kip30.serving.service_state import Nomination, ServiceState
from kip30_conformance.driver_faults import ALL, DriverFault
from kip30_conformance.polling import eventually
from tests.embedded_faults import faults_of

from .raw_client import Got, RawClient, eventually_refused

SESSION_SECONDS = 10.0
Open = Callable[..., PluginLocator]
StartHealth = Callable[..., Health]


@pytest.fixture
def properties(tmp_path: Path) -> dict[str, Written]:
    return {
        "plugin.backend": "embedded",
        "plugin.embedded.directory": tmp_path / "state",
        "plugin.session.timeout.ms": round(SESSION_SECONDS * 1000),
    }


@pytest.fixture
def open_client(properties: dict[str, Written]) -> Iterator[Open]:
    with ExitStack() as clients:

        def open_one(clock: Clock | None = None, **more: Written) -> PluginLocator:
            locator = PluginLocator(clock=clock).startup({**properties, **more})
            return clients.enter_context(locator)

        yield open_one


@pytest.fixture
def start() -> Iterator[StartHealth]:
    with ExitStack() as started:

        def start_one(
            locator: PluginLocator, elections: Iterable[LeaderElection[Any]], **more: Any
        ) -> Health:
            settings = {"address": "127.0.0.1:0", **more}
            return started.enter_context(Health(locator, elections, **settings))

        yield start_one


def port_of(server: HealthServer) -> int:
    return int(server.address.rpartition(":")[2])


def ask(server: HealthServer, path: str, **fields: str) -> Got:
    with RawClient(port_of(server)) as client:
        return client.ask(path, **fields)


def statuses(server: HealthServer, query: str = "") -> tuple[int, int, int]:
    """Return those of the paths about elections."""
    leader, replica, readiness = (
        ask(server, f"/{path}{query}").status for path in ("leader", "replica", "readiness")
    )
    return leader, replica, readiness


LEADER, REPLICA, NEITHER = (200, 503, 200), (503, 200, 200), (503, 503, 503)


def test_the_paths_follow_an_election(open_client: Open, start: StartHealth) -> None:
    clients = [open_client(), open_client()]
    elections = [client.leader_election("s") for client in clients]
    first, second = (
        start(client, [election]) for client, election in zip(clients, elections, strict=True)
    )
    assert statuses(first) == NEITHER  # nothing is nominated
    assert elections[0].nominate("a", "secret data")
    assert not elections[1].nominate("b", "secret data")
    assert statuses(first) == LEADER
    eventually(lambda: statuses(second) == REPLICA)
    elections[0].resign("a")
    assert statuses(first) == NEITHER
    eventually(lambda: statuses(second) == LEADER)
    assert not elections[0].nominate("a", "secret data")
    eventually(lambda: statuses(first) == REPLICA)
    assert b"secret" not in ask(first, "/service").body


def test_the_body_describes_the_part_in_the_election(open_client: Open, start: StartHealth) -> None:
    client = open_client()
    election = client.leader_election("s")
    server = start(client, [election])
    unset = {"service": "s", "candidate": None, "role": None, "epoch": None, "since": None}
    eventually(lambda: ask(server, "/service").records[0]["last_seen"])
    (before,) = ask(server, "/service").records
    seen = before.pop("last_seen")
    assert before == {**unset, "seconds_left": None, "store": "embedded"}
    assert abs(time.time() - seen) < SESSION_SECONDS
    begun = time.time()
    assert election.nominate("a", "")
    for path in ("leader", "replica", "readiness", "service"):
        (record,) = ask(server, f"/{path}").records
        led = (record["service"], record["candidate"], record["role"], record["epoch"])
        assert led == ("s", "a", "leader", 1)
        assert begun - 1 <= record["since"] <= time.time() + 1
        assert 0 < record["seconds_left"] < SESSION_SECONDS
        assert list(record) == list(ServiceState._fields)


def test_a_term_ends_by_the_clock_of_its_lease(open_client: Open) -> None:
    """And not by an event, which may come late: here no other task looks at the lease."""
    clock = ManualClock()
    lease = Lease(clock, sent_at=clock.now(), timeout_seconds=10, margin_seconds=1)
    claim = Claim("a", Entry(Version(7), "nonce", b""), lease, 1)
    term = Leadership("s", claim, b"", lambda: None, Future, progress=WorkInProgress(clock))
    nomination = Nomination("s", "a", is_nominated=True, term=term)
    with HealthServer(
        open_client(), lambda: [nomination], "127.0.0.1:0", session_timeout_seconds=10
    ) as server:
        clock.advance(8.9)
        got = ask(server, "/leader")
        assert (got.status, got.records[0]["epoch"]) == (200, 7)
        assert got.records[0]["seconds_left"] == pytest.approx(0.1)
        clock.advance(0.1)
        got = ask(server, "/leader")
        assert (got.status, got.records[0]["epoch"]) == (503, None)
        assert lease.end_reason is None


def test_one_that_has_not_seen_the_store_lately_is_no_replica(
    open_client: Open, start: StartHealth
) -> None:
    clock = ManualClock(SystemClock().now())  # the other session counts by that
    session = {"plugin.session.timeout.ms": 1000, "plugin.operation.timeout.ms": 1000}
    first, client = open_client(), open_client(clock, **session)
    assert first.leader_election("s").nominate("a", "")
    election = client.leader_election("s")
    assert not election.nominate("b", "")
    server = start(client, [election])
    eventually(lambda: statuses(server) == REPLICA)
    faults_of(client.backend).add(DriverFault(operation=ALL, times=None))
    clock.advance(0.9)
    eventually(lambda: faults_of(client.backend).counted() > 0)
    assert statuses(server) == REPLICA
    clock.advance(0.2)
    assert statuses(server) == NEITHER
    assert ask(server, "/liveness").status == 200
    faults_of(client.backend).clear()
    eventually(lambda: statuses(server) == REPLICA)


def test_a_leader_is_a_replica_when_its_term_is_over(open_client: Open, start: StartHealth) -> None:
    """The renewals of the term have shown the store."""
    client = open_client()
    election = client.leader_election("s")
    assert election.nominate("a", "")
    server = start(client, [election])
    assert statuses(server) == LEADER
    election.resign("a")
    with open_client().leader_election("s").lead("other", ""):
        election.nominate("a", "")
        assert statuses(server) == REPLICA


def test_all_services_must_fulfil_a_condition_or_the_one_that_is_named(
    open_client: Open, start: StartHealth
) -> None:
    client, other = open_client(), open_client()
    elections = [client.leader_election(name) for name in ("a", "ö &=", "c")]
    server = start(client, elections)
    for election in elections:
        assert election.nominate("x", "")
    assert statuses(server) == LEADER
    elections[1].resign("x")
    assert other.leader_election("ö &=").nominate("y", "")
    assert not elections[1].nominate("x", "")
    eventually(lambda: statuses(server) == (503, 503, 200))
    assert statuses(server, "?service=c") == LEADER
    assert statuses(server, "?x=1&service=%C3%B6+%26%3D") == REPLICA
    assert statuses(server, "?service=a&service=c") == LEADER
    assert statuses(server, "?other") == (503, 503, 200)
    assert statuses(server, "?service=a&service=b") == (404, 404, 404)
    assert ask(server, "/leader?" + "x=1&" * 100).status == 400
    got = ask(server, "/service")
    assert [one["service"] for one in got.records] == ["a", "ö &=", "c"]
    assert got.fields["Content-Type"] == "application/x-ndjson"
    assert ask(server, "/service?service=a").fields["Content-Type"] == "application/json"


def test_candidates_of_one_service_lead_it_together(open_client: Open, start: StartHealth) -> None:
    client = open_client()
    election = client.leader_election("s")
    server = start(client, [election, client.leader_election("s")])
    assert election.nominate("a", "")
    assert not election.nominate("b", "")
    assert statuses(server) == LEADER
    shown = [(one["candidate"], one["role"]) for one in ask(server, "/service").records]
    assert shown[0] == ("a", "leader")
    assert [candidate for candidate, _ in shown] == ["a", "b", None]


def test_a_loop_that_stands_still_is_not_alive(
    open_client: Open, start: StartHealth, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = open_client()
    server = start(client, [client.leader_election("s")])
    first = ask(server, "/liveness")  # when there was never said to be a loop
    assert (first.status, first.records) == (
        200,
        [{"alive": True, "seconds_since_iteration": None}],
    )
    begun, passed = time.monotonic(), [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: begun + passed[0])
    server.mark_alive()
    passed[0] = 2 * SESSION_SECONDS - 1
    assert ask(server, "/liveness").status == 200
    passed[0] = 2 * SESSION_SECONDS + 1
    stuck = ask(server, "/liveness")
    ago = 2 * SESSION_SECONDS + 1
    assert (stuck.status, stuck.records) == (
        503,
        [{"alive": False, "seconds_since_iteration": ago}],
    )
    server.mark_alive()
    assert ask(server, "/liveness").status == 200


def test_the_first_page_lists_the_paths(open_client: Open, start: StartHealth) -> None:
    client = open_client()
    server = start(client, [client.leader_election("s")], metrics=lambda: "x 1\n")
    paths = ask(server, "/").records[0]["paths"]
    assert {ask(server, path).status for path in paths} <= {200, 503}
    assert "/metrics" in paths
    assert ask(server, "/history").status == 404
    assert ask(server, "//leader").status == 404
    assert ask(server, "/leader/").status == 404


def test_metrics_are_there_if_the_program_has_some(open_client: Open, start: StartHealth) -> None:
    client = open_client()
    elections = [client.leader_election("s")]
    assert ask(start(client, elections), "/metrics").status == 404
    got = ask(start(client, elections, metrics=lambda: 'x{a="ö"} 1\n'), "/metrics")
    assert (got.status, got.body.decode()) == (200, 'x{a="ö"} 1\n')
    assert got.fields["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"


def test_metrics_that_fail_are_an_error_and_leave_the_other_paths(
    open_client: Open, start: StartHealth
) -> None:
    client = open_client()
    server = start(client, [client.leader_election("s")], metrics=lambda: str(1 // 0))
    assert ask(server, "/metrics").status == 500
    assert ask(server, "/liveness").status == 200


def test_a_locator_that_is_closed_leads_nothing(open_client: Open, start: StartHealth) -> None:
    client = open_client()
    election = client.leader_election("s")
    assert election.nominate("a", "")
    server = start(client, [election])
    assert statuses(server) == LEADER
    client.close()
    assert statuses(server) == NEITHER
    assert ask(server, "/service").records[0]["store"] is None


def test_a_forked_child_may_close_it_and_harms_no_parent(
    open_client: Open, start: StartHealth
) -> None:
    client = open_client()
    election = client.leader_election("s")
    assert election.nominate("a", "")
    server = start(client, [election])
    if (child := os.fork()) == 0:
        server.close()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert statuses(server) == LEADER


def test_names_of_hosts_can_be_given(open_client: Open, start: StartHealth) -> None:
    client = open_client()
    server = start(client, [client.leader_election("s")], hosts=["web1"], address="localhost:0")
    with RawClient(port_of(server), "localhost") as web:
        assert web.ask("/", Host="web1:80").status == 200
        assert web.ask("/", Host="localhost").status == 200
        assert web.ask("/", Host="web2").status == 421


def test_a_mistake_opens_nothing(open_client: Open) -> None:
    client = open_client()
    elections = [client.leader_election("s")]
    with pytest.raises(UsageError, match="no elections"):
        Health(client, [], "127.0.0.1:0")
    with pytest.raises(UsageError, match="no address to listen at"):
        Health(client, elections, "8008x")
    with pytest.raises(UsageError, match="no name of a host"):
        Health(client, elections, "127.0.0.1:0", hosts=["http://web1"])
    with pytest.raises(LifecycleError, match="call startup"):
        Health(PluginLocator(), elections, "127.0.0.1:0")
    with Health(client, elections, "127.0.0.1:0") as first:
        with pytest.raises(OSError, match="cannot listen at"):
            Health(client, elections, first.address)
        port = port_of(first)
    eventually_refused(port)


def test_elections_of_an_event_loop_are_answered_about(properties: dict[str, Written]) -> None:
    async def main() -> None:
        async with AsyncPluginLocator(properties) as locator:
            election = locator.leader_election("s")
            with Health(locator.locator, [election.handle], "127.0.0.1:0") as server:
                assert await asyncio.to_thread(statuses, server) == NEITHER
                async with election.lead("a", "") as term:
                    assert await asyncio.to_thread(statuses, server) == LEADER
                    assert election.candidates() == {"a": term}
                    assert term.since == pytest.approx(time.time(), abs=60)
                assert await asyncio.to_thread(statuses, server) == NEITHER

    asyncio.run(main())
