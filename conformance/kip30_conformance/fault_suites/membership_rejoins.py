"""Guarantees of every store for members that lose their session: re-joins and evictions."""

import contextlib
import threading
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import pytest

from kip30 import (
    GroupMembership,
    Member,
    MemberExistsError,
    NotMemberError,
    OutcomeUnknownError,
    PluginLocator,
    UnavailableError,
)
from kip30_conformance.client_faults import ClientFaults
from kip30_conformance.clients.callback_recorder import Recorder
from kip30_conformance.clients.work_share import Share
from kip30_conformance.evidence import Evidence
from kip30_conformance.harness import Harness
from kip30_conformance.polling import eventually, time_scale
from kip30_conformance.suite import OpenClient, Suite, supported

_SESSIONS = 20
_PARTS = range(16)
_LATE = 8
"""A number of refused claims that takes about three seconds, longer than another client's join."""


class _Event(NamedTuple):
    """One call of a callback; *answered* is what `GroupMembership.member` returned in it."""

    what: str
    member: Member
    answered: Member | None


class _MemberCallbacks:
    """The callbacks of one member, and their calls."""

    def __init__(self, group: GroupMembership[str]) -> None:
        self.events = Recorder[_Event]()
        self._group = group

    def join(self, data: str) -> Member:
        return self._group.join(
            "m",
            data,
            on_lost=partial(self._note, "lost"),
            on_evicted=partial(self._note, "evicted"),
            on_rejoined=partial(self._note, "rejoined"),
        )

    def expect(self, what: str, count: int = 1, *, within: float = 10.0) -> Member:
        """Return the member of the last of *count* calls of that callback."""
        eventually(
            lambda: len(self.called(what)) >= count, within=within, what=f"{count} times {what}"
        )
        return self.called(what)[-1].member

    def called(self, what: str) -> list[_Event]:
        return [event for event in self.events.events if event.what == what]

    def _note(self, what: str, member: Member) -> None:
        self.events(_Event(what, member, self._group.member("m")))


@pytest.mark.fault
class MembershipRejoinTests(Suite):
    """A lost session is followed by a re-join with the newest data, or by an eviction."""

    @pytest.mark.parametrize("ended", ["leave", "update", "group", "locator"])
    def test_M25_end_after_eviction(
        self, open_client: OpenClient, harness: Harness, evidence: Evidence, ended: str
    ) -> None:
        """An evicted member has nothing left to end: leave, update and close return at once."""
        client = open_client()
        group = client.group_membership("g")
        rival = open_client().group_membership("g")
        member = _evict(harness.faults(client), group, rival)
        evidence.saw("lost session", member.lost.is_set())
        began = time.monotonic()
        if ended in {"leave", "update"}:
            with pytest.raises(NotMemberError):
                _call(client, group, ended)
        else:
            _call(client, group, ended)
        allowed = harness.operation_seconds * (time_scale() if ended == "locator" else 0.5)
        assert time.monotonic() - began < allowed

    def test_M26_rejoined_after_lost(
        self, open_client: OpenClient, harness: Harness, evidence: Evidence
    ) -> None:
        """In each of 20 lost sessions on_rejoined follows on_lost, and `member` answers it by then.

        A read in on_rejoined shows the incarnation, and has at least its order.
        """
        client, other = open_client(), open_client()
        faults, group = harness.faults(client), client.group_membership("g")
        story = _MemberCallbacks(group)
        first = story.join("data")
        for number in range(1, _SESSIONS + 1):
            supported(faults.expire_session)
            member = story.expect("rejoined", number)
            assert dict(view := group.membership()) == {"m": "data"}
            assert view.order >= member.order
            assert other.group_membership("g").membership() == {"m": "data"}
        evidence.saw("expired sessions", faults.counted())
        _expect_one_after_the_other(first, story.events.events)

    def test_M27_update_of_a_lost_session(
        self, open_client: OpenClient, harness: Harness, evidence: Evidence
    ) -> None:
        """Others then see the data given right after the session has ended in the store."""
        client = open_client(**harness.patient)
        faults, group = harness.faults(client), client.group_membership("g")
        other = open_client().group_membership("g")
        group.join("m", "healthy")
        for number in range(5):
            supported(faults.expire_session)
            group.update("m", f"sick {number}")
            assert other.membership() == {"m": f"sick {number}"}
        evidence.saw("expired sessions", faults.counted())

    def test_M27_update_from_on_lost(
        self, open_client: OpenClient, harness: Harness, evidence: Evidence
    ) -> None:
        """A callback may update the member whose loss it was called for, and that is kept."""
        client = open_client(**harness.patient)
        faults, group = harness.faults(client), client.group_membership("g")
        other, updated = open_client().group_membership("g"), Recorder[Member]()
        group.join(
            "m",
            "healthy",
            on_lost=lambda _: group.update("m", "sick"),
            on_rejoined=updated,
        )
        supported(faults.expire_session)
        evidence.saw("expired session", faults.counted())
        updated.expect_count(1, within=2 * harness.session_seconds * time_scale())
        assert other.membership() == {"m": "sick"}

    def test_M27_update_overtakes_a_rejoin(
        self, open_client: OpenClient, harness: Harness, evidence: Evidence
    ) -> None:
        """A re-join that is under way with older data is corrected before update returns."""
        client = open_client(**harness.patient)
        faults, group = harness.faults(client), client.group_membership("g")
        other, story = open_client().group_membership("g"), _MemberCallbacks(group)
        story.join("healthy")
        faults.delay("membership.claim", 0.7)
        supported(faults.expire_session)
        story.expect("lost", within=2 * harness.session_seconds * time_scale())
        eventually(lambda: faults.counted() >= 2, what="the re-join is under way")
        group.update("m", "sick")
        assert other.membership() == {"m": "sick"}
        evidence.saw("delayed claim", faults.counted() >= 2)

    def test_M27_update_without_an_answer(
        self, open_client: OpenClient, harness: Harness, evidence: Evidence
    ) -> None:
        """An update whose wait for a re-join fails says so, and the re-join shows its data."""
        client = open_client()
        faults, group = harness.faults(client), client.group_membership("g")
        other, story = open_client().group_membership("g"), _MemberCallbacks(group)
        story.join("healthy")
        with supported(faults.cut_off):
            story.expect("lost", within=2 * harness.session_seconds)
            with pytest.raises(OutcomeUnknownError, match="will re-join with this data"):
                group.update("m", "sick")
        story.expect("rejoined", within=4 * harness.session_seconds)
        assert other.membership() == {"m": "sick"}
        evidence.saw("refused calls", faults.counted())

    def test_M27_refused_update(
        self, open_client: OpenClient, harness: Harness, evidence: Evidence
    ) -> None:
        """An update that definitely failed is not what a later re-join shows."""
        client = open_client()
        faults, group = harness.faults(client), client.group_membership("g")
        other, story = open_client().group_membership("g"), _MemberCallbacks(group)
        story.join("healthy")
        faults.fail("membership.replace")
        with pytest.raises(UnavailableError):
            group.update("m", "refused")
        supported(faults.expire_session)
        story.expect("rejoined")
        assert other.membership() == {"m": "healthy"}
        evidence.saw("refused update and expired session", faults.counted() >= 2)

    def test_M30_share_of_the_members(
        self, open_client: OpenClient, harness: Harness, evidence: Evidence
    ) -> None:
        """Members that share work by who is in the group share all of it, after lost sessions too.

        A member that is cut off works on nothing, by its own clock, and the others on all.
        """
        clients = [open_client() for _ in range(3)]
        shares = [
            Share(client.group_membership("g"), f"m{number}", _PARTS)
            for number, client in enumerate(clients)
        ]
        _expect_all_shared(shares)
        for client in clients:
            supported(harness.faults(client).expire_session)
        for share in shares:
            share.rejoined.expect_count(1)
        _expect_all_shared(shares)
        with supported(harness.faults(clients[0]).cut_off):
            within = 2 * harness.crash_patience
            eventually(lambda: shares[0].mine() == [], within=within, what="its clock has ended it")
            _expect_all_shared(shares[1:], within=within)
        _expect_all_shared(shares, within=4 * harness.session_seconds)
        evidence.saw("expired sessions", [harness.faults(one).counted() for one in clients])

    @pytest.mark.parametrize("call", ["join", "leave", "update", "group", "locator"])
    @pytest.mark.parametrize("callback", ["lost", "rejoined", "evicted"])
    def test_M31_callbacks_call(
        self,
        open_client: OpenClient,
        harness: Harness,
        evidence: Evidence,
        callback: str,
        call: str,
    ) -> None:
        """Callbacks of a member may call anything, and none of it waits for the callback itself."""
        client, rival = open_client(), open_client().group_membership("g")
        group, done = client.group_membership("g"), threading.Event()

        def act(_: Member) -> None:
            with contextlib.suppress(MemberExistsError, NotMemberError, OutcomeUnknownError):
                _call(client, group, call)
            done.set()

        if callback == "evicted":
            member = _evict(harness.faults(client), group, rival, on_evicted=act)
        else:
            act_on_lost, act_on_rejoined = (act, None) if callback == "lost" else (None, act)
            member = group.join("m", "", on_lost=act_on_lost, on_rejoined=act_on_rejoined)
            supported(harness.faults(client).expire_session)
        assert done.wait(10 * time_scale())
        evidence.saw("lost session", member.lost.is_set())


def _evict(
    faults: ClientFaults,
    group: GroupMembership[str],
    rival: GroupMembership[str],
    on_evicted: Callable[[Member], object] | None = None,
) -> Member:
    """Join *group*, end the session, and let *rival* take the id before the re-join."""
    evicted = Recorder[Member](on_evicted)
    member = group.join("m", "mine", on_evicted=evicted)
    faults.fail("membership.claim", times=_LATE)
    supported(faults.expire_session)
    eventually(lambda: _joins(rival), what="the id is free")
    evicted.expect_count(1, within=20)
    return member


def _joins(group: GroupMembership[str]) -> bool:
    try:
        group.join("m", "theirs")
    except MemberExistsError:
        return False
    return True


def _call(client: PluginLocator, group: GroupMembership[str], call: str) -> None:
    match call:
        case "join":
            group.join("m", "again")
        case "leave":
            group.leave("m")
        case "update":
            group.update("m", "late")
        case "group":
            group.close()
        case _:
            client.close()


def _expect_one_after_the_other(first: Member, events: list[_Event]) -> None:
    """Require each incarnation to be lost before the next one is announced."""
    assert events[0][:2] == ("lost", first)
    for earlier, later in pairwise(events):
        if later.what == "rejoined":
            assert earlier.what == "lost"
            assert later.member is not earlier.member
            assert later.answered is later.member
            assert later.member.incarnation > earlier.member.incarnation
            assert later.member.order > earlier.member.order
        else:
            assert (later.what, later.member) == ("lost", earlier.member)


def _expect_all_shared(shares: list[Share], *, within: float = 10.0) -> None:
    eventually(
        lambda: sorted(part for share in shares for part in share.mine()) == list(_PARTS),
        within=within,
        what="each part has one member",
    )
