"""Features of the toy store alone: a capacity, and a way to end its session."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kip30 import PluginLocator, StoreError, UnsupportedError
from kip30.config import Written
from kip30_conformance.polling import eventually

TOY: dict[str, Written] = {
    "plugin.locator.classname": "toystore:ToyBackend",
    "plugin.additional.paths": Path(__file__).parent,
}


@pytest.fixture
def client(request: pytest.FixtureRequest) -> Iterator[PluginLocator]:
    namespace = {"plugin.namespace": request.node.name, "plugin.toy.capacity": 3}
    with PluginLocator().startup({**TOY, **namespace}) as client:
        yield client


def expire(client: PluginLocator) -> None:
    client.backend.faults.expire_session()  # type: ignore[attr-defined]  # its class is found by name only


def test_a_full_store_refuses_new_records_and_takes_changes(client: PluginLocator) -> None:
    storage = client.storage()
    for key in ("a", "b", "c"):
        storage.put(key, "1")
    with pytest.raises(StoreError, match=r"full: raise plugin\.toy\.capacity"):
        storage.put("d", "1")
    storage.update("a", "2")
    storage.delete("b")
    storage.put("d", "1")
    assert list(storage.list("")) == ["a", "c", "d"]


def test_after_a_lost_session_members_and_leaders_come_back(client: PluginLocator) -> None:
    group, election = client.group_membership("g"), client.leader_election("s")
    first = group.join("m", "")
    election.nominate("c", "")
    term = election.leadership("c")
    assert term is not None
    expire(client)
    assert not first.is_valid()
    assert not term.is_valid()
    eventually(lambda: group.member("m"), what="joined again")
    again = eventually(lambda: election.leadership("c"), what="leads again")
    assert again is not None
    assert again.epoch > term.epoch


def test_fencing_is_not_offered(client: PluginLocator) -> None:
    election = client.leader_election("s")
    election.nominate("c", "")
    with pytest.raises(UnsupportedError, match="fencing"):
        client.storage().put("k", "v", fence=election.leadership("c"))


def test_namespaces_do_not_meet(client: PluginLocator) -> None:
    with PluginLocator().startup({**TOY, "plugin.namespace": "elsewhere"}) as other:
        client.storage().put("k", "v")
        assert other.storage().get("k") is None


def test_describes_itself(client: PluginLocator) -> None:
    client.storage().put("k", "v")
    assert client.backend.describe() == {"version": "1.0", "records": "1"}
