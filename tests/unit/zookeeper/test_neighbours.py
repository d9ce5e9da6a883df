"""Records that kip30 did not write, beside its own: all others go on."""

from collections.abc import Iterator
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_digest_acl

from kip30 import NotMemberError, PluginLocator, StoreError
from kip30.config import Written
from kip30.driver import Backend
from kip30.driver.kit import batch_splitting
from kip30.driver.record_format import seal
from kip30.driver.records import Claim, Kind, Snapshot, Target, new_nonce
from kip30_backends.zookeeper import target_states
from kip30_backends.zookeeper.client.messages import GetChildren, GetData, MultiRead
from kip30_conformance.polling import eventually
from kip30_conformance.servers import Ensemble
from tests.unit.clients import PATIENT, Open

_FUTURE = b"\x02" + bytes(40)
_PROTOCOLS = pytest.mark.parametrize("protocol", ["3.6", "3.5"])
_OLD: dict[str, dict[str, Written]] = {
    protocol: {"plugin.zookeeper.protocol": protocol} for protocol in ("3.6", "3.5")
}


@pytest.fixture
def neighbour(ensemble: Ensemble) -> Iterator[Any]:
    client: Any = KazooClient(hosts=ensemble.nodes[0].address)
    client.start()
    yield client
    client.stop()
    client.close()


def _plant(neighbour: Any, group: str) -> set[str]:
    """Make nodes in the group at *group* that are no members; return what they are reported as."""
    neighbour.set(group, b"data of a group")
    neighbour.create(f"{group}/future", _FUTURE, ephemeral=True)
    neighbour.create(f"{group}/empty", b"", ephemeral=True)
    neighbour.create(f"{group}/huge", bytes(1_000_000), ephemeral=True)
    neighbour.create(f"{group}/lasting", seal(new_nonce(), b"d"))
    neighbour.create(f"{group}/lasting/child", b"")
    neighbour.create(f"{group}/=ZZ", seal(new_nonce(), b"d"), ephemeral=True)
    hidden = [make_digest_acl("eve", "e", all=True)]
    neighbour.create(f"{group}/hidden", seal(new_nonce(), b"d"), acl=hidden, ephemeral=True)
    return {"future", "empty", "huge", "lasting", "=ZZ", "hidden"}


def _superseded(ours: Backend, theirs: Backend, neighbour: Any, namespace: str) -> Claim:
    """Return a claim whose node was deleted, and whose id another client has claimed."""
    claim = ours.membership.claim("g", "m", new_nonce(), b"ours").result()
    neighbour.delete(f"/{namespace}/group/g/m")
    theirs.membership.claim("g", "m", new_nonce(), b"theirs").result()
    return claim


def test_an_update_spares_the_member_of_another_client(
    open_client: Open, neighbour: Any, namespace: str
) -> None:
    ours, theirs = open_client().backend, open_client().backend
    claim = _superseded(ours, theirs, neighbour, namespace)
    with pytest.raises(NotMemberError):
        ours.membership.replace("g", claim, new_nonce(), b"new").result()
    found = theirs.observe.snapshot(Target(Kind.GROUP, "g")).result()
    assert found.entries["m"].data == b"theirs"


def test_a_release_spares_the_member_of_another_client(
    open_client: Open, neighbour: Any, namespace: str
) -> None:
    ours, theirs = open_client().backend, open_client().backend
    claim = _superseded(ours, theirs, neighbour, namespace)
    ours.membership.release("g", claim).result()
    assert "m" in theirs.observe.snapshot(Target(Kind.GROUP, "g")).result().entries


@_PROTOCOLS
def test_members_go_on_beside_foreign_nodes(
    open_client: Open, neighbour: Any, namespace: str, protocol: str
) -> None:
    ours = open_client(**_OLD[protocol])
    heard, watch = _watched(ours, Target(Kind.GROUP, "g"))
    ours.group_membership("g").join("m", "d")
    foreign = _plant(neighbour, f"/{namespace}/group/g")
    ours.group_membership("g").join("n", "d")
    assert eventually(lambda: set(heard[-1].entries) == {"m", "n"})
    # Servers send no events of nodes that a client may not read: only whole reads show them.
    assert eventually(lambda: heard[-1].unreadable.keys() | {"hidden"} == foreign)
    assert ours.group_membership("g").membership().unreadable == foreign
    assert set(ours.group_membership("g").membership()) == {"m", "n"}
    with pytest.raises(StoreError, match="/group/g/future"):
        ours.group_membership("g").join("future", "d")
    neighbour.delete(f"/{namespace}/group/g/future")
    assert eventually(lambda: heard[-1].unreadable.keys() | {"hidden"} == foreign - {"future"})
    watch.close()


def _watched(client: PluginLocator, target: Target) -> tuple[list[Snapshot], Any]:
    heard: list[Snapshot] = []
    watch = client.backend.observe.watch(target, heard.append)
    assert eventually(lambda: bool(heard))
    return heard, watch


@_PROTOCOLS
def test_keys_go_on_beside_names_that_are_none(
    open_client: Open, neighbour: Any, namespace: str, protocol: str
) -> None:
    ours = open_client(**_OLD[protocol])
    ours.storage().put("n/k", "v")
    heard, watch = _watched(ours, Target(Kind.NAMESPACE, "n"))
    neighbour.create(f"/{namespace}/kv/n/=ZZ", _FUTURE)
    ours.storage().put("n/l", "v")
    assert eventually(lambda: set(heard[-1].entries) == {"k", "l"})
    assert eventually(lambda: set(heard[-1].unreadable) == {"=ZZ"})
    assert list(ours.storage().list("n")) == ["n/k", "n/l"]
    watch.close()


@_PROTOCOLS
def test_a_foreign_value_is_an_error_until_it_is_overwritten(
    open_client: Open, neighbour: Any, namespace: str, protocol: str
) -> None:
    ours = open_client(**_OLD[protocol])
    ours.storage().put("n/k", "v")
    heard, watch = _watched(ours, Target(Kind.VALUE, "n", "k"))
    neighbour.set(f"/{namespace}/kv/n/k", _FUTURE)
    assert eventually(lambda: set(heard[-1].unreadable) == {"k"})
    with pytest.raises(StoreError, match="/kv/n/k holds no record"):
        ours.storage().get("n/k")
    ours.storage().update("n/k", "w")
    assert eventually(lambda: set(heard[-1].entries) == {"k"} and not heard[-1].unreadable)
    watch.close()


@_PROTOCOLS
def test_a_foreign_leader_is_an_error_until_it_is_deleted(
    open_client: Open, neighbour: Any, namespace: str, protocol: str
) -> None:
    ours = open_client(**_OLD[protocol])
    election = ours.leader_election("s")
    assert election.nominate("c", "d")
    election.resign("c")
    heard, watch = _watched(ours, Target(Kind.SERVICE, "s"))
    neighbour.create(f"/{namespace}/service/s/leader", _FUTURE, ephemeral=True)
    assert eventually(lambda: set(heard[-1].unreadable) == {"s"})
    for ask in (election.get_leader, lambda: election.nominate("c", "d")):
        with pytest.raises(StoreError, match="/service/s/leader"):
            ask()
    neighbour.delete(f"/{namespace}/service/s/leader")
    assert election.nominate("c", "d")
    assert eventually(lambda: set(heard[-1].entries) == {"c"} and not heard[-1].unreadable)
    watch.close()


@_PROTOCOLS
def test_a_leader_without_a_session_is_an_error_until_it_is_deleted(
    open_client: Open, neighbour: Any, namespace: str, protocol: str
) -> None:
    ours = open_client(**_OLD[protocol])
    election, leader = ours.leader_election("s"), f"/{namespace}/service/s/leader"
    assert election.nominate("c", "d")
    sound, _ = neighbour.get(leader)
    election.resign("c")
    heard, watch = _watched(ours, Target(Kind.SERVICE, "s"))
    neighbour.create(leader, sound)
    assert eventually(lambda: set(heard[-1].unreadable) == {"s"})
    for ask in (election.get_leader, lambda: election.nominate("c", "d")):
        with pytest.raises(StoreError, match=f"{leader} is no claim of kip30"):
            ask()
    neighbour.delete(leader)
    assert election.nominate("c", "d")
    assert eventually(lambda: set(heard[-1].entries) == {"c"} and not heard[-1].unreadable)
    watch.close()


@_PROTOCOLS
def test_a_member_without_a_session_is_named(
    open_client: Open, neighbour: Any, namespace: str, protocol: str
) -> None:
    ours, group = open_client(**_OLD[protocol]), f"/{namespace}/group/g"
    ours.group_membership("g").join("m", "d")
    heard, watch = _watched(ours, Target(Kind.MEMBER, "g", "lasting"))
    neighbour.create(f"{group}/lasting", seal(new_nonce(), b"d"))
    assert eventually(lambda: set(heard[-1].unreadable) == {"lasting"})
    with pytest.raises(StoreError, match=f"{group}/lasting is no claim of kip30"):
        ours.group_membership("g").join("lasting", "d")
    watch.close()


def test_a_large_group_is_listed_twice_however_many_members(
    open_client: Open, neighbour: Any, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = open_client()
    ours.group_membership("g").join("m", "d")
    for number in range(1200):
        neighbour.create_async(
            f"/{namespace}/group/g/m{number}", seal(new_nonce(), b"d"), ephemeral=True
        )
    neighbour.sync("/")
    asked = _counted(monkeypatch)
    assert len(ours.group_membership("g").membership()) == 1201
    assert len(asked) == 2


def test_a_group_with_long_names_is_read_in_requests_that_a_server_takes(
    open_client: Open, neighbour: Any, namespace: str
) -> None:
    group, count = "g" * 250, 4500  # their paths together have more than 1 MiB
    ours = open_client()
    ours.group_membership(group).join("m", "d")
    for number in range(count):
        neighbour.create_async(
            f"/{namespace}/group/{group}/m{number}", seal(new_nonce(), b"d"), ephemeral=True
        )
    neighbour.sync("/")
    assert len(ours.group_membership(group).membership()) == count + 1


@pytest.mark.parametrize(("size", "reads"), [(100, [4, 12]), (1000, [4, 5, 5, 2])])
def test_a_group_of_large_records_is_read_in_pages(
    open_client: Open, monkeypatch: pytest.MonkeyPatch, size: int, reads: list[int]
) -> None:
    for module in (target_states, batch_splitting):
        monkeypatch.setattr(module, "RECORDS_AT_FIRST", 4)
    monkeypatch.setattr(batch_splitting, "_ANSWER_BYTES", 6000)
    group = open_client(**PATIENT).group_membership("g")
    data = {f"m{number:02d}": f"{number}" * size for number in range(12)}
    for member, value in data.items():
        group.join(member, value)
    asked: list[int] = []
    serialize = MultiRead.serialize

    def counting(request: MultiRead) -> bytes:
        asked.append(sum(isinstance(one, GetData) for one in request.operations))
        return serialize(request)

    monkeypatch.setattr(MultiRead, "serialize", counting)
    assert open_client(**PATIENT).group_membership("g").membership() == data
    assert [count for count in asked if count] == reads


def _counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list of the nodes whose children are asked for from now on."""
    asked: list[str] = []
    serialize = GetChildren.serialize

    def counting(request: GetChildren) -> bytes:
        asked.append(request.path)
        return serialize(request)

    monkeypatch.setattr(GetChildren, "serialize", counting)
    return asked
