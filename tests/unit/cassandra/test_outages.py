"""Nodes that fall silent, or come back empty."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cassandra.cluster import NoHostAvailable

from kip30 import OutcomeUnknownError, UnavailableError, ValueChange
from kip30_backends.cassandra.client.connections import ClusterConnections
from kip30_conformance.clients.callback_recorder import Recorder
from kip30_conformance.polling import eventually, time_scale
from kip30_conformance.servers import Ensemble, Link
from kip30_conformance.servers.needing import needed
from tests.unit.clients import Open

from .conftest import OPERATION_SECONDS

A_MOMENT = 0.3


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Ensemble]:
    with needed("cassandra", folder=tmp_path / "outages") as servers:
        yield servers


@pytest.mark.large
def test_a_node_that_comes_back_empty(own: Ensemble, open_client: Open) -> None:
    client, heard = open_client(**own.settings()), Recorder[ValueChange[str]]()
    storage = client.storage()
    storage.put("k", "old")
    client.listener_registry().add_value_change_listener("k", heard)
    election = client.leader_election("s")
    assert election.nominate("c", "")
    old = election.leadership("c")
    assert old is not None
    own.nodes[0].restart(empty=True)
    eventually(lambda: heard.events and heard.events[-1].value is None, within=30)
    eventually(lambda: not old.is_valid(), what="the term of the lost data is over")
    eventually(lambda: election.leadership("c"), within=30, what="there is a new term")
    storage.put("k", "new")
    eventually(lambda: heard.events[-1].value == "new")


def test_calls_and_close_end_in_time_at_a_silent_node(link: Link, open_client: Open) -> None:
    client = open_client(**link.settings())
    client.storage().put("frozen", "")
    client.group_membership("g").join("m", "")
    link.cut()
    started = time.monotonic()
    futures = [client.storage().fetch(f"k{number}") for number in range(1000)]
    assert {type(future.exception()) for future in futures} == {UnavailableError}
    with pytest.raises((OutcomeUnknownError, UnavailableError)):
        client.storage().update("frozen", "v")
    # A thousand reads end at once, which takes the machine a moment each.
    assert time.monotonic() - started < 2.1 * OPERATION_SECONDS + 4 * A_MOMENT * time_scale()
    started = time.monotonic()
    client.close()
    assert time.monotonic() - started < OPERATION_SECONDS + A_MOMENT * time_scale()


def test_startup_connects_again_while_there_is_time(link: Link, open_client: Open) -> None:
    """One connection may take longer than the driver waits for it: 2.5 s at first."""
    connect = {"plugin.connect.timeout.ms": round(30_000 * time_scale())}
    before = link.counted().connections
    link.half_open("client")  # the node accepts, and its answers arrive late
    with ThreadPoolExecutor(1) as executor:
        opening = executor.submit(open_client, **link.settings(), **connect)
        eventually(lambda: link.counted().connections - before >= 2, within=20)
        link.heal()
        opening.result().storage().put("k", "v")


def test_startup_pauses_where_connections_are_dropped_at_once(
    link: Link, open_client: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a node that has as many connections as it takes, after the first one."""
    attempts: list[ClusterConnections] = []

    def connect(self: ClusterConnections) -> None:
        attempts.append(self)
        raise NoHostAvailable("Unable to connect to any servers", [])

    monkeypatch.setattr(ClusterConnections, "_connect", connect)
    monkeypatch.setattr(ClusterConnections, "_is_late", lambda *_: True)
    with pytest.raises(UnavailableError):
        open_client(**link.settings(), **{"plugin.connect.timeout.ms": 2000})
    assert 2 <= len(attempts) < 12  # one a second in the end


def test_startup_ends_in_time_at_a_node_that_stays_silent(link: Link, open_client: Open) -> None:
    threads = set(threading.enumerate())
    link.half_open("client")
    seconds = 6.0
    started = time.monotonic()
    with pytest.raises(UnavailableError, match="no answer in time: does a node serve there"):
        open_client(**link.settings(), **{"plugin.connect.timeout.ms": round(seconds * 1000)})
    assert time.monotonic() - started < seconds + 2 * A_MOMENT * time_scale()
    eventually(lambda: set(threading.enumerate()) <= threads, within=20)


def test_closed_while_a_node_is_silent_leaves_no_thread(link: Link, open_client: Open) -> None:
    open_client().close()
    before = {thread.name for thread in threading.enumerate()}
    client = open_client(**link.settings())
    client.group_membership("g").join("m", "")
    link.cut()
    client.close()
    eventually(lambda: {thread.name for thread in threading.enumerate()} <= before, within=20)
