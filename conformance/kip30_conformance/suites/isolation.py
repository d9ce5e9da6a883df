"""What a client may count on whichever store it meets: G13 to G16."""

import pickle
from collections.abc import Callable
from typing import Any

import pytest

import kip30
from kip30 import (
    DefiniteError,
    Fence,
    FencedError,
    InvalidNameError,
    KeyMissingError,
    KeySetChange,
    Kip30Error,
    LeaderChange,
    MembershipChange,
    OutcomeUnknownError,
    PartialWriteError,
    PluginLocator,
    UnsupportedError,
    UsageError,
    ValueChange,
    VersionConflictError,
)
from kip30.driver import Capability
from kip30_conformance.clients.recorder import Recorder
from kip30_conformance.suite import OpenClient, Suite, needing

KINDS = (UsageError, UnsupportedError, DefiniteError, OutcomeUnknownError)
ERRORS = [
    value
    for name in kip30.__all__
    if isinstance(value := getattr(kip30, name), type) and issubclass(value, Kip30Error)
]
_PARTS: tuple[Any, ...] = ({}, {"k": KeyMissingError("k")})
HOSTILE_NAMES = ["..", ".", "../x", "a//b", "/", "a/../b", "a/./b", "%2e%2e", "\0", "*", "~"]


class TaxonomyTests(Suite):
    """Errors say what happened, and capabilities are what they are declared to be."""

    @pytest.mark.parametrize("error", [one for one in ERRORS if one is not Kip30Error])
    def test_G13_one_kind_each(self, error: type[Kip30Error]) -> None:
        """Every error is of exactly one kind: usage, unsupported, definite or unknown."""
        assert sum(issubclass(error, kind) for kind in KINDS) == 1

    @pytest.mark.parametrize("error", ERRORS)
    def test_G13_pickles(self, error: type[Kip30Error]) -> None:
        """Every error survives a way through another process."""
        why: tuple[Any, ...] = ("why",)
        before = error(*(_PARTS if error is PartialWriteError else why))
        after = pickle.loads(pickle.dumps(before))  # noqa: S301  what was pickled a moment ago
        assert (type(after), str(after)) == (type(before), str(before))

    def test_G13_raised_errors_pickle(self, client: PluginLocator) -> None:
        """An error that comes from the store pickles as well, with all it holds."""
        storage = client.storage()
        storage.put("k", "v")
        for call in (lambda: storage.put("k", "w"), lambda: storage.delete("absent")):
            with pytest.raises(DefiniteError) as raised:
                call()
            assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)  # noqa: S301

    def test_G13_cause_is_kept(self, client: PluginLocator) -> None:
        """What made an operation fail stays reachable as the error's cause."""
        client.storage(kip30.BYTES).put("k", b"\xff")
        with pytest.raises(kip30.CodecError) as raised:
            client.storage().get("k")
        assert isinstance(raised.value.__cause__, UnicodeDecodeError)

    def test_G14_compare_and_set(self, client: PluginLocator) -> None:
        """Compare-and-set is kept as declared."""
        storage = client.storage()
        version = storage.put("k", "v")
        with needing(client, Capability.COMPARE_AND_SET):
            newer = storage.compare_and_set("k", version, "w")
            with pytest.raises(VersionConflictError):
                storage.compare_and_set("k", version, "x")
            storage.delete("k", expected=newer)

    def test_G14_fencing(self, client: PluginLocator) -> None:
        """Fencing is kept as declared."""
        storage, election = client.storage(), client.leader_election("s")
        election.nominate("c", "")
        leadership = election.wait_elected("c", 10)
        assert leadership is not None
        with needing(client, Capability.FENCING):
            storage.put("k", "v", fence=leadership)
            with pytest.raises(FencedError):
                storage.update("k", "w", fence=Fence("s", leadership.epoch - 1))

    def test_G14_listing(self, client: PluginLocator) -> None:
        """Listing is kept as declared."""
        client.storage().put("n/k", "v")
        with needing(client, Capability.LISTING):
            assert list(client.storage().list("n")) == ["n/k"]

    def test_G14_lease_sharing(self, client: PluginLocator) -> None:
        """A lease can be shared by a descriptor if and only if that is declared."""
        election = client.leader_election("s")
        election.nominate("c", "")
        leadership = election.wait_elected("c", 10)
        assert leadership is not None
        shared = election.share_lease(leadership)
        assert (shared is not None) == (Capability.LEASE_SHARING in client.backend.capabilities)


class IsolationTests(Suite):
    """Clients of two namespaces never meet, with any names."""

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
        """No listener hears of another namespace."""
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
        """The same holds for groups and members."""
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
    """Return keys that *name* might turn into outside its root if nothing were escaped."""
    return ["x", "b", "a/b", "inner/x", "inner/b", "inner/a/b", name]
