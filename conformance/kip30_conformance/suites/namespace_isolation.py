"""Namespaces of the configuration are isolated from each other, on any store: G15, G16, G30."""

from collections.abc import Callable, Mapping

import pytest

from kip30 import (
    Fence,
    FencedError,
    GroupMembership,
    GuardError,
    InvalidNameError,
    KeySetChange,
    LeaderChange,
    LeaderElection,
    MembershipChange,
    PartialWriteError,
    PluginLocator,
    Storage,
    UnsupportedError,
    ValueChange,
    Version,
)
from kip30.driver import Capability
from kip30.driver.pruning import prune
from kip30_conformance.clients.callback_recorder import Recorder
from kip30_conformance.suite import OpenClient, Suite, needing

HOSTILE_NAMES = ["..", ".", "../x", "a//b", "/", "a/../b", "a/./b", "%2e%2e", "\0", "*", "~"]

_ENDS: Mapping[str, Callable[[GroupMembership[str], LeaderElection[str]], object]] = {
    "leave": lambda group, _: group.leave("m"),
    "close": lambda group, _: group.close(),
    "resign": lambda _, election: election.resign("c"),
}
_FENCED: Mapping[str, Callable[[Storage[str], Fence], object]] = {
    "put": lambda storage, fence: storage.put("n/k", "fenced", fence=fence),
    "set": lambda storage, fence: storage.set("n/k", "fenced", fence=fence),
    "put_many": lambda storage, fence: storage.put_many({"n/k": "fenced"}, fence=fence),
}
_GUARDED: Mapping[str, Callable[[Storage[str], Mapping[str, Version]], object]] = {
    "put": lambda storage, guards: storage.put("n/k", "guarded", guards=guards),
    "put_many": lambda storage, guards: storage.put_many({"n/k": "guarded"}, guards=guards),
}

_REFUSALS = (FencedError, GuardError, PartialWriteError, UnsupportedError)


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

    @pytest.mark.parametrize("end", _ENDS)
    def test_G30_what_ends(self, client: PluginLocator, stranger: PluginLocator, end: str) -> None:
        """A member that leaves, or a leader that resigns, ends nothing in another namespace."""
        groups = [one.group_membership("g") for one in (client, stranger)]
        elections = [one.leader_election("s") for one in (client, stranger)]
        for group, election in zip(groups, elections, strict=True):
            group.join("m", "")
            assert election.nominate("c", "")
        _ENDS[end](groups[1], elections[1])
        assert client.group_membership("g").membership() == {"m": ""}
        assert client.leader_election("s").get_leader() is not None

    @pytest.mark.parametrize("verb", _FENCED)
    def test_G30_fence(self, client: PluginLocator, stranger: PluginLocator, verb: str) -> None:
        """A term of another namespace allows no write, and fences none."""
        mine, theirs = client.leader_election("s"), stranger.leader_election("s")
        with theirs.lead("c", "") as term, pytest.raises(_REFUSALS):
            _FENCED[verb](client.storage(), Fence("s", term.epoch))
        assert client.storage().get("n/k") is None
        with mine.lead("c", "") as term, theirs.lead("c", "") as newer:
            assert (term.is_valid(), newer.is_valid()) == (True, True)
            with needing(client, Capability.FENCING):
                _FENCED[verb](client.storage(), Fence("s", term.epoch))

    @pytest.mark.parametrize("verb", _GUARDED)
    def test_G30_guard(self, client: PluginLocator, stranger: PluginLocator, verb: str) -> None:
        """The version of a key in another namespace allows no write, and refuses none."""
        mine = client.storage().put("n/mine", "")
        theirs = stranger.storage().put("n/theirs", "")
        with pytest.raises(_REFUSALS):
            _GUARDED[verb](client.storage(), {"n/theirs": theirs})
        assert client.storage().get("n/k") is None
        stranger.storage().put("n/mine", "")
        stranger.storage().delete("n/mine")
        with needing(client, Capability.GUARDS):
            _GUARDED[verb](client.storage(), {"n/mine": mine})

    def test_G30_prune(self, client: PluginLocator, stranger: PluginLocator) -> None:
        """Pruning one namespace removes nothing of another, used or not."""
        for one in (client, stranger):
            with one.leader_election("s").lead("c", ""):
                one.storage().put("n/k", "")
            one.storage().delete("n/k")
        unused = dict(prune(client.backend, 0, dry_run=True))
        assert client.leader_election("led").nominate("c", "")
        prune(stranger.backend, 0, dry_run=False)
        assert dict(prune(client.backend, 0, dry_run=True)) == unused
        assert client.leader_election("led").get_leader() is not None

    def test_G30_many(self, client: PluginLocator, stranger: PluginLocator) -> None:
        """Reads of many keys and listings show nothing of another namespace."""
        kept = client.storage().put_many({"n/a": "mine", "n/b": "mine"})
        stranger.storage().put_many({"n/b": "theirs", "n/c": "theirs"})
        keys = ["n/a", "n/b", "n/c"]
        assert client.storage().fetch_many(keys).result() == dict.fromkeys(kept, "mine")
        with needing(client, Capability.LISTING):
            assert list(client.storage().list("n")) == list(kept)

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
