"""Guarantees of every store for members whose record is removed without their knowledge."""

import pytest

from kip30 import GroupMembership, Member, MemberExistsError
from kip30_conformance.clients.callback_recorder import Recorder
from kip30_conformance.evidence import Evidence
from kip30_conformance.harness import Harness
from kip30_conformance.polling import eventually, throughout, time_scale
from kip30_conformance.suite import OpenClient, Suite, supported

_LATE = 8
"""A number of refused claims that takes about three seconds, longer than another client's join."""


@pytest.mark.fault
class MembershipRemovalTests(Suite):
    """A member does not believe in itself for longer than the store has its record."""

    @pytest.mark.parametrize("age", ["new", "settled"])
    def test_M49_member_deleted_externally(
        self, open_client: OpenClient, harness: Harness, root: str, evidence: Evidence, age: str
    ) -> None:
        """A member whose record is removed notices each time, and joins again with its data."""
        group, other = (open_client(**harness.patient).group_membership("g") for _ in range(2))
        lost, rejoined = Recorder[Member](), Recorder[Member]()
        first = group.join("m", "data", on_lost=lost, on_rejoined=rejoined)
        if age == "settled":
            throughout(first.is_valid, seconds=0.5 * harness.session_seconds * time_scale())
        members = [first]
        for times in (1, 2, 3):
            supported(harness.delete_member, root, "g", "m")
            assert lost.expect_count(times, within=harness.crash_patience) == members
            members.append(rejoined.expect_count(times)[-1])
            assert group.member("m") is members[-1]
            assert members[-1].incarnation > members[-2].incarnation
            assert other.membership() == {"m": "data"}
            throughout(members[-1].is_valid, seconds=harness.session_seconds)
        evidence.saw("new incarnation", members[-1].incarnation)
        assert not any(member.is_valid() for member in members[:-1])
        assert (lost.events, rejoined.events) == (members[:-1], members[1:])

    @pytest.mark.parametrize("age", ["new", "settled"])
    def test_M49_member_replaced_externally(
        self, open_client: OpenClient, harness: Harness, root: str, evidence: Evidence, age: str
    ) -> None:
        """If another client took the id of a removed member, that one stays and the first goes."""
        client, other = open_client(**harness.patient), open_client(**harness.patient)
        group, rival = client.group_membership("g"), other.group_membership("g")
        lost, evicted = Recorder[Member](), Recorder[Member]()
        first = group.join("m", "first", on_lost=lost, on_evicted=evicted)
        if age == "settled":
            throughout(first.is_valid, seconds=0.5 * harness.session_seconds * time_scale())
        faults = harness.faults(client)
        faults.fail("membership.claim", times=_LATE)
        supported(harness.delete_member, root, "g", "m")
        eventually(lambda: _joins(rival), what="the id is free")
        successor = rival.member("m")
        assert successor is not None
        assert evicted.expect_count(1, within=20) == [first]
        assert lost.events == [first]
        assert not first.is_valid()
        assert group.member("m") is None
        evidence.saw("successor", successor.incarnation)
        throughout(successor.is_valid, seconds=harness.session_seconds)
        assert group.membership() == {"m": "successor"}

    def test_M49_updated_members_stay(
        self, open_client: OpenClient, harness: Harness, evidence: Evidence
    ) -> None:
        """Updates are no loss: a member that changes its data all the time is notified of none."""
        group = open_client(**harness.patient).group_membership("g")
        lost = Recorder[Member]()
        members = [group.join(f"m{number}", "0", on_lost=lost) for number in range(3)]
        updates = 0

        def goes_on() -> bool:
            nonlocal updates
            updates += 1
            group.update("m0", str(updates))
            return all(member.is_valid() for member in members)

        throughout(goes_on, seconds=2 * harness.session_seconds)
        assert lost.events == []
        assert group.membership()["m0"] == str(updates)
        evidence.saw("updates", updates)


def _joins(group: GroupMembership[str]) -> bool:
    try:
        group.join("m", "successor")
    except MemberExistsError:
        return False
    return True
