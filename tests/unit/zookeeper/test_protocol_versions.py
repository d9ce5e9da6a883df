"""The same with all requests, and with those alone that old servers know."""

from functools import partial
from itertools import takewhile

import pytest

from kip30 import KeySetChange, LeaderChange, MembershipChange, ValueChange
from kip30.driver import Backend
from kip30_backends.zookeeper import ZookeeperBackend
from kip30_conformance.clients.callback_recorder import Recorder
from kip30_conformance.polling import eventually
from tests.unit.clients import PATIENT, Open

both = pytest.mark.parametrize("protocol", ["3.5", "3.6"])


@both
def test_values_are_watched(open_client: Open, protocol: str) -> None:
    client, other = open_client(**{"plugin.zookeeper.protocol": protocol}), open_client()
    heard = Recorder[ValueChange[str]]()
    client.listener_registry().add_value_change_listener("n/k", heard)
    storage = other.storage()
    storage.put("n/k", "1")
    heard.expect(lambda event: event.value == "1")
    storage.update("n/k", "2")
    heard.expect(lambda event: event.value == "2")
    storage.delete("n/k")
    heard.expect(lambda event: event.value is None)
    storage.put("n/k", "3")
    heard.expect(lambda event: event.value == "3")


@both
def test_key_sets_are_watched(open_client: Open, protocol: str) -> None:
    client, other = open_client(**{"plugin.zookeeper.protocol": protocol}), open_client()
    heard = Recorder[KeySetChange]()
    client.listener_registry().add_key_set_change_listener("n", heard)
    storage = other.storage()
    for number in range(5):
        storage.put(f"n/{number}", "")
    heard.expect(lambda event: len(event.keys) == 5)
    storage.delete("n/0")
    heard.expect(lambda event: "n/0" in event.removed)


@both
def test_groups_are_watched(open_client: Open, protocol: str) -> None:
    client, other = open_client(**{"plugin.zookeeper.protocol": protocol}), open_client()
    heard = Recorder[MembershipChange[str]]()
    client.group_membership("g").add_listener(heard)
    group = other.group_membership("g")
    for number in range(20):
        group.join(f"m{number}", str(number))
    heard.expect(lambda event: len(event.members) == 20)
    group.update("m7", "new")
    heard.expect(lambda event: event.members.get("m7") == "new")
    group.leave("m7")
    heard.expect(lambda event: "m7" in event.left)
    assert client.group_membership("g").membership() == group.membership()


@both
def test_leaders_are_watched(open_client: Open, protocol: str) -> None:
    client, other = open_client(**{"plugin.zookeeper.protocol": protocol}), open_client()
    heard = Recorder[LeaderChange[str]]()
    client.leader_election("s").add_listener(heard)
    for epoch in (1, 2, 3):
        with other.leader_election("s").lead("c", "") as term:
            assert term.epoch == epoch
            heard.expect(partial(_is_of, epoch))
    heard.expect(lambda event: event.leader is None)


def _is_of(epoch: int, event: LeaderChange[str]) -> bool:
    return event.leader is not None and event.leader.epoch == epoch


@both
def test_many_are_read_at_once(open_client: Open, protocol: str) -> None:
    storage = open_client(**PATIENT, **{"plugin.zookeeper.protocol": protocol}).storage()
    storage.put_many({f"n/{number}": str(number) for number in range(0, 1200, 2)})
    found = storage.fetch_many(f"n/{number}" for number in range(1200)).result()
    assert found == {f"n/{number}": str(number) for number in range(0, 1200, 2)}


def test_the_server_is_asked_what_it_knows(open_client: Open) -> None:
    told = open_client().backend.describe()
    assert told["requests"] == "3.6"
    assert told["version"].startswith("3.")
    assert told["role"] == "standalone"


def test_a_watch_that_ended_leaves_none_on_the_server(open_client: Open) -> None:
    client = open_client()
    registry, heard = client.listener_registry(), Recorder[ValueChange[str]]()
    for number in range(10):
        registry.add_value_change_listener(f"n/{number}", heard)
    eventually(lambda: _watched(client.backend) == 10, what="the server has ten watches")
    for number in range(10):
        registry.remove_value_change_listener(f"n/{number}", heard)
    eventually(lambda: _watched(client.backend) == 0, what="the server has no watches")


def _watched(backend: Backend) -> int:
    """Return how many paths the backend's server watches for its session."""
    assert isinstance(backend, ZookeeperBackend)
    current = backend._resources.sessions.current
    assert current is not None
    told: str = current.connection._kazoo.command(b"wchc")
    _, _, listed = told.partition(f"{current.connection.identity.ident:#x}\n")
    return len([*takewhile(lambda line: line.startswith("\t"), listed.splitlines())])


@both
def test_reading_no_key_at_all(open_client: Open, protocol: str) -> None:
    client = open_client(**{"plugin.zookeeper.protocol": protocol})
    assert client.storage().fetch_many([]).result() == {}
