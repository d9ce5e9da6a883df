"""Guarantees of every store for groups as a whole: members and events."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip30 import (
    GroupMembership,
    InvalidNameError,
    MemberExistsError,
    MembershipChange,
    NotMemberError,
    PluginLocator,
)
from kip30.names import MAX_NAME_BYTES
from kip30_conformance.clients.callback_recorder import Recorder
from kip30_conformance.hypothesis_settings import searching
from kip30_conformance.polling import eventually, throughout
from kip30_conformance.suite import OpenClient, OpenPeer, Suite

_ODD_IDS = (
    *("a", "a/b", "ab", "A", "/", "//", "a/", "/a", ".", "..", "../a", "a/../b"),
    *("%61", "=61", "=", " ", "a ", " a", "\\", "'", '"', "?", "#", "*", "\n", "\0", "\x7f"),
    *("é", "e\u0301", "ß", "SS", "ﬁ", "שלום", "\u202eabc", "🦆", "👩\u200d🔬", "\ufffd", "\ufeff"),
    "m" * MAX_NAME_BYTES,
)
_VERBS = st.sampled_from(["join", "join", "leave", "update"])
_NUMBERS = itertools.count()


class GroupTests(Suite):
    """A group is the exact set of its members, of any number and any names."""

    @pytest.fixture
    def clients(self, open_client: OpenClient) -> list[PluginLocator]:
        """Return two clients that act and one that observes."""
        return [open_client() for _ in range(3)]

    def test_M07_unknown_group(self, client: PluginLocator) -> None:
        """A group without a member is empty, and that is no error."""
        group = client.group_membership("nobody was here")
        assert dict(group.membership()) == {}
        assert group.membership_list() == frozenset()
        assert group.member("m") is None

    def test_M07_empty_group(self, client: PluginLocator) -> None:
        """A group is empty again after its last member has left."""
        group = client.group_membership("g")
        group.join("m", "")
        group.leave("m")
        assert dict(group.membership()) == {}

    @searching
    @given(steps=st.lists(st.tuples(st.sampled_from(range(2)), st.sampled_from("abc"), _VERBS)))
    def test_M15_listener_join_leave(
        self, clients: list[PluginLocator], steps: list[tuple[int, str, str]]
    ) -> None:
        """The set rebuilt from a listener's events is the membership."""
        name = f"g{next(_NUMBERS)}"
        *actors, observer = (client.group_membership(name) for client in clients)
        rebuilt = _Rebuilt(observer)
        for actor, member_id, verb in steps:
            _attempt(actors[actor], verb, member_id)
        eventually(
            lambda: rebuilt.members == dict(observer.membership()),
            what="the members that a listener knows are the membership",
        )
        rebuilt.check()
        for group in (*actors, observer):
            group.close()

    def test_M15_initial_state(self, open_client: OpenClient) -> None:
        """A listener that asks for it receives the present members first, else only changes."""
        group, other = (open_client().group_membership("g") for _ in range(2))
        group.join("early", "")
        with_initial, without = (
            Recorder[MembershipChange[str]](),
            Recorder[MembershipChange[str]](),
        )
        other.add_listener(with_initial, initial=True)
        other.add_listener(without)
        group.join("late", "")
        assert with_initial.expect_count(1)[0].joined >= {"early"}
        assert without.expect_count(1)[0].joined == {"late"}

    def test_M16_two_groups_independent(self, client: PluginLocator) -> None:
        """The same id can be in several groups, also in those whose names begin alike."""
        names = ["g", "g/h", "gh", "G"]
        groups = [client.group_membership(name) for name in names]
        for group in groups:
            group.join("m", group.group)
        groups[0].leave("m")
        expected = [{}, *({"m": name} for name in names[1:])]
        assert [dict(group.membership()) for group in groups] == expected

    @pytest.mark.heavy
    def test_M16_many_groups(self, open_client: OpenClient) -> None:
        """One client can be in 500 groups; all end with it."""
        client, other = open_client(), open_client()
        for number in range(500):
            client.group_membership(f"g{number}").join("m", str(number))
        watched = [other.group_membership(f"g{number}") for number in (0, 250, 499)]
        assert [group.membership()["m"] for group in watched] == ["0", "250", "499"]
        client.close()
        assert not any(group.membership_list() for group in watched)

    @pytest.mark.heavy
    def test_M16_many_members(self, open_client: OpenClient) -> None:
        """A group can have 500 members, and a listener ends up with all of them."""
        group, other = (open_client().group_membership("g") for _ in range(2))
        rebuilt = _Rebuilt(other)
        expected = {f"m{number}": str(number) for number in range(500)}
        for name, data in expected.items():
            group.join(name, data)
        assert dict(other.membership()) == expected
        eventually(lambda: rebuilt.members == expected, what="a listener knows of all members")

    def test_M17_member_ids_are_never_mixed_up(self, open_client: OpenClient) -> None:
        """Ids in any script, with slashes, dots, quotes or control characters stay apart."""
        group, other = (open_client().group_membership("g") for _ in range(2))
        for number, name in enumerate(_ODD_IDS):
            group.join(name, str(number))
        assert dict(other.membership()) == {name: str(n) for n, name in enumerate(_ODD_IDS)}

    @pytest.mark.parametrize("name", ["", "a\ud800", "m" * (MAX_NAME_BYTES + 1), "é" * 100])
    def test_M17_unusable_ids(self, client: PluginLocator, name: str) -> None:
        """An empty, unencodable or too long id is refused, as member and as group."""
        group = client.group_membership("g")
        with pytest.raises(InvalidNameError):
            group.join(name, "")
        with pytest.raises(InvalidNameError):
            client.group_membership(name)
        assert group.membership_list() == frozenset()

    @pytest.mark.heavy
    @pytest.mark.timeout(180)
    def test_M14_keepalive_under_load(self, open_client: OpenClient, peer: OpenPeer) -> None:
        """A minute of heavy traffic by the same client and others makes no member leave."""
        client, other = open_client(), peer()
        changes = Recorder[MembershipChange[str]]()
        member = client.group_membership("g").join("m", "")
        open_client().group_membership("g").add_listener(changes)
        storage = client.storage()
        storage.put_many({"theirs": "0", "ours": ""})
        other.send("increment", key="theirs", times=1_000_000_000)
        throughout(lambda: bool(storage.update("ours", "")) and member.is_valid(), seconds=60)
        assert changes.events == []


class _Rebuilt:
    """A group as a listener sees it: built from the differences it received."""

    def __init__(self, group: GroupMembership[str]) -> None:
        self._changes = Recorder[MembershipChange[str]]()
        group.add_listener(self._changes, initial=True)

    @property
    def members(self) -> dict[str, str] | None:
        """The members by the last event; None before the first."""
        events = self._changes.events
        return dict(events[-1].members) if events else None

    def check(self) -> None:
        """Require every event to be the exact difference to the one before it."""
        known: frozenset[str] = frozenset()
        for change in self._changes.events:
            assert not change.joined & known
            assert change.left <= known
            known = (known | change.joined) - change.left
            assert known == change.members.keys()


def _attempt(group: GroupMembership[str], verb: str, member_id: str) -> None:
    """Do a call that may be refused: the listener must keep up with the outcome."""
    try:
        if verb == "leave":
            group.leave(member_id)
        elif verb == "update":
            group.update(member_id, "updated")
        else:
            group.join(member_id, "joined")
    except (MemberExistsError, NotMemberError):
        pass
