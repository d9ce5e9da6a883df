"""Banned members, when the store, the clock or the program does something in between."""

import asyncio
import threading
import time
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kip30 import (
    BYTES,
    AuthenticationError,
    BannedError,
    GroupMembership,
    Member,
    NotMemberError,
    OutcomeUnknownError,
    PluginLocator,
    UsageError,
)
from kip30.aio import AsyncMember, AsyncPluginLocator
from kip30.driver.kit.futures import failed
from kip30.driver.lease import Lease
from kip30.driver.records import Target
from kip30.operations import admit, evict, read_bans
from kip30.runtime.bans import MOST, NAMESPACE, Ban, Bans, bans_key, decode_bans, encode_bans
from kip30.runtime.member_lifecycle import MemberLifecycle
from kip30_conformance.clients.callback_recorder import Recorder
from kip30_conformance.driver_faults import wrap
from kip30_conformance.polling import eventually, throughout, time_scale

from .conftest import OpenClient
from .loops import properties, until
from .trouble import faults

pytestmark = pytest.mark.virtual_time

PATIENCE = 10
DAY_SECONDS = 86_400.0
OBEYS: Mapping[str, Any] = {"plugin.operations": True}


@contextmanager
def unanswered_look(
    client: PluginLocator, answer: Callable[[], Future[Any]] = Future
) -> Generator[list[Target]]:
    """Answer no read of the bans in the block, and return those that were asked for."""
    asked, is_over = list[Target](), threading.Event()

    def snapshot(real: Callable[..., Future[Any]], target: Target) -> Future[Any]:
        if target.scope != NAMESPACE or is_over.is_set():
            return real(target)
        asked.append(target)
        return answer()

    wrap(client.backend.observe, "snapshot", snapshot)
    yield asked
    is_over.set()


def members(client: PluginLocator) -> frozenset[str]:
    return client.group_membership("g").membership_list()


def banned(operator: PluginLocator, group: GroupMembership[str]) -> None:
    """Ban "m", and wait until it has left."""
    member = group.member("m")
    assert member is not None
    evict(operator, "g", "m", ban_seconds=DAY_SECONDS)
    assert member.lost.wait(PATIENCE * time_scale())
    eventually(lambda: "m" not in members(operator))


@pytest.fixture
def clock_of_members(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    ahead = [0.0]
    fake = SimpleNamespace(time=lambda: time.time() + ahead[0])
    monkeypatch.setattr("kip30.runtime.ban_watch.time", fake)

    def put(seconds: float) -> None:
        ahead[0] = seconds

    return put


def test_an_update_while_banned_is_shown_after_the_ban(open_client: OpenClient) -> None:
    client, operator = open_client(**OBEYS), open_client()
    group = client.group_membership("g")
    group.join("m", "old")
    banned(operator, group)
    with pytest.raises(OutcomeUnknownError, match=r"'m' is banned until .*re-join with this data"):
        group.update("m", "new")
    admit(operator, "g", "m")
    eventually(lambda: operator.group_membership("g").membership() == {"m": "new"})


def test_a_ban_that_is_seen_before_the_membership_begins_is_not_missed(
    open_client: OpenClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes after the look at the bans, and its event finds no member to end."""
    looks, look = list[Ban | None](), MemberLifecycle._watch_incarnation

    def noted_look(lifecycle: MemberLifecycle) -> None:
        ban = lifecycle._bans.ban_of("m")
        look(lifecycle)
        looks.append(ban)

    monkeypatch.setattr(MemberLifecycle, "_watch_incarnation", noted_look)
    # Otherwise the watch of its own record wakes the member soon.
    client = open_client(**OBEYS, **{"plugin.session.timeout.ms": 60_000})
    operator = open_client()

    def ban(_lease: Lease) -> None:
        evict(operator, "g", "m", ban_seconds=DAY_SECONDS)
        eventually(lambda: looks and looks[-1])

    monkeypatch.setattr(client._open().lease_tracker, "adopt", ban)
    member = client.group_membership("g").join("m", "x")
    assert member.lost.wait(PATIENCE * time_scale())


def test_updates_while_banned_leave_few_timers(open_client: OpenClient) -> None:
    """Each timer leads to the next one until the ban is over, which may take a year."""
    client, operator = open_client(**OBEYS, **{"plugin.operation.timeout.ms": 100}), open_client()
    group = client.group_membership("g")
    group.join("m", "data")
    banned(operator, group)
    for number in range(20):
        with pytest.raises(OutcomeUnknownError, match="is banned until"):
            group.update("m", f"data {number}")
    timers = client._open().dispatcher._timers
    names = [task.name for *_, task in list(timers)]
    assert names.count("member 'm'") < 5


def test_a_ban_that_is_replaced_keeps_the_member_out(open_client: OpenClient) -> None:
    client, operator = open_client(**OBEYS), open_client()
    group = client.group_membership("g")
    group.join("m", "")
    evict(operator, "g", "m", ban_seconds=2.0)
    evict(operator, "g", "m", ban_seconds=DAY_SECONDS)
    eventually(lambda: not members(operator))
    throughout(lambda: not members(operator), seconds=4.0)


def test_a_close_while_banned_ends_at_once(open_client: OpenClient) -> None:
    client, operator = open_client(**OBEYS), open_client()
    group = client.group_membership("g")
    group.join("m", "")
    banned(operator, group)
    client.close()
    admit(operator, "g", "m")
    throughout(lambda: not members(operator), seconds=1.0)


@pytest.mark.parametrize("call", ["leave", "close the handle", "close the locator", "join"])
def test_on_lost_of_a_ban_may_call_anything(open_client: OpenClient, call: str) -> None:
    client, operator = open_client(**OBEYS), open_client()
    group = client.group_membership("g")
    done = Recorder[object]()

    def on_lost(_member: Member) -> None:
        try:
            if call == "leave":
                group.leave("m")
            elif call == "join":
                group.join("m", "")
            else:
                (group if call == "close the handle" else client).close()
        except BannedError as error:
            done(error)
        else:
            done(None)

    group.join("m", "", rejoin=call != "join", on_lost=on_lost)
    evict(operator, "g", "m", ban_seconds=DAY_SECONDS)
    (outcome,) = done.expect_count(1)
    assert isinstance(outcome, BannedError) == (call == "join")
    eventually(lambda: not members(operator))


def test_an_on_lost_that_never_returns_holds_the_id_for_a_session_timeout(
    open_client: OpenClient,
) -> None:
    client, operator = open_client(**OBEYS), open_client()
    group, may_end = client.group_membership("g"), threading.Event()
    group.join("m", "", on_lost=lambda _: may_end.wait(60 * time_scale()))
    evict(operator, "g", "m", ban_seconds=DAY_SECONDS)
    eventually(lambda: not members(operator), what="released all the same")
    assert not may_end.is_set()
    may_end.set()


def test_a_join_whose_look_is_not_answered_is_undone(open_client: OpenClient) -> None:
    client, operator = open_client(**OBEYS), open_client()
    with unanswered_look(client) as asked:
        with pytest.raises(OutcomeUnknownError, match="free of bans"):
            client.group_membership("g").join("m", "")
        assert asked
    eventually(lambda: not members(operator))
    assert client.group_membership("g").join("m", "").is_valid()


def test_a_rejoin_whose_look_is_not_answered_is_told_when_it_is(open_client: OpenClient) -> None:
    client, rejoined = open_client(**OBEYS), Recorder[Member]()
    group = client.group_membership("g")
    first = group.join("m", "", on_rejoined=rejoined)
    with unanswered_look(client) as asked:
        faults(client).expire_session()
        eventually(lambda: asked)
        assert rejoined.events == []
        assert group.member("m") is None
    assert rejoined.expect_count(1)[0].incarnation > first.incarnation


def test_a_claim_whose_look_was_not_answered_is_given_back_under_a_ban(
    open_client: OpenClient,
) -> None:
    """The ban is known by the watch before the look is repeated."""
    client, operator, rejoined = open_client(**OBEYS), open_client(), Recorder[Member]()
    client.group_membership("g").join("m", "", on_rejoined=rejoined)
    with unanswered_look(client) as asked:
        faults(client).expire_session()
        eventually(lambda: asked)
        evict(operator, "g", "m", ban_seconds=DAY_SECONDS)
    eventually(lambda: not members(operator))
    throughout(lambda: not members(operator), seconds=1.0)
    assert rejoined.events == []


def test_a_claim_that_is_granted_late_is_given_back_under_a_ban(open_client: OpenClient) -> None:
    """Its request was delayed in the network, and a repetition of it was answered before."""
    client, operator, rejoined = open_client(**OBEYS), open_client(), Recorder[Member]()
    client.group_membership("g").join("m", "", on_rejoined=rejoined)
    delayed = list[Callable[[], Future[Any]]]()

    def claim(real: Callable[..., Future[Any]], *arguments: object) -> Future[Any]:
        if delayed:
            return real(*arguments)
        evict(operator, "g", "m", ban_seconds=DAY_SECONDS)
        delayed.append(partial(real, *arguments))
        return failed(OutcomeUnknownError("the request is delayed"))

    wrap(client.backend.membership, "claim", claim)
    faults(client).expire_session()
    eventually(lambda: delayed)
    eventually(lambda: not members(operator))
    delayed[0]().result()
    assert members(operator) == {"m"}
    eventually(lambda: not members(operator), within=20)
    assert rejoined.events == []


def test_a_look_that_is_forbidden_is_an_error_of_the_join(open_client: OpenClient) -> None:
    client, operator = open_client(**OBEYS), open_client()
    refused = AuthenticationError("no permission to read kip30.bans")
    claims = list[object]()

    def claim(real: Callable[..., Future[Any]], *arguments: object) -> Future[Any]:
        claims.append(arguments)
        return real(*arguments)

    wrap(client.backend.membership, "claim", claim)
    group = client.group_membership("g")
    with unanswered_look(client, lambda: failed(refused)):
        for _ in range(2):
            with pytest.raises(AuthenticationError, match=r"kip30\.bans"):
                group.join("m", "")
            assert not members(operator)
    assert len(claims) == 1  # it is asked for first, once it was refused
    assert group.join("m", "").is_valid()


def test_a_ban_ends_while_the_store_is_away(open_client: OpenClient) -> None:
    client, operator, rejoined = open_client(**OBEYS), open_client(), Recorder[Member]()
    group = client.group_membership("g")
    group.join("m", "data", on_rejoined=rejoined)
    ban = evict(operator, "g", "m", ban_seconds=3.0).ban
    eventually(lambda: not members(operator))
    assert ban is not None
    with faults(client).cut_off():
        eventually(lambda: time.time() > ban.until + 1.0)
        assert rejoined.events == []
    rejoined.expect_count(1)
    assert operator.group_membership("g").membership() == {"m": "data"}


def test_a_ban_is_lifted_while_the_store_is_away(open_client: OpenClient) -> None:
    client, operator, rejoined = open_client(**OBEYS), open_client(), Recorder[Member]()
    group = client.group_membership("g")
    group.join("m", "", on_rejoined=rejoined)
    banned(operator, group)
    with faults(client).cut_off():
        admit(operator, "g", "m")
    rejoined.expect_count(1)


def test_a_ban_ends_by_a_clock_that_is_corrected(
    open_client: OpenClient, clock_of_members: Callable[[float], None]
) -> None:
    """Docs: a ban ends by the clock of each machine. That one was an hour slow at boot."""
    client, operator, rejoined = open_client(**OBEYS), open_client(), Recorder[Member]()
    clock_of_members(-3600.0)
    group = client.group_membership("g")
    group.join("m", "", on_rejoined=rejoined)
    evict(operator, "g", "m", ban_seconds=3.0)
    eventually(lambda: not members(operator))
    throughout(lambda: not rejoined.events, seconds=4.0)
    clock_of_members(0.0)
    rejoined.expect_count(1, within=15)


@pytest.mark.parametrize("change", [evict, admit])
def test_an_operator_whose_clock_is_ahead_lifts_no_other_ban(
    open_client: OpenClient, monkeypatch: pytest.MonkeyPatch, change: Callable[..., object]
) -> None:
    operator = open_client()
    evict(operator, "g", "m")
    evict(operator, "g", "n")
    with monkeypatch.context() as patched:
        fake = SimpleNamespace(time=lambda: time.time() + 600.0)
        patched.setattr("kip30.operations.bans.time", fake)
        change(operator, "g", "n")
    assert "m" in {ban.id for ban in read_bans(operator, "g")}


def test_bans_that_are_over_make_room_the_oldest_first(open_client: OpenClient) -> None:
    operator, now = open_client(), time.time()
    bans = [Ban(f"{number}", now - 100.0 + number, 0.0, "op", "") for number in range(MOST)]
    operator.storage(BYTES).put(str(bans_key("g")), encode_bans(Bans(1, tuple(bans[::-1]))))
    evict(operator, "g", "m")
    found = operator.storage(BYTES).get(str(bans_key("g")))
    assert found is not None
    left = {ban.id for ban in decode_bans("g", found.value).bans}
    assert left == {"m", *(f"{number}" for number in range(1, MOST))}


def test_two_members_of_one_process_are_banned_one_by_one(open_client: OpenClient) -> None:
    client, operator = open_client(**OBEYS), open_client()
    group, lost = client.group_membership("g"), Recorder[Member]()
    for name in ("m", "n", "o"):
        group.join(name, "", on_lost=lost)
    for name in ("m", "n"):
        evict(operator, "g", name, ban_seconds=DAY_SECONDS)
    eventually(lambda: members(operator) == {"o"})
    admit(operator, "g", "n")
    eventually(lambda: members(operator) == {"n", "o"})
    assert sorted(one.id for one in lost.events) == ["m", "n"]


def test_a_member_that_left_watches_no_bans(open_client: OpenClient) -> None:
    client = open_client(**OBEYS)
    group, watches = client.group_membership("g"), list[object]()

    def watch(real: Callable[..., Any], target: Target, *more: object) -> Any:
        watched = real(target, *more)

        def close(really: Callable[[], object]) -> None:
            watches.remove(watched)
            really()

        if target.scope == NAMESPACE:
            watches.append(watched)
            wrap(watched, "close", close)
        return watched

    wrap(client.backend.observe, "watch", watch)
    group.join("m", "")
    group.join("n", "")
    assert len(watches) == 1
    group.leave("m")
    group.leave("n")
    eventually(lambda: not watches)


@pytest.mark.real_time("an event loop")
def test_coroutines_are_callbacks_of_a_ban(open_client: OpenClient, tmp_path: Path) -> None:
    """The id is held until the coroutine has returned."""
    operator = open_client()

    async def run() -> None:
        may_end, events = asyncio.Event(), list[str]()

        async def on_lost(member: AsyncMember) -> None:
            events.append(member.ending_reason)
            await may_end.wait()
            events.append("returned")

        async with AsyncPluginLocator(properties(tmp_path, **OBEYS)) as locator:
            group = locator.group_membership("g")
            await group.join("m", "a", on_lost=on_lost, on_rejoined=lambda _: events.append("in"))
            await asyncio.to_thread(evict, operator, "g", "m", ban_seconds=DAY_SECONDS)
            await until(lambda: events)
            assert "banned until" in events[0]
            assert group.member("m") is None
            assert await group.membership_list() == {"m"}
            may_end.set()
            await until(lambda: not members(operator))
            with pytest.raises(OutcomeUnknownError, match="banned until"):
                await group.update("m", "b")
            await asyncio.to_thread(admit, operator, "g", "m")
            await until(lambda: events[1:] == ["returned", "in"])
            assert await group.membership() == {"m": "b"}
            await asyncio.to_thread(evict, operator, "g", "n", ban_seconds=DAY_SECONDS)
            with pytest.raises(BannedError):
                await group.join("n", "")

    asyncio.run(run())


@pytest.mark.parametrize(
    ("group", "member", "more", "problem"),
    [
        ("kip30.line/s", "m", {}, "kip30's own groups"),
        ("", "m", {}, "group is empty"),
        ("é" * 42, "m", {}, "255 is the limit"),
        ("g", "", {}, "member is empty"),
        ("g", "m" * 256, {}, "255"),
        ("g", "\ud800", {}, "member"),
        ("g", "m", {"reason": "a\tb"}, "can be printed"),
        ("g", "m", {"reason": "x" * 201}, "up to 200"),
        ("g", "m", {"reason": "\x1b[2J"}, "can be printed"),
        ("g", "m", {"ban_seconds": 0.0}, "a ban of 0 s"),
        ("g", "m", {"ban_seconds": -1.0}, "a ban of -1 s"),
        ("g", "m", {"ban_seconds": float("nan")}, "a ban of nan s"),
        ("g", "m", {"ban_seconds": 400 * DAY_SECONDS}, "up to a year"),
    ],
)
def test_bad_input_is_refused_before_anything_is_sent(
    client: PluginLocator, group: str, member: str, more: Mapping[str, Any], problem: str
) -> None:
    wrap(client.backend.observe, "snapshot", lambda *_: pytest.fail("it reads"))
    wrap(client.backend.storage, "read", lambda *_: pytest.fail("it reads"))
    with pytest.raises(UsageError, match=problem):
        evict(client, group, member, **more)


def test_ids_of_any_kind_are_banned(open_client: OpenClient) -> None:
    client, operator = open_client(**OBEYS), open_client()
    group, names = client.group_membership("g/h"), ["m" * 255, "a\tb\x1b", "é/\u202e", "."]
    joined = [group.join(name, "") for name in names]
    for name in names:
        evict(operator, "g/h", name)
    for member in joined:
        assert member.lost.wait(PATIENCE * time_scale())
        assert member.ending_reason.isprintable()


def test_a_record_with_control_characters_cannot_forge_a_line(
    open_client: OpenClient,
) -> None:
    client, operator = open_client(**OBEYS), open_client()
    forged = Ban("m", time.time() + DAY_SECONDS, 0.0, "op\nERROR", "\x1b[2J\n")
    operator.storage(BYTES).put(str(bans_key("g")), encode_bans(Bans(1, (forged,))))
    with pytest.raises(BannedError) as error:
        client.group_membership("g").join("m", "")
    assert str(error.value).isprintable()


def test_a_member_that_another_removed_is_not_released_twice(open_client: OpenClient) -> None:
    """While it is banned another client has its id; leaving must not touch that."""
    client, operator = open_client(**OBEYS), open_client()
    group, releases = client.group_membership("g"), list[object]()

    def release(real: Callable[..., Future[Any]], *arguments: object) -> Future[Any]:
        releases.append(arguments)
        return real(*arguments)

    wrap(client.backend.membership, "release", release)
    group.join("m", "")
    banned(operator, group)
    operator.group_membership("g").join("m", "another")
    group.leave("m")
    assert len(releases) == 1
    assert members(operator) == {"m"}
    with pytest.raises(NotMemberError):
        group.leave("m")
