"""Guarantees of every store for group membership, without faults of the members."""

import os
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from kip30 import (
    BYTES,
    DefiniteError,
    MemberExistsError,
    MembershipChange,
    NotMemberError,
    OutcomeUnknownError,
    PluginLocator,
)
from kip30.driver import Capability
from kip30.driver.kit.futures import failed
from kip30.driver.records import Claim
from kip30_conformance.clients.callback_recorder import Recorder
from kip30_conformance.clients.crowd import at_once
from kip30_conformance.clients.peer import Peer, PeerError
from kip30_conformance.driver_faults import wrap
from kip30_conformance.harness import Harness
from kip30_conformance.polling import eventually, time_scale
from kip30_conformance.suite import OpenClient, OpenPeer, Suite, needing

_RACES = 20
_LATE_SECONDS = 10


class _HeldBack:
    """Holds the first replacement of a member's data back, and its answer.

    Args:
        client: Whose.
        is_next_behind: Whether it arrives before the next one; if not, it waits for `arrive`.
    """

    def __init__(self, client: PluginLocator, *, is_next_behind: bool = False) -> None:
        self._is_next_behind = is_next_behind
        self._late: Callable[[], Future[Claim]] | None = None
        self.has_arrived = False
        wrap(client.backend.membership, "replace", self._replace)

    def arrive(self) -> BaseException | None:
        """Let it arrive, and return how the store has refused it, if it has."""
        assert self._late is not None
        self.has_arrived = True
        return self._late().exception(_LATE_SECONDS * time_scale())

    def _replace(self, real: Callable[..., Future[Claim]], *arguments: Any) -> Future[Claim]:
        if self._late is None:
            self._late = partial(real, *arguments)
            return failed(OutcomeUnknownError("the request is held back"))
        if self._is_next_behind and not self.has_arrived:
            assert self.arrive() is None
        return real(*arguments)


class MembershipTests(Suite):
    """Members are seen by all at once, ids have one holder, and leaving frees them at once."""

    def test_M01_join_visible(self, open_client: OpenClient) -> None:
        """Every client sees a new member, its data byte for byte, as soon as join has returned."""
        data = bytes(range(256))
        others = [open_client().group_membership("g", BYTES) for _ in range(2)]
        open_client().group_membership("g", BYTES).join("m", data)
        assert [dict(other.membership()) for other in others] == [{"m": data}] * 2
        assert [other.membership_list() for other in others] == [{"m"}] * 2

    def test_M01_join_visible_in_another_process(
        self, client: PluginLocator, peer: OpenPeer
    ) -> None:
        """A process sees the members of another one, and the other way round."""
        other = peer()
        group = client.group_membership("g")
        group.join("here", "ici")
        other.call("join", group="g", member_id="there", data="là")
        both = {"here": "ici", "there": "là"}
        assert dict(group.membership()) == other.call("membership", group="g") == both

    def test_M01_update_visible(self, open_client: OpenClient) -> None:
        """Data that a member replaced is seen by every client, under the same membership."""
        group = open_client().group_membership("g")
        member = group.join("m", "old")
        group.update("m", "new")
        assert dict(open_client().group_membership("g").membership()) == {"m": "new"}
        assert member.is_valid()

    def test_M60_late_update(self, open_client: OpenClient) -> None:
        """An update that arrives after a later one was acknowledged changes nothing."""
        client, other = open_client(), open_client().group_membership("g")
        group, late = client.group_membership("g"), _HeldBack(client)
        group.join("m", "0")
        with suppress(OutcomeUnknownError):  # unless it is repeated
            group.update("m", "1")
        group.update("m", "2")
        assert isinstance(late.arrive(), DefiniteError)
        assert other.membership() == {"m": "2"}
        group.update("m", "3")
        assert other.membership() == {"m": "3"}

    def test_M60_late_update_before_the_next(self, open_client: OpenClient) -> None:
        """An update that arrives late, but before the next one, is replaced by that."""
        client, other = open_client(), open_client().group_membership("g")
        group, late = client.group_membership("g"), _HeldBack(client, is_next_behind=True)
        member = group.join("m", "0")
        with suppress(OutcomeUnknownError):
            group.update("m", "1")
        group.update("m", "2")
        assert late.has_arrived
        assert other.membership() == {"m": "2"}
        assert member.is_valid()

    def test_M02_join_conflict(self, open_client: OpenClient) -> None:
        """A second client cannot take the id of a member, which is unharmed."""
        first, second = (open_client().group_membership("g") for _ in range(2))
        member = first.join("m", "first")
        with pytest.raises(MemberExistsError):
            second.join("m", "second")
        assert dict(second.membership()) == {"m": "first"}
        assert member.is_valid()
        first.update("m", "still first")

    def test_M02_wait_for_an_id(self, open_client: OpenClient) -> None:
        """A client waits for a taken id no longer than requested, and then holds nothing."""
        first, second = (open_client().group_membership("g") for _ in range(2))
        member = first.join("m", "first")
        with pytest.raises(MemberExistsError, match="session timeout"):
            second.join("m", "second", wait_seconds=0.3)
        assert dict(second.membership()) == {"m": "first"}
        assert member.is_valid()
        with ThreadPoolExecutor() as pool:
            waiting = pool.submit(second.join, "m", "second", wait_seconds=60 * time_scale())
            first.leave("m")
            assert waiting.result().is_valid()
        assert dict(first.membership()) == {"m": "second"}

    def test_M02_loser_holds_nothing(self, open_client: OpenClient) -> None:
        """A client that was refused an id holds nothing: its end does not end the holder's."""
        first, second = (open_client().group_membership("g") for _ in range(2))
        first.join("m", "")
        with pytest.raises(MemberExistsError):
            second.join("m", "")
        with pytest.raises(NotMemberError):
            second.leave("m")
        second.close()
        assert first.membership_list() == {"m"}

    def test_M03_join_race_of_processes(self, client: PluginLocator, peer: OpenPeer) -> None:
        """Of processes that take one id at once exactly one gets it, every time."""
        peers = [peer() for _ in range(4)]
        for number in range(_RACES):
            winners = _race_to_join(peers, f"m{number}")
            assert len(winners) == 1
            assert client.group_membership("g").membership()[f"m{number}"] == winners[0]

    def test_M03_join_race_of_threads(self, open_client: OpenClient) -> None:
        """Of threads that take one id at once, with one client or two, exactly one gets it."""
        clients = [open_client(), open_client()]
        groups = [client.group_membership("g") for client in clients for _ in range(3)]
        for number in range(_RACES):
            works = [partial(group.join, f"m{number}", "") for group in groups]
            outcomes = Counter(type(outcome).__name__ for outcome in at_once(works))
            assert outcomes == {"Member": 1, "MemberExistsError": len(groups) - 1}

    def test_M04_join_same_client_twice(self, client: PluginLocator) -> None:
        """The same client is refused its own id too, by the same handle or another one."""
        handles = [client.group_membership("g") for _ in range(2)]
        member = handles[0].join("m", "first")
        for handle in handles:
            with pytest.raises(MemberExistsError):
                handle.join("m", "second")
        assert dict(handles[0].membership()) == {"m": "first"}
        assert member.is_valid()

    def test_M04_many_members_of_one_client(self, client: PluginLocator) -> None:
        """One client may join with several ids, and leaves with each on its own."""
        group = client.group_membership("g")
        for name in "abc":
            group.join(name, name.upper())
        group.leave("b")
        assert dict(group.membership()) == {"a": "A", "c": "C"}

    def test_M05_leave_visible(self, open_client: OpenClient) -> None:
        """No client sees a member once its leave has returned, and listeners are notified."""
        group, other = (open_client().group_membership("g") for _ in range(2))
        member = group.join("m", "")
        changes = Recorder[MembershipChange[str]]()
        other.add_listener(changes)
        group.leave("m")
        assert other.membership_list() == frozenset()
        assert not member.is_valid()
        assert changes.expect(lambda change: change.left).left == {"m"}

    def test_M05_leave_not_member(self, open_client: OpenClient) -> None:
        """Leaving with an id that is not one's own is a definite error and evicts no member."""
        group, other = (open_client().group_membership("g") for _ in range(2))
        other.join("theirs", "")
        for name in ("theirs", "nobody's"):
            with pytest.raises(NotMemberError):
                group.leave(name)
        assert group.membership_list() == {"theirs"}

    def test_M05_leave_twice(self, client: PluginLocator) -> None:
        """Leaving a second time, or updating after leaving, is a definite error."""
        group = client.group_membership("g")
        group.join("m", "")
        group.leave("m")
        with pytest.raises(NotMemberError):
            group.leave("m")
        with pytest.raises(NotMemberError):
            group.update("m", "late")
        assert group.membership_list() == frozenset()

    def test_M06_leave_then_other_takes_id(self, open_client: OpenClient) -> None:
        """The id is free for anyone at once after leave has returned."""
        groups = [open_client().group_membership("g") for _ in range(3)]
        for turn in range(3 * len(groups)):
            holder = groups[turn % len(groups)]
            holder.join("m", str(turn))
            assert dict(groups[0].membership()) == {"m": str(turn)}
            holder.leave("m")

    @pytest.mark.parametrize("closed", ["group", "locator"])
    def test_M09_clean_close_is_fast(self, open_client: OpenClient, closed: str) -> None:
        """Closing the group, or its locator, ends its memberships before it returns."""
        leaver = open_client()
        group = leaver.group_membership("g")
        members = [group.join(name, "") for name in "ab"]
        (group if closed == "group" else leaver).close()
        assert open_client().group_membership("g").membership_list() == frozenset()
        assert not any(member.is_valid() for member in members)

    def test_M09_closing_process_is_fast(
        self, client: PluginLocator, peer: OpenPeer, harness: Harness
    ) -> None:
        """A process that ends in an orderly way is gone without waiting for the timeout."""
        other = peer()
        other.call("join", group="g", member_id="m")
        group = client.group_membership("g")
        assert group.membership_list() == {"m"}
        other.call("close")
        eventually(
            lambda: not group.membership_list(), within=harness.soon, what="the group is empty"
        )

    def test_M23_share_lease(self, client: PluginLocator) -> None:
        """The lease of a member can be shared if that is declared; a non-member has none."""
        group = client.group_membership("g")
        with pytest.raises(NotMemberError):
            group.share_lease("m")
        group.join("m", "")
        with needing(client, Capability.LEASE_SHARING):
            os.fstat(group.share_lease("m"))
        group.leave("m")
        with pytest.raises(NotMemberError):
            group.share_lease("m")

    def test_M20_own_view_first(self, client: PluginLocator) -> None:
        """The joiner sees itself when join returns, and never when leave has."""
        group = client.group_membership("g")
        for turn in range(20):
            member = group.join("m", str(turn))
            assert dict(group.membership()) == {"m": str(turn)}
            assert group.member("m") is member
            group.leave("m")
            assert group.membership_list() == frozenset()
            assert group.member("m") is None


def _race_to_join(peers: list[Peer], member_id: str) -> list[str]:
    """Let all *peers* join at once; return the data of those that succeeded."""
    for number, peer in enumerate(peers):
        peer.send("join", group="g", member_id=member_id, data=str(number))
    return [str(number) for number, peer in enumerate(peers) if _was_let_in(peer)]


def _was_let_in(peer: Peer) -> bool:
    try:
        peer.receive()
    except PeerError as error:
        if error.kind != MemberExistsError.__name__:
            raise
        return False
    return True
