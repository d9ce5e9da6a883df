"""Guarantees of every store for membership when members die, stall or lose their session."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping
from functools import partial

import pytest

from kip30 import GroupMembership, Member, MemberExistsError, MembershipChange, PluginLocator
from kip30.aio import AsyncPluginLocator
from kip30_conformance.clients.callback_recorder import Recorder
from kip30_conformance.clients.peer import Peer, PeerError, settled
from kip30_conformance.evidence import Evidence
from kip30_conformance.harness import Harness
from kip30_conformance.polling import eventually, throughout, time_scale
from kip30_conformance.suite import OpenClient, OpenPeer, Suite, supported


@pytest.mark.fault
class MembershipFaultTests(Suite):
    """Dead members end in time, live ones stay, one that was away too long notices first."""

    def test_M08_crash_leave(
        self, client: PluginLocator, peer: OpenPeer, harness: Harness, evidence: Evidence
    ) -> None:
        """A member killed with -9 is gone within the session timeout, and its id is free."""
        group, changes = _watched(client)
        victim = _joined(peer)
        changes.expect(lambda change: "m" in change.joined)
        victim.kill()
        eventually(
            lambda: not group.membership_list(),
            within=harness.crash_patience,
            what="the group is empty",
        )
        assert changes.expect(lambda change: change.left).left == {"m"}
        group.join("m", "successor")
        evidence.saw("dead process", victim.pid)

    @pytest.mark.parametrize("in_loop", [False, True], ids=["blocking", "asyncio"])
    def test_M08_join_after_crash(  # noqa: PLR0913  what both kinds of clients need
        self,
        client: PluginLocator,
        peer: OpenPeer,
        harness: Harness,
        root: str,
        evidence: Evidence,
        *,
        in_loop: bool,
    ) -> None:
        """A server that was killed with -9 joins again under its own id, if it waits for that."""
        victim = _joined(peer)
        victim.kill()
        wait_seconds = harness.crash_patience * time_scale()

        async def join() -> Mapping[str, str]:
            async with AsyncPluginLocator(harness.properties(root, **harness.patient)) as locator:
                group = locator.group_membership("g")
                await group.join("m", "successor", wait_seconds=wait_seconds)
                return dict(await group.membership())

        group = client.group_membership("g")
        if in_loop:
            members = asyncio.run(join())
        else:
            group.join("m", "successor", wait_seconds=wait_seconds)
            members = dict(group.membership())
        assert members == {"m": "successor"}
        evidence.saw("dead process", victim.pid)

    def test_M10_pause_shorter_than_ttl(
        self, client: PluginLocator, peer: OpenPeer, harness: Harness, evidence: Evidence
    ) -> None:
        """A member stopped for less than half its timeout stays, and no listener is called."""
        sleeper = _joined(peer)
        group, changes = _watched(client)
        sleeper.stop()
        throughout(lambda: "m" in group.membership_list(), seconds=0.4 * harness.session_seconds)
        sleeper.resume()
        throughout(lambda: "m" in group.membership_list(), seconds=harness.session_seconds / 2)
        assert sleeper.call("still_joined", member_id="m")
        assert (changes.events, sleeper.call("history")) == ([], [])
        evidence.saw("stopped process", sleeper.pid)

    def test_M11_pause_longer_than_ttl(
        self, client: PluginLocator, peer: OpenPeer, harness: Harness, evidence: Evidence
    ) -> None:
        """Others see a stopped member leave; it knows so itself before it can act as one."""
        sleeper = _joined(peer)
        group, changes = _watched(client)
        sleeper.stop()
        _await_end(group, harness)
        throughout(lambda: not group.membership_list(), seconds=2 * harness.session_seconds)
        assert changes.expect(lambda change: change.left).left == {"m"}
        sleeper.send("still_joined", member_id="m")
        sleeper.resume()
        assert sleeper.receive() is False
        eventually(
            lambda: [note["what"] for note in sleeper.call("history")] == ["lost"],
            what="the client that slept is notified of its loss, once",
        )
        evidence.saw("stopped process", sleeper.pid)

    def test_M12_rejoin_after_pause(
        self, client: PluginLocator, peer: OpenPeer, harness: Harness, evidence: Evidence
    ) -> None:
        """A member that was stopped for too long joins again by itself, once, with its data."""
        sleeper = _joined(peer)
        group, changes = _watched(client)
        sleeper.stop()
        _await_end(group, harness)
        changes.expect(lambda change: change.left)
        sleeper.resume()
        eventually(
            lambda: dict(group.membership()) == {"m": "sleeper"},
            what="who slept is a member again, with its data",
        )
        changes.expect(lambda change: "m" in change.joined)
        throughout(lambda: "m" in group.membership_list(), seconds=harness.session_seconds)
        evidence.saw("stopped process", sleeper.pid)

    def test_M12_rejoin_after_expiry(
        self, open_client: OpenClient, harness: Harness, evidence: Evidence
    ) -> None:
        """After a lost session a member re-joins as one new incarnation, and knows of the loss.

        Observers are notified too, though id and data are the same.
        """
        client = open_client()
        faults, group, lost = harness.faults(client), client.group_membership("g"), _lost()
        group.join("m", "data", on_lost=lost)
        other, changes = _watched(open_client())
        first = group.member("m")
        supported(faults.expire_session)
        evidence.saw("expired session", faults.counted())
        assert lost.expect_count(1) == [first]
        second = eventually(lambda: group.member("m"), what="the member has joined again")
        assert second is not first
        assert dict(other.membership()) == {"m": "data"}
        changes.expect(lambda change: "m" in change.joined | change.updated)
        throughout(lambda: group.member("m") is second, seconds=harness.session_seconds / 2)
        assert len(lost.events) == 1

    def test_M12_update_outlives_the_session(
        self, open_client: OpenClient, harness: Harness, evidence: Evidence
    ) -> None:
        """A member that re-joins has the data of its last update, not that of its first join."""
        client = open_client()
        faults, group, lost = harness.faults(client), client.group_membership("g"), _lost()
        group.join("m", "old", on_lost=lost)
        group.update("m", "new")
        supported(faults.expire_session)
        evidence.saw("expired session", faults.counted())
        lost.expect_count(1)
        other = open_client().group_membership("g")
        eventually(
            lambda: dict(other.membership()) == {"m": "new"},
            what="the member has joined again, with its new data",
        )

    def test_M13_id_conflict_after_pause(
        self, open_client: OpenClient, peer: OpenPeer, harness: Harness, evidence: Evidence
    ) -> None:
        """If the id was taken meanwhile, its old holder stays out and does not evict the new."""
        sleeper = _joined(peer)
        group, _ = _watched(open_client(**harness.steady))
        successor = _taken_over(sleeper, group, harness)
        throughout(
            lambda: successor.is_valid() and dict(group.membership()) == {"m": "successor"},
            seconds=harness.session_seconds,
        )
        assert not sleeper.call("is_member", group="g", member_id="m")
        join = partial(sleeper.call, "join", group="g", member_id="m")
        answer = eventually(partial(settled, join), what="the store answers the join")
        assert answer == MemberExistsError.__name__
        evidence.saw("stopped process", sleeper.pid)

    def test_M23_shared_lease(
        self, client: PluginLocator, peer: OpenPeer, harness: Harness, evidence: Evidence
    ) -> None:
        """A member whose process is killed stays while another process shares its lease."""
        group, victim = client.group_membership("g"), _joined(peer)
        group.join("first", "")
        supported(group.share_lease, "first")
        group.leave("first")
        lease_holder = victim.call("share_lease", group="g", member_id="m")
        victim.kill()
        try:
            throughout(
                lambda: group.membership_list() == frozenset({"m"}),
                seconds=0.4 * harness.session_seconds,
            )
        finally:
            os.kill(lease_holder, signal.SIGKILL)
        _await_end(group, harness)
        evidence.saw("dead process", victim.pid)

    def test_M13_free_again(
        self, open_client: OpenClient, peer: OpenPeer, harness: Harness, evidence: Evidence
    ) -> None:
        """A client that lost an id may join with it once the new holder has left."""
        sleeper = _joined(peer)
        group, _ = _watched(open_client(**harness.steady))
        _taken_over(sleeper, group, harness)
        group.leave("m")
        eventually(lambda: _joins_or_has_joined(sleeper), what="the sleeper has joined again")
        ids = frozenset({"m"})
        eventually(lambda: group.membership_list() == ids, what="the group shows the sleeper")
        evidence.saw("stopped process", sleeper.pid)


def _watched(
    client: PluginLocator,
) -> tuple[GroupMembership[str], Recorder[MembershipChange[str]]]:
    """Return the group by *client*, and the events of a listener of it."""
    group, changes = client.group_membership("g"), Recorder[MembershipChange[str]]()
    group.add_listener(changes)
    return group, changes


def _joined(peer: OpenPeer) -> Peer:
    process = peer()
    process.call("join", group="g", member_id="m", data="sleeper")
    return process


def _lost() -> Recorder[Member]:
    return Recorder[Member]()


def _await_end(group: GroupMembership[str], harness: Harness) -> None:
    """Wait until the stopped member is gone."""
    eventually(
        lambda: not group.membership_list(),
        within=harness.crash_patience,
        what="the group is empty",
    )


def _taken_over(sleeper: Peer, group: GroupMembership[str], harness: Harness) -> Member:
    """Stop *sleeper* until *group* has a new holder of its id, which is returned; wake it up."""
    sleeper.stop()
    # M11 limits the delay. Here the machine may be slow.
    eventually(
        lambda: not group.membership_list(),
        within=10 + harness.crash_patience,
        what="the group is empty",
    )
    successor = group.join("m", "successor")
    sleeper.resume()
    eventually(lambda: sleeper.call("history"), what="the sleeper hears of its loss")
    return successor


def _joins_or_has_joined(peer: Peer) -> bool:
    """Join, unless the peer's own attempt to re-join is under way or has succeeded."""
    with contextlib.suppress(PeerError):
        peer.call("join", group="g", member_id="m")
    return bool(peer.call("is_member", group="g", member_id="m"))
