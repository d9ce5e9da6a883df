"""Guarantees of every store for members that end with their session: ``rejoin=False``."""

import time

import pytest

from kip30 import GroupMembership, Member, NotMemberError, PluginLocator, UnavailableError
from kip30_conformance.clients.callback_recorder import Recorder
from kip30_conformance.evidence import Evidence
from kip30_conformance.harness import Harness
from kip30_conformance.polling import eventually, throughout
from kip30_conformance.suite import OpenClient, OpenPeer, Suite, supported


@pytest.mark.fault
class WithoutRejoinTests(Suite):
    """A member that is not to re-join is released with its session, and its id is free again."""

    def test_M24_lost_for_good(
        self, open_client: OpenClient, harness: Harness, evidence: Evidence
    ) -> None:
        """A member without rejoin ends with its session; another one of its client re-joins."""
        client, other = open_client(), open_client(**harness.steady).group_membership("g")
        faults, group = harness.faults(client), client.group_membership("g")
        callbacks = _Callbacks()
        member = callbacks.join(group)
        group.join("stays", "")
        group.update("m", "newer")
        supported(faults.expire_session)
        evidence.saw("expired session", faults.counted())
        assert callbacks.lost.expect_count(1) == [member]
        assert not member.is_valid()
        _expect_over(harness, group)
        eventually(
            lambda: other.membership_list() == frozenset({"stays"}), what="only the other is there"
        )
        throughout(
            lambda: other.membership_list() == frozenset({"stays"}),
            seconds=harness.session_seconds / 2,
        )
        assert group.member("m") is None
        callbacks.expect_no_more()

    def test_M24_id_is_free(
        self, open_client: OpenClient, harness: Harness, evidence: Evidence
    ) -> None:
        """From on_lost on the id may join again, as another member with what it is given then."""
        client, other = open_client(), open_client(**harness.steady).group_membership("g")
        faults, group = harness.faults(client), client.group_membership("g")
        again = Recorder[Member]()
        members = [
            group.join(
                "m", "stale", rejoin=False, on_lost=lambda _: again(group.join("m", "fresh"))
            )
        ]
        supported(faults.expire_session)
        evidence.saw("expired session", faults.counted())
        members += again.expect_count(1)
        assert members[0].incarnation < members[1].incarnation
        throughout(
            lambda: other.membership() == {"m": "fresh"}, seconds=harness.session_seconds / 2
        )
        assert group.member("m") is members[1]
        group.update("m", "fresher")
        group.leave("m")
        assert other.membership_list() == frozenset()

    def test_M24_other_takes_id(
        self, open_client: OpenClient, harness: Harness, evidence: Evidence
    ) -> None:
        """Another client may take the id of a member without rejoin; on_evicted is not called."""
        client, other = open_client(), open_client(**harness.steady).group_membership("g")
        faults, group = harness.faults(client), client.group_membership("g")
        callbacks = _Callbacks()
        callbacks.join(group)
        supported(faults.expire_session)
        evidence.saw("expired session", faults.counted())
        callbacks.lost.expect_count(1)
        eventually(lambda: not other.membership_list(), what="the group is empty")
        successor = other.join("m", "theirs")
        throughout(successor.is_valid, seconds=harness.session_seconds / 2)
        _expect_over(harness, group)
        assert other.membership() == {"m": "theirs"}
        callbacks.expect_no_more()

    def test_M24_silent_store(
        self, open_client: OpenClient, harness: Harness, evidence: Evidence
    ) -> None:
        """Without answers a member without rejoin ends by its own clock; it never comes back."""
        client, other = open_client(), open_client(**harness.steady).group_membership("g")
        faults, group = harness.faults(client), client.group_membership("g")
        callbacks = _Callbacks()
        callbacks.join(group)
        with supported(faults.cut_off):
            # On a busy machine the lease may end before a renewal is sent.
            unanswered = client.storage().fetch("k")
            callbacks.lost.expect_count(1, within=2 * harness.session_seconds)
            _expect_over(harness, group)
            with pytest.raises(UnavailableError):
                unanswered.result()
        eventually(
            lambda: not other.membership_list(),
            within=2 * harness.crash_patience,
            what="the group is empty",
        )
        throughout(lambda: not other.membership_list(), seconds=harness.session_seconds)
        callbacks.expect_no_more()
        evidence.saw("refused calls", faults.counted())

    def test_M24_removed_externally(
        self, open_client: OpenClient, harness: Harness, root: str, evidence: Evidence
    ) -> None:
        """A member without rejoin whose record was removed ends; its session may continue."""
        client = open_client(**harness.patient)
        group, callbacks = client.group_membership("g"), _Callbacks()
        member = callbacks.join(group)
        supported(harness.delete_member, root, "g", "m")
        assert callbacks.lost.expect_count(1, within=harness.crash_patience) == [member]
        _expect_over(harness, group)
        assert group.join("m", "again").incarnation > member.incarnation
        callbacks.expect_no_more()
        evidence.saw("lost member", member.lost.is_set())

    def test_M24_paused_process(
        self, client: PluginLocator, peer: OpenPeer, harness: Harness, evidence: Evidence
    ) -> None:
        """A process that was stopped for too long loses its member without rejoin on resuming."""
        sleeper, group = peer(), client.group_membership("g")
        sleeper.call("join", group="g", member_id="m", rejoin=False)
        sleeper.stop()
        eventually(
            lambda: not group.membership_list(),
            within=harness.crash_patience,
            what="the group is empty",
        )
        sleeper.resume()
        eventually(
            lambda: [note["what"] for note in sleeper.call("history")] == ["lost"],
            what="the sleeper hears of its loss, once",
        )
        throughout(lambda: not group.membership_list(), seconds=harness.session_seconds)
        assert sleeper.call("is_member", group="g", member_id="m") is False
        evidence.saw("stopped process", sleeper.pid)


class _Callbacks:
    """A member that does not re-join, and the calls of its callbacks."""

    def __init__(self) -> None:
        self.lost = Recorder[Member]()
        self._more = Recorder[Member]()

    def join(self, group: GroupMembership[str]) -> Member:
        return group.join(
            "m",
            "data",
            rejoin=False,
            on_lost=self.lost,
            on_evicted=self._more,
            on_rejoined=self._more,
        )

    def expect_no_more(self) -> None:
        """Require one loss, and no call but that."""
        assert (len(self.lost.events), self._more.events) == (1, [])


def _expect_over(harness: Harness, group: GroupMembership[str]) -> None:
    """Require ``m`` to be no member, and each call about it to say so at once."""
    began = time.monotonic()
    assert group.member("m") is None
    with pytest.raises(NotMemberError, match="rejoin=False"):
        group.update("m", "late")
    with pytest.raises(NotMemberError, match="rejoin=False"):
        group.leave("m")
    assert time.monotonic() - began < harness.operation_seconds / 2
