"""Names that a store might take for one another: by case, slash or wildcard. G31 and M51."""

from collections.abc import Mapping
from contextlib import suppress

import pytest

from kip30 import (
    Fence,
    FencedError,
    GroupMembership,
    LeaderElection,
    MemberExistsError,
    MembershipChange,
    PluginLocator,
    UnsupportedError,
)
from kip30.driver import Backend, Capability
from kip30.driver.records import Entry, Kind, Target
from kip30_conformance.clients.callback_recorder import Recorder, ValueRecorder
from kip30_conformance.suite import OpenClient, Suite, needing

LOOKALIKES: Mapping[str, list[str]] = {
    "case": ["axb", "aXb", "AXB"],
    "slash": ["a/xb", "a", "a/x", "xb", "a//xb", "a\\xb"],
    "wildcard": ["axb", "a_b", "a%b", "a*b", "a?b", "a[x]b", "a.b", "a%", "a*", "%", "*"],
}
"""Names by the way in which they are alike. The first one is what a pattern would match."""
_PAIRS = [("a", "b/c"), ("a/b", "c"), ("a", "b"), ("a/b", "c/d"), ("a/b/c", "d"), ("a", "b/c/d")]


class LookalikeTests(Suite):
    """Names that look alike name different things, in every place that takes a name."""

    @pytest.mark.parametrize("alike", LOOKALIKES)
    def test_G31_namespaces(self, client: PluginLocator, alike: str) -> None:
        """Listings, key sets and deletions keep to their namespace."""
        storage, names = client.storage(), LOOKALIKES[alike]
        versions = storage.put_many({f"{name}/k-{name.encode().hex()}": name for name in names})
        for name in names:
            key = f"k-{name.encode().hex()}"
            assert set(_shown(client.backend, Target(Kind.NAMESPACE, name))) == {key}
            if "//" not in name:
                with needing(client, Capability.LISTING):
                    assert list(storage.list(name)) == [f"{name}/{key}"]
        first, *others = versions
        storage.delete(first)
        assert set(storage.fetch_many(versions).result()) == set(others)

    @pytest.mark.parametrize("alike", ["case", "wildcard"])
    def test_G31_keys(self, open_client: OpenClient, alike: str) -> None:
        """A listener is notified of its own key alone, and a change of one key changes no other."""
        client, storage = open_client(), open_client().storage()
        heard = {f"n/{name}": ValueRecorder() for name in LOOKALIKES[alike]}
        for key, recorder in heard.items():
            client.listener_registry().add_value_change_listener(key, recorder)
        values = {key: f"value of {key}" for key in heard}
        for key, value in values.items():
            storage.set(key, value)
        for recorder in heard.values():
            recorder.expect_count(1)
        assert {key: [event.value for event in heard[key].events] for key in heard} == {
            key: [value] for key, value in values.items()
        }
        first, *others = heard
        storage.delete(first)
        assert set(storage.fetch_many(heard).result()) == set(others)

    @pytest.mark.parametrize("alike", LOOKALIKES)
    def test_G31_groups(self, open_client: OpenClient, alike: str) -> None:
        """A group has its own members alone, whether they are read, listened to, or leave."""
        client, other = open_client(), open_client()
        names = LOOKALIKES[alike]
        joined = {name: client.group_membership(name) for name in names}
        for name, group in joined.items():
            _join(group, "m", name)
        groups = {name: other.group_membership(name) for name in names}
        heard = {name: Recorder[MembershipChange[str]]() for name in names}
        for name, group in groups.items():
            assert group.membership() == {"m": name}
            group.add_listener(heard[name], initial=True)
        joined[names[0]].leave("m")
        heard[names[0]].expect(lambda change: not change.members)
        assert {name: dict(group.membership()) for name, group in groups.items()} == {
            name: {} if name == names[0] else {"m": name} for name in names
        }
        for name in names[1:]:
            assert [change.members for change in heard[name].events] == [{"m": name}]

    @pytest.mark.parametrize("alike", LOOKALIKES)
    def test_G31_members(self, open_client: OpenClient, alike: str) -> None:
        """An id is taken, shown, watched, updated and left by itself."""
        group, other = (open_client().group_membership("g") for _ in range(2))
        names = LOOKALIKES[alike]
        for name in names:
            _join(group, name, name)
        assert other.membership() == {name: name for name in names}
        group.update(names[0], "updated")
        assert other.membership() == {**{name: name for name in names}, names[0]: "updated"}
        group.leave(names[0])
        assert other.membership() == {name: name for name in names[1:]}

    @pytest.mark.parametrize("alike", LOOKALIKES)
    def test_G31_services(self, open_client: OpenClient, alike: str) -> None:
        """A service has its own leader, and its terms are fences of it alone."""
        client, other = open_client(), open_client()
        first, *others = LOOKALIKES[alike]
        leading, storage = client.leader_election(first), client.storage()
        with leading.lead("c", first) as term:
            for name in others:
                with pytest.raises((FencedError, UnsupportedError)):
                    storage.put("key", "fenced", fence=Fence(name, term.epoch))
            for name in others:
                assert client.leader_election(name).nominate("c", name)
            for name in (first, *others):
                assert _leads(other.leader_election(name)) == name
        assert _leads(other.leader_election(first)) is None
        assert [_leads(other.leader_election(name)) for name in others] == others

    def test_M51_group_and_id(self, open_client: OpenClient) -> None:
        """The boundary between the name of a group and an id is no part of either."""
        client, other = open_client(), open_client()
        for group, member_id in _PAIRS:
            _join(client.group_membership(group), member_id, f"{member_id} of {group}")
        groups = {group for group, _ in _PAIRS}
        found = {group: dict(other.group_membership(group).membership()) for group in groups}
        assert found == {
            group: {one: f"{one} of {group}" for name, one in _PAIRS if name == group}
            for group in groups
        }
        for group, member_id in _PAIRS:
            shown = _shown(other.backend, Target(Kind.MEMBER, group, member_id))
            assert [entry.data.decode() for entry in shown.values()] == [f"{member_id} of {group}"]


def _join(group: GroupMembership[str], member_id: str, data: str) -> None:
    """Join, unless the id counts as taken: then the members are not the expected ones."""
    with suppress(MemberExistsError):
        group.join(member_id, data)


def _shown(backend: Backend, target: Target) -> Mapping[str, Entry]:
    return backend.observe.snapshot(target).result().entries


def _leads(election: LeaderElection[str]) -> str | None:
    leader = election.get_leader()
    return None if leader is None else leader.data
