"""Servers that are killed, emptied or written to by others: kept data and noticed changes."""

import socket
from collections.abc import Iterator

import pytest
from typing_extensions import override

from kip30 import (
    GuardError,
    PluginLocator,
    SessionLost,
    Storage,
    StoreError,
    UnavailableError,
    ValueChange,
    VersionConflictError,
    Versioned,
)
from kip30.config import Written
from kip30_backends.zookeeper import ZookeeperBackend
from kip30_backends.zookeeper.calls import RequestBatch, Steps
from kip30_backends.zookeeper.client.kazoo_setup import SessionIdentity
from kip30_backends.zookeeper.client.messages import SetData
from kip30_backends.zookeeper.client.session_connection import SessionConnection
from kip30_backends.zookeeper.session import SessionCloser
from kip30_conformance.clients.callback_recorder import Recorder
from kip30_conformance.polling import eventually
from kip30_conformance.servers import Ensemble, start
from tests.unit.clients import Open


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    with start("zookeeper", folder=tmp_path_factory.mktemp("outages")) as servers:
        yield servers


def test_epochs_go_on_after_a_restart(open_client: Open, ensemble: Ensemble) -> None:
    client, last = open_client(), 0
    for _ in range(3):
        with client.leader_election("s").lead("c", "") as term:
            last = term.epoch
    ensemble.restart()
    election = client.leader_election("s")
    election.nominate("c", "")
    term = eventually(lambda: election.leadership("c"), what="the candidate leads")
    assert term.epoch > last


def test_values_and_claims_outlive_a_quick_restart(open_client: Open, ensemble: Ensemble) -> None:
    client = open_client(**{"plugin.session.timeout.ms": 60_000})
    version = client.storage().put("k", "v")
    member = client.group_membership("g").join("m", "")
    ensemble.restart()
    found = eventually(lambda: _found(client))
    assert (found.value, found.version) == ("v", version)
    assert member.is_valid()
    assert client.group_membership("g").membership_list() == {"m"}


def test_a_server_that_accepts_but_never_answers(open_client: Open, ensemble: Ensemble) -> None:
    real = ensemble.settings()["zookeeper.connect"]
    with socket.create_server(("127.0.0.1", 0)) as silent:
        settings: dict[str, Written] = {
            "zookeeper.connect": f"127.0.0.1:{silent.getsockname()[1]},{real}",
            "plugin.session.timeout.ms": 60_000,
            "plugin.connect.timeout.ms": 4_000,
        }
        for number in range(5):  # in which order they are asked is chance
            client = open_client(**settings)
            client.storage().put(f"k{number}", "v")


def test_a_server_that_lost_everything(open_client: Open, ensemble: Ensemble) -> None:
    client = open_client()
    lost, heard = Recorder[SessionLost](), Recorder[ValueChange[str]]()
    client.add_session_listener(lost)
    client.listener_registry().add_value_change_listener("k", heard)
    client.storage().put("k", "before")
    election = client.leader_election("s")
    election.nominate("c", "")
    term = election.wait_elected("c", 10)
    assert term is not None
    ensemble.restart(empty=True)
    lost.expect_count(1, within=10)
    assert not term.is_valid()
    heard.expect(lambda event: event.value is None)
    new = eventually(lambda: election.leadership("c"), what="someone leads again")
    assert new is not term
    client.storage().put("k", "after")
    heard.expect(lambda event: event.value == "after")


def test_a_version_of_a_store_that_was_emptied(open_client: Open, ensemble: Ensemble) -> None:
    """Another key may be there by then, at the same version of its node."""
    storage = open_client().storage()
    old = storage.compare_and_set("n/k", storage.put("n/k", "first"), "second")
    ensemble.restart(empty=True)
    other = open_client().storage()
    for number in range(100):  # transactions are counted anew
        new = other.put(f"n/{number}", "")
        if new.major > old.major:
            break
    other.put("n/k", "first")
    new = other.update("n/k", "second")
    assert new.minor == old.minor
    assert new.major != old.major
    eventually(lambda: _fetched(storage, "n/0") is not None, what="the client has a session again")
    with pytest.raises(VersionConflictError):
        storage.compare_and_set("n/k", old, "third")
    with pytest.raises(GuardError):
        storage.put("n/guarded", "v", guards={"n/k": old})
    with pytest.raises(VersionConflictError):
        storage.delete("n/k", expected=old)


class Robbed(SessionCloser):
    """A closer whose first connection is dropped as soon as it is made."""

    robbed = False

    @override
    def connected(self, client: SessionConnection, sent_at: float, timeout_seconds: float) -> None:
        if not self.robbed:
            self.robbed = True
            client.drop()
        super().connected(client, sent_at, timeout_seconds)


def test_a_session_is_closed_though_its_client_takes_it_back(open_client: Open) -> None:
    client, lost = open_client(), Recorder[SessionLost]()
    client.add_session_listener(lost)
    client.group_membership("g").join("m", "")
    backend = client.backend
    assert isinstance(backend, ZookeeperBackend)
    engine = backend._resources
    assert engine.sessions.current is not None
    session = engine.sessions.current.session
    assert session is not None
    closer = Robbed(engine.sessions._context, engine.server, session.identity)
    closer.connection.start()
    eventually(closer.done.is_set, what="the server has closed the session")
    closer.connection.disconnect()
    lost.expect_count(1)
    assert closer.robbed


class Observed(SessionCloser):
    """A closer that records whether it had a session."""

    had_session = False

    @override
    def connected(self, client: SessionConnection, sent_at: float, timeout_seconds: float) -> None:
        self.had_session = True
        super().connected(client, sent_at, timeout_seconds)


def test_an_expired_session_is_not_replaced_to_be_closed(open_client: Open) -> None:
    backend = open_client().backend
    assert isinstance(backend, ZookeeperBackend)
    engine = backend._resources
    closer = Observed(engine.sessions._context, engine.server, SessionIdentity(5, bytes(16)))
    closer.connection.start()
    eventually(closer.done.is_set, what="the server has reported the session as expired")
    closer.connection.disconnect()
    assert closer.connection.expired
    assert not closer.had_session


def test_a_version_of_an_earlier_life(open_client: Open) -> None:
    client, other = open_client(), open_client()
    storage = client.storage()
    for _ in range(5):
        old = storage.put("n/k", "first")
        storage.compare_and_set("n/k", old, "second")
        assert other.storage().get("n/k") is not None
        other.storage().delete("n/k")
        other.storage().put("n/k", "first")
        for stale in (old, old._replace(minor=1)):
            with pytest.raises(VersionConflictError):
                storage.compare_and_set("n/k", stale, "third")
            with pytest.raises(VersionConflictError):
                storage.delete("n/k", expected=stale)
        assert storage.fetch("n/k").result() == "first"
        storage.delete("n/k")


def test_a_neighbour_that_is_deleted_is_no_conflict(open_client: Open) -> None:
    client, other = open_client(), open_client()
    storage = client.storage()
    version = storage.put("n/k", "0")
    for number in range(5):
        other.storage().put("n/neighbour", "")
        other.storage().delete("n/neighbour")
        version = storage.compare_and_set("n/k", version, str(number))
    assert other.storage().fetch("n/k").result() == "4"


def test_a_record_of_somebody_else(open_client: Open) -> None:
    client = open_client()
    client.storage().put_many({"n/k": "", "n/fine": "v"})
    backend = client.backend
    assert isinstance(backend, ZookeeperBackend)
    path = f"{backend._resources.tree.paths.namespace('n')}/k"
    backend._resources.outbox.start(_overwritten(path)).result()
    with pytest.raises(StoreError, match="no record"):
        client.storage().get("n/k")
    assert client.storage().fetch("n/fine").result() == "v"
    client.storage().update("n/k", "mended")
    assert client.storage().fetch("n/k").result() == "mended"


def _overwritten(path: str) -> Steps[None]:
    (yield RequestBatch((SetData(path, b"not ours"),), writes=True)).only()


def _fetched(storage: Storage[str], key: str) -> str | None:
    """Return the value of *key*, or None while the server does not answer."""
    try:
        return storage.fetch(key).result()
    except UnavailableError:
        return None


def _found(client: PluginLocator) -> Versioned[str] | None:
    """Return what is at the key, if the server answers already."""
    try:
        return client.storage().get("k")
    except UnavailableError:
        return None
