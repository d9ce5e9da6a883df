"""Namespaces of the configuration are isolated from each other, on any store: G15 and G16."""

from collections.abc import Callable

import pytest

from kip30 import (
    InvalidNameError,
    KeySetChange,
    LeaderChange,
    MembershipChange,
    PluginLocator,
    ValueChange,
)
from kip30_conformance.clients.callback_recorder import Recorder
from kip30_conformance.suite import OpenClient, Suite

HOSTILE_NAMES = ["..", ".", "../x", "a//b", "/", "a/../b", "a/./b", "%2e%2e", "\0", "*", "~"]


class IsolationTests(Suite):
    """Clients of two namespaces never conflict, with any names."""

    def test_G15_keys(self, client: PluginLocator, stranger: PluginLocator) -> None:
        """A key of one namespace is neither read, overwritten nor deleted from another."""
        client.storage().put("n/k", "mine")
        assert stranger.storage().get("n/k") is None
        stranger.storage().put("n/k", "theirs")
        stranger.storage().delete("n/k")
        assert client.storage().fetch("n/k").result() == "mine"

    def test_G15_members(self, client: PluginLocator, stranger: PluginLocator) -> None:
        """The same member id can be held in the same group of two namespaces."""
        client.group_membership("g").join("m", "mine")
        assert stranger.group_membership("g").membership_list() == frozenset()
        stranger.group_membership("g").join("m", "theirs")
        assert client.group_membership("g").membership() == {"m": "mine"}

    def test_G15_leaders(self, client: PluginLocator, stranger: PluginLocator) -> None:
        """The same service of two namespaces has two leaders."""
        assert client.leader_election("s").nominate("c", "mine")
        assert stranger.leader_election("s").get_leader() is None
        assert stranger.leader_election("s").nominate("c", "theirs")
        leader = client.leader_election("s").get_leader()
        assert leader is not None
        assert leader.data == "mine"

    def test_G15_events(self, client: PluginLocator, stranger: PluginLocator) -> None:
        """No listener is notified of changes in another namespace."""
        values: Recorder[ValueChange[str]] = Recorder()
        keys: Recorder[KeySetChange] = Recorder()
        members: Recorder[MembershipChange[str]] = Recorder()
        leaders: Recorder[LeaderChange[str]] = Recorder()
        client.listener_registry().add_value_change_listener("n/k", values)
        client.listener_registry().add_key_set_change_listener("n", keys)
        client.group_membership("g").add_listener(members)
        client.leader_election("s").add_listener(leaders)
        for one in (stranger, client):
            data = "mine" if one is client else "theirs"
            one.storage().put("n/k", data)
            one.group_membership("g").join("m", data)
            one.leader_election("s").nominate("c", data)
        assert [event.value for event in values.expect_count(1)] == ["mine"]
        assert [event.keys for event in keys.expect_count(1)] == [{"n/k"}]
        assert [event.members for event in members.expect_count(1)] == [{"m": "mine"}]
        assert [event.leader and event.leader.data for event in leaders.expect_count(1)] == ["mine"]

    @pytest.mark.parametrize("name", HOSTILE_NAMES)
    def test_G16_key_stays_in_its_root(self, root: str, open_client: OpenClient, name: str) -> None:
        """A hostile key is refused or names itself alone: no key of an outer or inner root."""
        inner = open_client(f"{root}/inner")
        if not _accepts(inner.storage().put, name):
            return
        assert inner.storage().fetch(name).result() == "hostile"
        for outside in (
            open_client(root),
            open_client(f"{root}/inner/a"),
            open_client(f"{root}/x"),
        ):
            found = outside.storage().fetch_many(_reachable(name)).result()
            assert found == {}

    @pytest.mark.parametrize("name", HOSTILE_NAMES)
    def test_G16_ids_stay_in_their_root(
        self, root: str, open_client: OpenClient, name: str
    ) -> None:
        """A group or member with a hostile name is in no group of an outer root."""
        inner, outer = open_client(f"{root}/inner"), open_client(root)
        inner.group_membership(name).join(name, "hostile")
        assert inner.group_membership(name).membership() == {name: "hostile"}
        for group in ("g", "inner", "x", "a", name):
            assert outer.group_membership(group).membership() == {}

    @pytest.fixture
    def stranger(self, root: str, open_client: OpenClient) -> PluginLocator:
        """Return a client of another namespace, whose name begins with that of the check."""
        return open_client(f"{root}-2")


def _accepts(put: Callable[[str, str], object], name: str) -> bool:
    try:
        put(name, "hostile")
    except InvalidNameError:
        return False
    return True


def _reachable(name: str) -> list[str]:
    """Return keys that *name* might become outside its root if nothing were escaped."""
    return ["x", "b", "a/b", "inner/x", "inner/b", "inner/a/b", name]
