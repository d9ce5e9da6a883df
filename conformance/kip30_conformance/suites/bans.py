"""Guarantees of every store for members that operators ban: O30 to O35."""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from kip30 import (
    BYTES,
    BannedError,
    DirectiveRefusedError,
    GroupMembership,
    Member,
    NotMemberError,
    PluginLocator,
    StoreError,
    UsageError,
)
from kip30.driver.clock import SystemClock
from kip30.driver.records import Kind, Target
from kip30.operations import admit, evict, read_bans
from kip30.runtime.bans import MOST, NAMESPACE, Ban, Bans, bans_key, decode_bans, encode_bans
from kip30_conformance.clients.callback_recorder import Recorder
from kip30_conformance.driver_faults import wrap
from kip30_conformance.evidence import Evidence
from kip30_conformance.harness import Harness
from kip30_conformance.polling import eventually, throughout, time_scale
from kip30_conformance.suite import OpenClient, supported
from kip30_conformance.suites.directives import OBEYS, DirectivesSuite, OpenObeying
from kip30_conformance.suites.election import A_MOMENT

_SECONDS = 60
_DAY_SECONDS = 86_400.0
_BAN_SECONDS = 3.0
"""How long a ban lasts that a member must notice, and whose end it must notice."""
_OPERATORS = 4
_WRITES = 6
_MARGIN = 0.3
"""The lease margin of a check, as a part of the session timeout."""
_MILLISECOND = 0.001


class _Calls:
    """The callbacks of one member."""

    def __init__(self) -> None:
        self.lost = Recorder[Member]()
        self.rejoined = Recorder[Member]()

    def join(self, group: GroupMembership[str], data: str = "", *, rejoin: bool = True) -> Member:
        return group.join("m", data, rejoin=rejoin, on_lost=self.lost, on_rejoined=self.rejoined)


class BanTests(DirectivesSuite):
    """A member that is banned leaves by itself, and comes back by itself."""

    def test_O30_ban_and_return(self, client: PluginLocator, obeying: OpenObeying) -> None:
        """A banned member ends as one whose session is lost, and re-joins after the ban."""
        group, seen, calls = obeying().group_membership("g"), _members(client), _Calls()
        member = calls.join(group, "data")
        seconds = _BAN_SECONDS * time_scale()
        evicted = evict(client, "g", "m", ban_seconds=seconds, reason="disk fails")
        assert evicted.ban is not None
        assert (evicted.is_member, evicted.ban.id, evicted.ban.reason) == (True, "m", "disk fails")
        assert calls.lost.expect_count(1) == [member]
        assert not member.is_valid()
        assert member.ending_reason == str(evicted.ban)
        assert "banned until 2" in member.ending_reason
        assert member.ending_reason.endswith(": 'disk fails'")
        rejoined = calls.rejoined.expect_count(1, within=_SECONDS)[0]
        assert time.time() >= evicted.ban.until
        assert rejoined.incarnation > member.incarnation
        assert group.member("m") is rejoined
        assert seen.membership() == {"m": "data"}
        assert read_bans(client, "g") == ()

    def test_O30_gone_while_banned(self, client: PluginLocator, obeying: OpenObeying) -> None:
        """While it is banned nobody sees it, and another client may have the id."""
        group, seen, calls = obeying().group_membership("g"), _members(client), _Calls()
        calls.join(group)
        evict(client, "g", "m", ban_seconds=_DAY_SECONDS)
        eventually(lambda: not seen.membership_list(), what="it has left")
        throughout(lambda: not seen.membership_list(), seconds=A_MOMENT, what="it stays out")
        assert group.member("m") is None
        seen.join("m", "another")
        group.close()
        assert seen.membership() == {"m": "another"}
        assert calls.rejoined.events == []

    def test_O30_released_after_on_lost(self, client: PluginLocator, obeying: OpenObeying) -> None:
        """The store shows it until on_lost has returned."""
        group, seen = obeying().group_membership("g"), _members(client)
        has_begun, may_end = threading.Event(), threading.Event()

        def on_lost(_member: Member) -> None:
            has_begun.set()
            may_end.wait(_SECONDS * time_scale())

        group.join("m", "", on_lost=on_lost)
        evict(client, "g", "m", ban_seconds=_DAY_SECONDS)
        assert has_begun.wait(_SECONDS * time_scale())
        throughout(lambda: bool(seen.membership_list()), seconds=A_MOMENT, what="it is held")
        may_end.set()
        eventually(lambda: not seen.membership_list(), what="it has left")

    def test_O30_margin_kept(self, client: PluginLocator, open_client: OpenClient) -> None:
        """A program that only asks whether it is a member has the lease margin to notice."""
        margin_seconds = _MARGIN * client.context.session_timeout_seconds
        margin: Mapping[str, Any] = {"plugin.lease.margin.ms": round(1000 * margin_seconds)}
        banned = open_client(**OBEYS, **margin)
        member = banned.group_membership("g").join("m", "")
        clock, left = SystemClock(), list[float]()
        _members(client).add_listener(lambda change: left.extend([clock.now()] * len(change.left)))
        last_valid = now = clock.now()  # before it may end
        with ThreadPoolExecutor(1) as pool:
            evicted = pool.submit(evict, client, "g", "m", ban_seconds=_DAY_SECONDS)
            while member.is_valid():
                last_valid, now = now, clock.now()
                time.sleep(0.001)
            evicted.result()
        eventually(lambda: left, within=_SECONDS, what="it has left")
        assert left[0] - last_valid >= margin_seconds - _MILLISECOND

    @pytest.mark.fault
    def test_O31_ban_against_rejoin(
        self, client: PluginLocator, obeying: OpenObeying, harness: Harness, evidence: Evidence
    ) -> None:
        """A ban written before the answer to a re-join arrives keeps the program out."""
        banned, calls = obeying(), _Calls()
        calls.join(banned.group_membership("g"), "data")
        claims = _ban_at_claim(client, banned)
        faults = harness.faults(banned)
        supported(faults.expire_session)
        evidence.saw("expired session", faults.counted())
        calls.lost.expect_count(1)
        eventually(lambda: claims, within=_SECONDS, what="it has tried to re-join")
        eventually(lambda: not _members(client).membership_list(), what="given back")
        throughout(lambda: not calls.rejoined.events, seconds=A_MOMENT, what="it stays out")
        admit(client, "g", "m")
        calls.rejoined.expect_count(1, within=_SECONDS)
        assert _members(client).membership() == {"m": "data"}

    def test_O32_join_banned(self, client: PluginLocator, obeying: OpenObeying) -> None:
        """A banned id cannot join, and leaves nothing behind; all others can."""
        group, seen = obeying().group_membership("g"), _members(client)
        ban = evict(client, "g", "m", ban_seconds=_DAY_SECONDS, reason="broken").ban
        for _ in range(2):
            with pytest.raises(BannedError, match=r"banned until .*: 'broken'") as refused:
                group.join("m", "", wait_seconds=_DAY_SECONDS)
            assert str(ban) in str(refused.value)
            assert not seen.membership_list()
        group.join("n", "")
        with pytest.raises(BannedError):  # the watch of "n" has shown it
            group.join("m", "")
        assert seen.membership_list() == {"n"}
        obeying().group_membership("other").join("m", "")

    def test_O32_banned_while_joining(self, client: PluginLocator, obeying: OpenObeying) -> None:
        """A ban written before the answer to the claim of a join arrives refuses it."""
        banned = obeying()
        claims = _ban_at_claim(client, banned)
        with pytest.raises(BannedError):
            banned.group_membership("g").join("m", "")
        assert len(claims) == 1
        eventually(lambda: not _members(client).membership_list(), what="given back")

    @pytest.mark.parametrize("way", ["admitted", "deleted"])
    def test_O33_admit(self, client: PluginLocator, obeying: OpenObeying, way: str) -> None:
        """A ban that is lifted, or whose record is gone, ends at once; joins work again."""
        group, seen, calls = obeying().group_membership("g"), _members(client), _Calls()
        calls.join(group, "old")
        evict(client, "g", "m", ban_seconds=_DAY_SECONDS)
        calls.lost.expect_count(1)
        eventually(lambda: not seen.membership_list(), what="it has left")
        if way == "admitted":
            assert admit(client, "g", "m").ban is None
        else:
            client.storage(BYTES).delete(str(bans_key("g")))
        calls.rejoined.expect_count(1)
        group.update("m", "new")
        assert seen.membership() == {"m": "new"}
        before = _record(client) if way == "admitted" else None
        admit(client, "g", "m")
        assert before is None or _record(client) == before

    def test_O33_ends_without_rejoin(self, client: PluginLocator, obeying: OpenObeying) -> None:
        """A member that is not to re-join is over, and joins only when the ban is lifted."""
        group, calls = obeying().group_membership("g"), _Calls()
        calls.join(group, rejoin=False)
        evict(client, "g", "m", ban_seconds=_DAY_SECONDS)
        calls.lost.expect_count(1)
        with pytest.raises(NotMemberError, match="banned until"):
            group.update("m", "")
        eventually(lambda: not _members(client).membership_list(), what="it has left")
        with pytest.raises(BannedError):
            group.join("m", "")
        admit(client, "g", "m")
        calls.join(group)
        assert calls.rejoined.events == []

    def test_O33_leave_while_banned(self, client: PluginLocator, obeying: OpenObeying) -> None:
        """A member can leave while it is banned; then it does not come back."""
        banned, calls = obeying(), _Calls()
        group = banned.group_membership("g")
        calls.join(group)
        evict(client, "g", "m", ban_seconds=_DAY_SECONDS)
        calls.lost.expect_count(1)
        eventually(lambda: not _members(client).membership_list(), what="it has left")
        group.leave("m")
        admit(client, "g", "m")
        with pytest.raises(NotMemberError):
            group.update("m", "")
        throughout(lambda: not calls.rejoined.events, seconds=A_MOMENT)
        calls.join(group)
        assert _members(client).membership_list() == {"m"}

    def test_O34_many_operators(self, open_client: OpenClient) -> None:
        """Bans of operators at the same moment are all written."""

        def ban(number: int) -> None:
            operator = operators[number]
            for write in range(_WRITES):
                evict(operator, "g", f"{number}-{write}", ban_seconds=_DAY_SECONDS)
            admit(operator, "g", f"{number}-0")

        operators = [open_client() for _ in range(_OPERATORS)]
        with ThreadPoolExecutor(_OPERATORS) as pool:
            for done in [pool.submit(ban, number) for number in range(_OPERATORS)]:
                done.result()
        found = _record(operators[0])
        assert found.number == _OPERATORS * (_WRITES + 1)
        assert {one.id for one in found.bans} == {
            f"{number}-{write}" for number in range(_OPERATORS) for write in range(1, _WRITES)
        }

    def test_O34_limits(self, client: PluginLocator) -> None:
        """A full record takes no further ban; those that are over make room, and are dropped."""
        now = time.time()
        until = now + _DAY_SECONDS
        longest = "\x01" * 84
        reason, host = "\U0001f4a5" * 200, "h" * 100
        bans = [Ban(f"{longest}{number}", until, now, host, reason) for number in range(MOST)]
        _write(client, Bans(1, tuple(bans)))
        before = _record(client)
        with pytest.raises(DirectiveRefusedError, match=f"has {MOST} bans"):
            evict(client, "g", "m", ban_seconds=1.0)
        assert _record(client) == before
        evict(client, "g", bans[0].id, ban_seconds=1.0, reason=reason)  # replaced
        assert len(_record(client).bans) == MOST
        bans[3] = bans[3]._replace(until=now - 1)
        _write(client, Bans(1, tuple(bans)))
        evict(client, "g", "m", ban_seconds=_DAY_SECONDS)
        assert [one.id for one in _record(client).bans] == [
            *(one.id for one in bans if one is not bans[3]),
            "m",
        ]

    def test_O35_others_unharmed(
        self, client: PluginLocator, open_client: OpenClient, obeying: OpenObeying
    ) -> None:
        """Other members stay, also of the same process, and those that do not obey."""
        banned, calls = obeying(), _Calls()
        others = [
            banned.group_membership("g").join("n", ""),
            banned.group_membership("h").join("m", ""),
            obeying().group_membership("g").join("o", ""),
        ]
        calls.join(banned.group_membership("g"))
        others.append(open_client().group_membership("g").join("p", ""))
        evict(client, "g", "p", ban_seconds=_DAY_SECONDS)
        evict(client, "g", "m", ban_seconds=_DAY_SECONDS)
        calls.lost.expect_count(1)
        eventually(lambda: _members(client).membership_list() == frozenset("nop"))
        throughout(
            lambda: all(one.is_valid() for one in others), seconds=A_MOMENT, what="the others stay"
        )

    @pytest.mark.parametrize("data", [b"\xff", b"[]", b'{"format": 2, "bans": []}', b"x" * 9000])
    def test_O35_unreadable(
        self,
        client: PluginLocator,
        obeying: OpenObeying,
        data: bytes,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """A record that cannot be read bans nobody, and is logged once by each client."""
        client.storage(BYTES).set(str(bans_key("g")), data)
        group = obeying().group_membership("g")
        with caplog.at_level(logging.WARNING, "kip30.runtime"):
            members = [group.join(name, "") for name in ("m", "n")]
            group.update("m", "new")
        logged = [one for one in caplog.records if "the bans of 'g' cannot" in one.getMessage()]
        assert len(logged) == 1
        with pytest.raises(StoreError, match="cannot be read"):
            evict(client, "g", "m")
        assert all(one.is_valid() for one in members)
        assert client.storage(BYTES).fetch(str(bans_key("g"))).result() == data

    def test_O35_over_and_foreign(self, client: PluginLocator, obeying: OpenObeying) -> None:
        """A ban that is over has no effect, and kip30's own groups obey none."""
        _write(client, Bans(1, (Ban("m", time.time() - 1, 0.0, "op", ""),)))
        internal = Bans(1, (Ban("m", time.time() + _DAY_SECONDS, 0.0, "op", ""),))
        client.storage(BYTES).put(str(bans_key("kip30.line/s")), encode_bans(internal))
        banned = obeying()
        members = [banned.group_membership(name).join("m", "") for name in ("g", "kip30.line/s")]
        throughout(lambda: all(one.is_valid() for one in members), seconds=A_MOMENT)
        with pytest.raises(UsageError, match="kip30's own groups"):
            evict(client, "kip30.line/s", "m")

    def test_O35_off_costs_nothing(self, client: PluginLocator, obeying: OpenObeying) -> None:
        """A member that does not obey reads and watches no bans; others share one watch."""
        targets: list[Target] = []

        def note(real: Callable[..., Any], target: Target, *more: object) -> Any:
            if target.scope == NAMESPACE:
                targets.append(target)
            return real(target, *more)

        def join(locator: PluginLocator, group: str) -> list[Target]:
            targets.clear()
            for name in ("a", "b"):
                locator.group_membership(group).join(name, "")
            return list(targets)

        obeys = obeying()
        for one in (client, obeys):
            wrap(one.backend.observe, "watch", note)
        assert join(client, "g") == []
        assert join(obeys, "kip30.line/s") == []
        assert join(obeys, "é" * 42) == []  # too long for a key
        key = bans_key("h")
        assert join(obeys, "h") == [Target(Kind.VALUE, key.namespace, key.name)]
        wrap(client.backend.observe, "snapshot", note)
        assert join(client, "i") == []


def _ban_at_claim(client: PluginLocator, banned: PluginLocator) -> list[object]:
    """Ban "m" when its next claim is granted, before *banned* knows; return what was granted."""
    claims: list[object] = []

    def claim(real: Callable[..., Future[Any]], *arguments: object) -> Future[Any]:
        granted = real(*arguments)
        try:
            granted.result(_SECONDS * time_scale())
        except Exception:  # noqa: BLE001  of a former session: the caller gets it
            return granted
        if not claims:
            evict(client, "g", "m", ban_seconds=_DAY_SECONDS)
        claims.append(granted)
        return granted

    wrap(banned.backend.membership, "claim", claim)
    return claims


def _members(client: PluginLocator) -> GroupMembership[str]:
    return client.group_membership("g")


def _record(client: PluginLocator) -> Bans:
    found = client.storage(BYTES).get(str(bans_key("g")))
    assert found is not None
    return decode_bans("g", found.value)


def _write(client: PluginLocator, bans: Bans) -> None:
    client.storage(BYTES).set(str(bans_key("g")), encode_bans(bans))
