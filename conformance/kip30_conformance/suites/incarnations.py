"""Guarantees of every store for incarnations: the order in which members joined."""

from collections.abc import Mapping
from functools import partial
from itertools import pairwise

import pytest

from kip30 import BYTES, JSON, Member, MembershipChange, PluginLocator, Version
from kip30.driver.records import parse_version
from kip30_conformance.clients.callback_recorder import Recorder
from kip30_conformance.clients.crowd import together
from kip30_conformance.clients.peer import Peer
from kip30_conformance.evidence import Evidence
from kip30_conformance.harness import Harness
from kip30_conformance.suite import OpenClient, OpenPeer, Suite, supported

_TURNS = 5
_RACES = 10


class IncarnationTests(Suite):
    """Incarnations grow in the order of joins, and readers and listeners see them."""

    def test_M21_order_of_joins(self, open_client: OpenClient) -> None:
        """A later join gets a greater incarnation, regardless of its id, client and data."""
        groups = [open_client().group_membership("g") for _ in range(3)]
        joined = list[Member]()
        for turn in range(_TURNS):
            for number, group in enumerate(groups):
                member_id = f"m{99 - len(joined)}"
                joined.append(group.join(member_id, ""))
                groups[0].update("m99", f"{turn}-{number}")
        _expect_growing([member.incarnation for member in joined])
        assert groups[1].incarnations() == {one.id: one.incarnation for one in joined}

    def test_M21_order_of_joins_again(self, open_client: OpenClient) -> None:
        """A member that joins again stands behind all others, also if the group was empty."""
        group, other = (open_client().group_membership("g") for _ in range(2))
        incarnations = list[Version]()
        for _ in range(_TURNS):
            for member_id in ("a", "b"):
                for one in (group, other):
                    incarnations.append(one.join(member_id, "").incarnation)
                    one.leave(member_id)
        _expect_growing(incarnations)
        stays = group.join("z", "")
        for _ in range(_TURNS):
            first = other.join("a", "")
            second = group.join("b", "")
            assert _in_order(group.incarnations()) == ["z", "a", "b"]
            other.leave("a")
            again = other.join("a", "")
            assert _in_order(group.incarnations()) == ["z", "b", "a"]
            _expect_growing([one.incarnation for one in (stays, first, second, again)])
            other.leave("a")
            group.leave("b")

    def test_M21_order_of_joins_of_processes(self, client: PluginLocator, peer: OpenPeer) -> None:
        """A later join gets a greater incarnation, also from another process."""
        peers, group = [peer(), peer()], client.group_membership("g")
        incarnations = list[Version]()
        for turn in range(_TURNS):
            for number, one in enumerate(peers):
                member_id = f"m{9 - turn}{number}"
                joined = one.call("join", group="g", member_id=member_id)
                incarnations.append(parse_version(joined))
            incarnations.append(group.join(f"m{9 - turn}", "").incarnation)
        _expect_growing(incarnations)
        assert sorted(group.incarnations().values()) == incarnations

    def test_M21_none_comes_before(self, client: PluginLocator, peer: OpenPeer) -> None:
        """Once a member has joined, no other one gets a smaller incarnation: it saw all of them.

        Processes join at once, and each looks once.
        """
        peers = [peer() for _ in range(4)]
        for number in range(_RACES):
            group = f"g{number}"
            views = _race_to_join(peers, group)
            shown = client.group_membership(group).incarnations()
            assert len(shown) == len(peers)
            for mine, view in views:
                before = {one: version for one, version in shown.items() if version < mine}
                assert before == {one: version for one, version in view.items() if version < mine}

    def test_M21_none_comes_before_a_thread(self, open_client: OpenClient) -> None:
        """Threads that join, with one client or two, get greater incarnations than all before."""
        groups = [open_client().group_membership("g") for _ in range(2)]
        for number in range(_RACES):
            joins = [
                partial(group.join, f"m{number}-{one}-{two}", "")
                for one, group in enumerate(groups)
                for two in range(3)
            ]
            before = groups[0].incarnations()
            members = together(joins)
            newest = max(before.values(), default=Version(0))
            assert all(newest < member.incarnation for member in members)
            assert len(groups[0].incarnations()) == len(before) + len(members)

    def test_M22_changes_tell_incarnations(self, open_client: OpenClient) -> None:
        """A listener sees the incarnation of each member: a new one if it has joined again."""
        group, other = (open_client().group_membership("g") for _ in range(2))
        changes = Recorder[MembershipChange[str]]()
        group.join("first", "")
        group.add_listener(changes, initial=True)
        first = group.member("first")
        assert first is not None
        assert changes.expect_count(1)[0].incarnations == {"first": first.incarnation}
        member = other.join("m", "1")
        change = changes.expect(lambda change: "m" in change.joined)
        assert change.incarnations == {"first": first.incarnation, "m": member.incarnation}
        other.update("m", "2")
        change = changes.expect(lambda change: change.members.get("m") == "2")
        assert change.incarnations["m"] == member.incarnation
        other.leave("m")
        changes.expect(lambda change: set(change.incarnations) == {"first"})
        again = other.join("m", "3")
        change = changes.expect(lambda change: change.members.get("m") == "3")
        assert _in_order(change.incarnations) == ["first", "m"]
        assert change.incarnations["m"] == again.incarnation > member.incarnation

    def test_M22_undecodable_members(self, open_client: OpenClient) -> None:
        """A member whose data a reader cannot decode has an incarnation, which listeners see."""
        raw = open_client().group_membership("g", BYTES)
        group = open_client().group_membership("g", JSON)
        changes = Recorder[MembershipChange[object]]()
        bad, good = raw.join("bad", b"\xff"), raw.join("good", b"1")
        group.add_listener(changes, initial=True)
        expected = {"bad": bad.incarnation, "good": good.incarnation}
        assert changes.expect_count(1)[0].incarnations == expected
        assert group.membership().incarnations == group.incarnations() == expected
        raw.leave("bad")
        again = raw.join("bad", b"\xff")
        expected["bad"] = again.incarnation
        changes.expect(lambda change: change.incarnations == expected)
        assert group.incarnations() == expected
        assert _in_order(expected) == ["good", "bad"]

    @pytest.mark.fault
    def test_M21_rejoin_goes_behind(
        self, open_client: OpenClient, harness: Harness, evidence: Evidence
    ) -> None:
        """A member that lost its session joins again behind those that joined meanwhile."""
        client, other = open_client(), open_client(**harness.steady).group_membership("g")
        faults, group = harness.faults(client), client.group_membership("g")
        changes, rejoined = Recorder[MembershipChange[str]](), Recorder[Member]()
        other.add_listener(changes)
        first = group.join("m", "", on_rejoined=rejoined)
        second = other.join("n", "")
        supported(faults.expire_session)
        evidence.saw("expired session", faults.counted())
        member = rejoined.expect_count(1)[-1]
        assert first.incarnation < second.incarnation < member.incarnation
        assert _in_order(other.incarnations()) == ["n", "m"]
        changes.expect(lambda change: change.incarnations.get("m") == member.incarnation)


def _race_to_join(peers: list[Peer], group: str) -> list[tuple[Version, Mapping[str, Version]]]:
    """Let all *peers* join *group* at once; return the incarnation of each, and its view."""
    for number, one in enumerate(peers):
        one.send("join", group=group, member_id=f"m{number}")
        one.send("incarnations", group=group)
    joined = [(one.receive(), one.receive()) for one in peers]
    return [
        (parse_version(mine), {one: parse_version(text) for one, text in view.items()})
        for mine, view in joined
    ]


def _in_order(incarnations: Mapping[str, Version]) -> list[str]:
    """Return the ids in the order in which they joined."""
    return sorted(incarnations, key=incarnations.__getitem__)


def _expect_growing(incarnations: list[Version]) -> None:
    for earlier, later in pairwise(incarnations):
        assert earlier < later
