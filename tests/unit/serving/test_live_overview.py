"""Overviews for viewers: what they are sent, and what the store is asked."""

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest

from kip30 import PluginLocator, UnavailableError
from kip30.codecs import BYTES
from kip30.driver.scanning import ScanDriver
from kip30.operations import (
    USUAL_BAN_SECONDS,
    OverviewReader,
    ServiceStatus,
    bans,
    evict,
    overview,
    pause_service,
)
from kip30.runtime.bans import MOST, Ban, Bans, bans_key, encode_bans
from kip30.runtime.directives import Directives, StepDown, directives_key, encode_directives
from kip30.serving import live_overview
from kip30.serving.live_overview import LiveOverview, changes
from kip30_backends.embedded.scanning import EmbeddedScanner
from kip30_conformance.polling import eventually

from .stored import OBEYS_NOBODY, PERIOD_SECONDS, Looked, group_of

COMMENT = b":\n\n"


@pytest.fixture
def live(looked: Looked) -> Iterator[LiveOverview]:
    with LiveOverview(looked.config, PERIOD_SECONDS) as made:
        yield made


def decoded(event: bytes) -> tuple[str, dict[str, Any]]:
    name, data, *rest = event.decode().split("\n")
    assert rest == ["", ""]
    return name.removeprefix("event: "), json.loads(data.removeprefix("data: "))


def changed(live: LiveOverview, key: str) -> Iterator[Any]:
    """Yield what *key* is in the first event, and in each that has it."""
    with closing(live.events()) as events:
        for event in events:
            if event != COMMENT and key in (record := decoded(event)[1]):
                yield record[key]


def test_an_overview_comes_first_and_then_what_has_changed(
    looked: Looked, live: LiveOverview
) -> None:
    election = looked.locator.leader_election("reports")
    election.nominate("host-1", "")
    eventually(lambda: election.get_leader() is not None)
    with closing(live.events()) as events:
        name, first = decoded(next(events))
        assert name == "overview"
        assert (first["store"], first["error"]) == ("embedded", None)
        assert first["services"]["reports"]["leader"] == "host-1"
        looked.locator.group_membership("workers").join("w1", "")
        merged: dict[str, Any] = {}
        while "groups" not in merged:
            name, merged = decoded(next(events))
            assert name == "changes"
        assert merged["groups"] == {"workers": group_of(1)}
        assert not merged.keys() & {"services", "store", "place", "error"}


def test_entries_that_are_gone_are_null(looked: Looked, live: LiveOverview) -> None:
    group = looked.locator.group_membership("workers")
    group.join("w1", "")
    groups = changed(live, "groups")
    assert next(groups) == {"workers": group_of(1)}
    group.leave("w1")
    assert next(groups) == {"workers": None}


def test_directives_and_the_beginning_of_a_term_are_shown(
    looked: Looked, live: LiveOverview
) -> None:
    election = looked.locator.leader_election("reports")
    election.nominate("host-1", "")
    eventually(lambda: election.get_leader() is not None)
    pause_service(looked.locator, "vacant", reason="upgrade")
    services = eventually(
        lambda: (found := live.read()["services"])["reports"]["since"] and found,
        what="the leader has noted its term",
    )
    assert services["reports"]["pause"] is None
    assert services["vacant"]["pause"]["reason"] == "upgrade"
    assert (services["vacant"]["leader"], services["vacant"]["epoch"]) == (None, None)


def test_a_ban_is_shown_until_it_is_over_also_without_members(
    looked: Looked, live: LiveOverview, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [time.time()]
    monkeypatch.setattr(bans, "time", SimpleNamespace(time=lambda: now[0]))
    evict(looked.locator, "workers", "host-1", reason="bad disk")
    groups = changed(live, "groups")
    first = next(groups)
    (ban,) = first["workers"]["bans"]
    assert first == {"workers": group_of(0, ban)}
    assert (ban["id"], ban["reason"], ban["is_member"]) == ("host-1", "bad disk", False)
    assert ban["until"] - ban["at"] == USUAL_BAN_SECONDS
    now[0] += USUAL_BAN_SECONDS
    assert next(groups) == {"workers": None}


def test_the_bans_of_kip30s_own_groups_have_no_effect(looked: Looked, live: LiveOverview) -> None:
    record = Bans(1, (Ban("m", time.time() + 3600, 0, "op", ""),))
    for group in ("kip30.candidates/s", "workers"):
        looked.locator.storage(BYTES).put(str(bans_key(group)), encode_bans(record))
    assert [*live.read()["groups"]] == ["workers"]


def test_a_banned_member_that_stays_for_a_session_timeout_wants_attention(
    looked: Looked, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(overview, "time", SimpleNamespace(monotonic=lambda: now[0], time=time.time))
    reader = OverviewReader(looked.config)
    with PluginLocator().startup(looked.config | OBEYS_NOBODY) as other:
        group = other.group_membership("w\tg")
        for member in ("m\t1", "m2"):
            group.join(member, "")
        evict(looked.locator, "w\tg", "m\t1")
        # No member can have this id; the record has been written by another program.
        key = str(bans_key("others"))
        record = Bans(1, (Ban("\ud800", time.time() + 3600, 0, "op\ud800", ""),))
        looked.locator.storage(BYTES).put(key, encode_bans(record))
        first = reader.read()
        assert (first.is_undecided, first.wants_attention) == (True, False)
        assert [*first.banned_members] == [("w\tg", "m\t1")]
        now[0] += reader.session_timeout_seconds
        second = reader.read()
        assert second.staying == [("w\tg", "m\t1")]
        (problem,) = live_overview._shown(second)["attention"]
        assert problem.startswith("m\t1 is banned from w\tg, and a member for")
        evict(looked.locator, "w\tg", "m\t1")  # a ban from now on
        assert (reader.read().staying, reader.read().is_undecided) == ([], True)
        now[0] += reader.session_timeout_seconds
        assert reader.read().staying
        group.leave("m\t1")
        assert (reader.read().wants_attention, reader.read().is_undecided) == (False, False)


def test_a_thousand_groups_with_forty_bans_each_are_one_look(looked: Looked) -> None:
    storage, until = looked.locator.storage(BYTES), time.time() + 3600
    record = encode_bans(Bans(1, tuple(Ban(f"host-{n}", until, 0, "op", "") for n in range(MOST))))
    for number in range(1000):
        storage.put(str(bans_key(f"g{number}")), record)
    looked.looks = 0
    with LiveOverview(looked.config, 3600) as live:
        groups = live.read()["groups"]
    assert looked.looks == 1
    assert (len(groups), {len(one["bans"]) for one in groups.values()}) == (1000, {MOST})


def test_a_step_down_is_shown_until_it_is_over(looked: Looked, live: LiveOverview) -> None:
    key, storage = str(directives_key("reports")), looked.locator.storage(BYTES)
    step_down = StepDown(
        "id", "op", time.time(), "why", 60, time.time() + 60, 0, "", "", "host-2", 30
    )
    storage.set(key, encode_directives(Directives(1, step_down=step_down)))
    services = changed(live, "services")
    shown = next(services)["reports"]["step_down"]
    assert (shown["by"], shown["reason"], shown["successor"]) == ("op", "why", "host-2")
    storage.set(key, encode_directives(Directives(2, step_down=step_down._replace(seconds=0))))
    assert next(services) == {"reports": None}


def test_a_slow_viewer_gets_all_changes_at_once(looked: Looked, live: LiveOverview) -> None:
    with closing(live.events()) as events:
        next(events)
        for number in range(3):
            looked.locator.group_membership(f"g{number}").join("m", "")
            looked.wait_for_looks()
        _, record = decoded(next(events))
    assert record["groups"] == {f"g{number}": group_of(1) for number in range(3)}


@pytest.mark.parametrize("error", [UnavailableError("no answer"), RuntimeError("a secret")])
def test_an_outage_is_shown_and_ends(looked: Looked, live: LiveOverview, error: Exception) -> None:
    looked.locator.group_membership("workers").join("w1", "")
    errors = changed(live, "error")
    assert next(errors) is None
    looked.error = error
    told = next(errors)
    assert told == (
        "no answer" if isinstance(error, UnavailableError) else "unexpected RuntimeError"
    )
    during = live.read()
    assert during["groups"] == {"workers": group_of(1)}  # the last that is known
    assert during["error"] == told
    looked.error = None
    assert next(errors) is None


def test_the_end_of_an_outage_is_seen_however_long_a_failure_takes(
    looked: Looked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_overview, "_READ_SHARE", 1e-9)
    looked.away()
    with LiveOverview(looked.config, PERIOD_SECONDS) as live:
        errors = changed(live, "error")
        assert next(errors) == "no answer"
        looked.error = None
        assert next(errors) is None


def test_a_store_that_is_large_is_read_less_often(
    looked: Looked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_overview, "_READ_SHARE", 1e-9)
    with LiveOverview(looked.config, PERIOD_SECONDS) as live, closing(live.events()) as events:
        next(events)
        for number in range(100):
            looked.locator.storage().set("k", str(number))
    assert looked.looks == 1


def test_a_store_that_is_away_from_the_start_is_shown_as_such(
    looked: Looked, live: LiveOverview
) -> None:
    looked.away()
    record = live.read()
    assert (record["store"], record["at"], record["error"]) == ("embedded", None, "no answer")
    looked.error = None
    eventually(lambda: live.read()["error"] is None)


def test_a_look_is_not_awaited_for_long_after_one_that_failed(
    looked: Looked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_overview, "_OUTAGE_SECONDS", 0.01)
    goes_on = threading.Event()
    with LiveOverview(looked.config, 3600) as live:
        looked.away()
        assert live.read()["error"] == "no answer"
        look = live._look
        monkeypatch.setattr(live, "_look", lambda known: goes_on.wait() and look(known))
        live._due_at -= 3 * 3600  # the next reader needs another look
        with ThreadPoolExecutor(1) as threads:
            reader = threads.submit(live.read)
            try:
                eventually(reader.done, what="the reader has the failure")
            finally:
                looked.error = None
                goes_on.set()
            assert reader.result()["error"] == "no answer"
        eventually(lambda: live.read()["error"] is None, what="the next look is shown")


def test_silence_is_broken_by_comments(looked: Looked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_overview, "COMMENT_SECONDS", 0.01)
    with LiveOverview(looked.config, 3600) as live, closing(live.events()) as events:
        found = [next(events) for _ in range(100)]
    assert found[-1] == COMMENT
    assert looked.looks == 1


def test_without_viewers_the_store_is_asked_nothing(looked: Looked, live: LiveOverview) -> None:
    assert looked.looks == 0
    for _ in range(3):
        with closing(live.events()) as events:
            next(events)
            looked.wait_for_looks()
        assert live.viewers == 0
        before = looked.looks
        for number in range(100):  # it takes many periods
            looked.locator.storage().set("k", str(number))
        assert looked.looks <= before + 1  # one was under way


@pytest.mark.parametrize("seconds", [0.5, 30, 600])
def test_looks_take_a_tenth_of_the_time_at_most(seconds: float) -> None:
    due_at = live_overview.next_look(1000, 1000 + seconds, 2, failed=False)
    assert due_at == pytest.approx(1000 + 10 * seconds)
    assert live_overview.next_look(1000, 1000.1, 2, failed=False) == 1002
    assert live_overview.next_look(1000, 1000 + seconds, 2, failed=True) <= 1002 + seconds


def test_many_readers_share_a_look(looked: Looked) -> None:
    with LiveOverview(looked.config, 3600) as live:
        for _ in range(10):
            live.read()
    assert looked.looks == 1


def test_a_store_with_a_scanner_for_each_view_is_shown_alike(
    looked: Looked, live: LiveOverview, monkeypatch: pytest.MonkeyPatch
) -> None:
    pause_service(looked.locator, "paused", reason="upgrade")
    looked.locator.leader_election("led").nominate("host-1", "")
    eventually(lambda: live.read()["services"].get("led", {}).get("since") is not None)
    shown = live.read()
    monkeypatch.setattr(EmbeddedScanner, "turn_to", ScanDriver.turn_to)
    looked.looks = 0
    with LiveOverview(looked.config, 3600) as other:
        assert other.read()["services"] == shown["services"]
    assert looked.looks >= 3  # the other one may have looked, too


def test_a_crowd_without_leaders_is_cut_short(looked: Looked) -> None:
    look = OverviewReader(looked.config).read()
    vacant = [ServiceStatus(f"s{number:05d}", None, None, 1) for number in range(10_000)]
    shown = live_overview._shown(look._replace(leaderless=vacant))["attention"]
    assert len(shown) == live_overview.MOST_LINES + 1
    assert shown[0].startswith("s00000 has had no leader")
    assert shown[-1] == "9900 further lines"


def test_an_old_overview_is_not_shown(looked: Looked, monkeypatch: pytest.MonkeyPatch) -> None:
    forgotten = list[int]()
    with LiveOverview(looked.config, 3600) as live:
        monkeypatch.setattr(live._reader, "forget_times", lambda: forgotten.append(looked.looks))
        live.read()
        looked.locator.group_membership("workers").join("w1", "")
        assert live.read()["groups"] == {}
        live._due_at -= 3 * 3600
        assert live.read()["groups"] == {"workers": group_of(1)}
    assert forgotten[-1] == 1  # elections may have come and gone meanwhile


def test_the_end_ends_events_and_readers(looked: Looked) -> None:
    live = LiveOverview(looked.config, 3600)
    with closing(live.events()) as events:
        next(events)
        live.close()
        assert list(events) == []
    with LiveOverview(looked.config) as closed:
        pass
    with pytest.raises(UnavailableError, match="closed"):
        closed.read()


def test_differences_are_exact() -> None:
    before = {"services": {"a": 1, "b": 2}, "groups": {"g": 1}, "at": 1.0, "error": None}
    after = {"services": {"b": 3, "c": 4}, "groups": {"g": 1}, "at": 2.0, "error": None}
    assert changes(before, after) == {"services": {"b": 3, "c": 4, "a": None}, "at": 2.0}
    assert changes(after, after) == {}
