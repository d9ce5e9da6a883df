"""`kip30 serve`: its data, and clients that must not have it."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import psutil
import pytest

from kip30.codecs import BYTES
from kip30.errors import UnavailableError, UnsupportedError
from kip30.operations import pause_service
from kip30.runtime.bans import Ban, Bans, bans_key, encode_bans
from kip30.serving import live_overview, page_server, store_details
from kip30.serving.access_token import AccessToken
from kip30.serving.page_server import MOST_VIEWERS, PageServer
from kip30_backends.embedded import EmbeddedBackend
from kip30_conformance.polling import eventually
from tests.unit.unreadable_leader import add_unreadable_leader

from .conftest import server_threads
from .raw_client import Got, RawClient
from .stored import PERIOD_SECONDS, Looked, group_of
from .test_http_server import HOSTILE

TOKEN = "0123456789abcdef"  # noqa: S105  of the tests alone
BEARER = {"Authorization": f"Bearer {TOKEN}"}
DATA = ("overview", "events", "servers", "service", "group", "keys", "value")
PATHS = [*(f"/api/{one}?name=n&key=k" for one in DATA), "/metrics"]
STATIC = ("/", "/page.js", "/page.css")


class Page(NamedTuple):
    """A server with a store."""

    server: PageServer
    looked: Looked

    @property
    def port(self) -> int:
        return self.server.address.port

    def ask(self, path: str, method: str = "GET", **fields: str) -> Got:
        with RawClient(self.port) as client:
            return client.ask(path, method, **{**BEARER, **fields})

    def record(self, path: str) -> Any:
        got = self.ask(path)
        assert got.status == 200, got.body
        (record,) = got.records
        return record

    def names(self, query: str) -> list[Any]:
        found: list[Any] = self.record(f"/api/keys?{query}")["names"]
        return found


class Viewer(RawClient):
    """A client that reads events."""

    def __init__(self, page: Page) -> None:
        super().__init__(page.port)
        self.send(f"GET /api/events HTTP/1.1\r\nHost: localhost\r\n{_field()}\r\n".encode())
        self.head = self.read(has_body=False)

    def event(self) -> dict[str, Any]:
        """Return the next event that is not a comment."""
        while True:
            while b"\n\n" not in self.received:
                self._receive()
            event, _, self.received = self.received.partition(b"\n\n")
            if event != b":":
                data: dict[str, Any] = json.loads(event.split(b"data: ", 1)[1])
                return data

    def wait_for(self, field: str) -> Any:
        while field not in (event := self.event()):
            pass
        return event[field]


def _field() -> str:
    return f"Authorization: Bearer {TOKEN}\r\n"


@pytest.fixture
def page(looked: Looked, ended_threads: None) -> Iterator[Page]:
    del ended_threads  # after the server
    yield from serving(looked)


def serving(looked: Looked, **more: Any) -> Iterator[Page]:
    named = {"hosts": ["web1"], "period_seconds": PERIOD_SECONDS, **more}
    with PageServer(looked.config, "127.0.0.1:0", AccessToken(TOKEN), **named) as server:
        yield Page(server, looked)


# -- clients that must not have it


@pytest.mark.parametrize("path", [*PATHS, "/api/nothing", "/favicon.ico", "/page/page.js", "/.."])
def test_nothing_but_the_page_is_served_without_the_token(page: Page, path: str) -> None:
    for wrong in ("", f"Bearer {TOKEN}x", f"Basic {TOKEN}", TOKEN):
        got = page.ask(path, Authorization=wrong)
        assert (got.status, got.fields["WWW-Authenticate"]) == (401, "Bearer")
        assert list(got.records[0]) == ["error"]
    assert page.looked.looks == 0  # and the store is asked nothing


@pytest.mark.parametrize("path", STATIC)
def test_the_page_itself_needs_no_token_and_holds_no_data(page: Page, path: str) -> None:
    got = page.ask(path, Authorization="")
    assert got.status == 200
    assert TOKEN.encode() not in got.body
    assert b"embedded" not in got.body
    assert page.looked.looks == 0


def test_the_page_names_no_other_origin_and_no_path_from_the_root(page: Page) -> None:
    """A proxy may have it below any path; its policy allows nothing inline."""
    text, script, style = (page.ask(path).body.decode() for path in STATIC)
    assert '<script src="page.js" defer></script>' in text
    for forbidden in ('="/', "//", "style=", "onclick", "onload"):
        assert forbidden not in text
    for forbidden in ('"/api', "`/api", "http:", "https:"):
        assert forbidden not in script + style


@pytest.mark.parametrize("path", [*STATIC, *PATHS])
def test_browsers_are_forbidden_all_that_the_page_does_not_need(page: Page, path: str) -> None:
    page.looked.locator.storage().set("k", "v")
    fields = page.ask(path, "HEAD").fields
    policy = fields["Content-Security-Policy"].split("; ")
    assert {f"{one}-src 'self'" for one in ("script", "style", "connect")} < {*policy}
    for kind in ("default-src", "base-uri", "form-action", "frame-ancestors"):
        assert f"{kind} 'none'" in policy
    assert fields["X-Content-Type-Options"] == "nosniff"
    assert fields["Referrer-Policy"] == "no-referrer"
    assert fields["Cache-Control"] == "no-store"
    assert "Set-Cookie" not in fields


def test_no_other_origin_is_allowed_to_send_the_token(page: Page) -> None:
    for token in ("", BEARER["Authorization"]):
        got = page.ask(
            "/api/overview", "OPTIONS", Authorization=token, Origin="https://evil.example"
        )
        assert not [field for field in got.fields if field.startswith("Access-Control")]


def test_other_hosts_are_refused_with_the_token_as_well(page: Page) -> None:
    assert page.ask("/api/overview", Host="evil.example").status == 421
    assert page.ask("/", Host="evil.example").status == 421
    assert page.ask("/api/overview", Host="web1:8030").status == 200


@pytest.mark.parametrize("name", ["post", "body", "large field", "another host", "TLS"])
def test_a_bad_request_gets_a_response_and_harms_no_other(page: Page, name: str) -> None:
    status, sent = HOSTILE[name]
    with RawClient(page.port) as client:
        client.send(sent)
        assert client.read().status == status
    assert page.ask("/api/overview").status == 200


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/service", 400),
        ("/api/service?name=", 400),
        ("/api/service?name=%ff", 400),
        (f"/api/service?name={'x' * 300}", 400),
        ("/api/group?nam=x", 400),
        ("/api/keys?namespace=a/", 400),
        ("/api/keys?namespace=%2F", 400),
        (f"/api/keys?{'&'.join('a=b' * 9)}", 400),
        ("/api/keys?a=1&b=2&c=3&d=4&e=5", 400),
        ("/api/value?key=a/", 400),
        ("/api/value?key=missing", 404),
        ("/api/", 404),
        ("/page.html", 404),
        ("/page/../page.js", 404),
        ("/%2e%2e/page.js", 404),
    ],
)
def test_bad_parameters_and_paths_are_refused_in_words(page: Page, path: str, status: int) -> None:
    got = page.ask(path)
    assert got.status == status
    assert list(got.records[0]) == ["error"]


# -- data


def test_a_service_has_its_line_its_terms_and_its_directives(page: Page) -> None:
    election = page.looked.locator.leader_election("s")
    with election.lead("host-1", ""):
        pass
    pause_service(page.looked.locator, "s", reason="upgrade")
    found = eventually(
        lambda: (record := page.record("/api/service?name=s"))["terms"] and record,
        what="the term is noted",
    )
    assert found["terms"][0]["candidate"] == "host-1"
    assert [one["action"] for one in found["directives"]] == ["pause"]
    assert (found["line"], found["problems"]) == ([], [])


def test_records_of_a_service_that_cannot_be_read_are_problems(page: Page) -> None:
    page.looked.locator.storage().set("kip30.terms/s", "no terms")
    (problem,) = page.record("/api/service?name=s")["problems"]
    assert "the past terms of 's' cannot be read" in problem
    record = page.record("/api/overview")
    assert record["unreadable"] == 1
    assert "kip30.terms/s cannot be read" in record["attention"][0]


def test_places_of_other_programs_are_shown_as_json_has_them(page: Page) -> None:
    line = page.looked.locator.group_membership("kip30.candidates/s", BYTES)
    line.join("p1", b'{"candidate": "c", "host": "h", "pid": 1, "since": 1e999}')
    line.join("p2", b"[]")
    first, second = page.record("/api/service?name=s")["line"]
    assert (first["candidate"], first["since"]) == ("c", None)
    assert (second["candidate"], second["since"]) == (None, None)


def test_a_service_with_a_name_too_long_for_records_has_a_line_alone(page: Page) -> None:
    name = "x" * 250
    record = page.record(f"/api/service?name={name}")
    assert (record["terms"], record["problems"], record["line"]) == ([], [], [])


def test_a_group_has_its_members_without_their_data(page: Page) -> None:
    name = "work\u202eers /?&"
    group = page.looked.locator.group_membership(name)
    for member in ("m2", "m1\t\u202e"):
        group.join(member, "secret")
    got = page.ask(f"/api/group?name={quote(name)}")
    assert got.records[0]["members"] == ["m1\t\u202e", "m2"]
    assert b"secret" not in got.body


def test_a_group_has_its_bans(page: Page) -> None:
    name = "work\u202eers /?&"
    page.looked.locator.group_membership(name).join("m1\t\u202e", "")
    ids = ("m1\t\u202e", *(f"host-{number}" for number in range(39)))
    banned = tuple(Ban(one, time.time() + 3600, 0, "<b>\u202e\ud800", "\0\n") for one in ids)
    page.looked.locator.storage(BYTES).put(str(bans_key(name)), encode_bans(Bans(1, banned)))
    shown = page.record(f"/api/group?name={quote(name)}")
    assert (len(shown["bans"]), shown["problems"]) == (40, [])
    first, second, *_ = shown["bans"]
    assert first == {**banned[0]._asdict(), "is_member": True}
    assert second == {**banned[1]._asdict(), "is_member": False}
    assert page.record("/api/overview")["groups"] == {name: group_of(1, *shown["bans"])}


def test_bans_that_cannot_be_read_are_problems(page: Page) -> None:
    page.looked.locator.storage().set("kip30.bans/g", "no bans")
    page.looked.locator.group_membership("g").join("m1", "")
    shown = page.record("/api/group?name=g")
    assert (shown["members"], shown["bans"]) == (["m1"], [])
    (problem,) = shown["problems"]
    assert "the bans of 'g' cannot be read, and have no effect" in problem
    record = page.record("/api/overview")
    assert (record["groups"], record["unreadable"]) == ({"g": group_of(1)}, 1)
    assert "kip30.bans/g cannot be read" in record["attention"][0]


@pytest.mark.parametrize("name", ["x" * 250, "kip30.candidates/s"])
def test_a_group_that_can_have_no_bans_has_members(page: Page, name: str) -> None:
    page.looked.locator.group_membership(name, BYTES).join("m1", b"[]")
    shown = page.record(f"/api/group?name={name}")
    assert (shown["members"], shown["bans"], shown["problems"]) == (["m1"], [], [])


def test_crowds_are_cut_short(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_details, "MOST_NAMES", 2)
    for group in ("workers", "kip30.candidates/s"):
        crowd = page.looked.locator.group_membership(group, BYTES)
        for number in range(5):
            crowd.join(f"m{number}", b"[]")
    shown = page.record("/api/group?name=workers")
    assert (shown["members"], shown["more"]) == (["m0", "m1"], 3)
    shown = page.record("/api/service?name=s")
    assert ([one["id"] for one in shown["line"]], shown["more"]) == (["m0", "m1"], 3)


def test_keys_are_listed_level_by_level(page: Page) -> None:
    storage = page.looked.locator.storage()
    for key in ("top", "a/b/c", "a/b/d", "a/e", "a//odd", "kip30.own/hidden"):
        storage.set(key, "12345")
    assert [(one["name"], one.get("keys")) for one in page.names("")] == [("a/", 4), ("top", None)]
    below = {one["name"]: one.get("keys") or one["bytes"] for one in page.names("namespace=a")}
    assert below == {"b/": 2, "e": 5, "/odd": 5}
    assert [one["name"] for one in page.names("namespace=a/b")] == ["c", "d"]
    assert [one["name"] for one in page.names("namespace=a&beginning=e")] == ["e"]


def test_many_keys_are_listed_in_part(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_details, "MOST_NAMES", 5)
    for number in range(12):
        page.looked.locator.storage().set(f"n/{number:02}", "")
    record = page.record("/api/keys?namespace=n")
    assert ([one["name"] for one in record["names"]], record["more"]) == (
        ["00", "01", "02", "03", "04"],
        7,
    )


def test_a_value_is_text_or_base64(page: Page) -> None:
    storage = page.looked.locator.storage(BYTES)
    storage.set("a/ b\u202e&", "Zwölf".encode())
    storage.set("binary", b"\xff\0")
    assert page.record("/api/value?key=a/%20b%E2%80%AE%26") == {
        "key": "a/ b\u202e&",
        "value": "Zwölf",
    }
    assert page.record("/api/value?key=binary") == {"key": "binary", "value_base64": "/wA="}


def test_no_value_is_told_if_that_is_forbidden(looked: Looked) -> None:
    looked.locator.storage().set("k", "secret")
    for page in serving(looked, shows_values=False):
        assert page.ask("/api/value?key=k").status == 404
        record = page.record("/api/keys")
        assert ([one["name"] for one in record["names"]], record["shows_values"]) == (["k"], False)


def test_each_server_is_checked(page: Page) -> None:
    (server,) = page.record("/api/servers")["servers"]
    assert (server["server"], server["error"]) == ("embedded", None)
    assert server["version"].startswith("SQLite")
    assert server["worst_ms"] >= server["median_ms"] > 0


def test_the_metrics_are_those_of_the_overview(page: Page) -> None:
    election = page.looked.locator.leader_election('s"1')
    election.nominate("host-1", "")
    eventually(lambda: election.get_leader() is not None)
    page.looked.locator.group_membership("g").join("m", "")
    pause_service(page.looked.locator, "vacant")
    got = page.ask("/metrics")
    assert got.fields["Content-Type"].startswith("text/plain; version=0.0.4")
    lines = got.body.decode().splitlines()
    for line in (
        r'kip30_has_leader{store="embedded",service="s\"1"} 1',
        r'kip30_leader_epoch{store="embedded",service="s\"1"} 1',
        r'kip30_paused{store="embedded",service="vacant"} 1',
        'kip30_members{store="embedded",group="g"} 1',
        'kip30_unreadable_records{store="embedded"} 0',
    ):
        assert line in lines
    page.looked.away()
    eventually(lambda: b"kip30_members{" not in page.ask("/metrics").body)
    assert b'kip30_store_last_seen_timestamp_seconds{store="embedded"}' in page.ask("/metrics").body


def test_a_leader_that_cannot_be_read_is_no_missing_one(page: Page, tmp_path: Path) -> None:
    page.looked.locator.group_membership("g").join("m", "")
    add_unreadable_leader(tmp_path / "store", "s")
    shown = page.record("/api/overview")["services"]["s"]
    assert (shown["leader"], shown["readable"]) == (None, False)
    metrics = page.ask("/metrics").body.decode()
    assert 'kip30_has_leader{store="embedded",service="s"} 1' in metrics
    assert 'kip30_unreadable_records{store="embedded"} 1' in metrics


def test_a_store_that_is_away_is_said_and_waited_for(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Viewer(page) as viewer:
        assert viewer.event()["error"] is None
        page.looked.away()
        assert viewer.wait_for("error") == "no answer"
        page.looked.error = None
        assert viewer.wait_for("error") is None

    def fail(_name: str) -> None:
        raise UnavailableError("no answer")

    monkeypatch.setattr(page.server._details, "group", fail)
    got = page.ask("/api/group?name=g")
    assert (got.status, got.records) == (503, [{"error": "no answer"}])


def test_a_store_without_scans_is_refused_before_anything_is_opened(
    looked: Looked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EmbeddedBackend, "capabilities", frozenset())
    with pytest.raises(UnsupportedError, match="scanning"):
        PageServer(looked.config, "127.0.0.1:0", AccessToken())


# -- viewers


def test_twenty_viewers_are_sent_each_change_and_leave_nothing_behind(page: Page) -> None:
    page.looked.locator.group_membership("g").join("m1", "")
    page.ask("/api/overview")
    eventually(lambda: server_threads() == 1)
    sockets, threads = psutil.Process().num_fds(), threading.active_count()
    with ExitStack() as viewers:
        opened = [viewers.enter_context(Viewer(page)) for _ in range(20)]
        for viewer in opened:
            assert viewer.event()["groups"] == {"g": group_of(1)}
        page.looked.locator.group_membership("g").join("m2", "")
        for viewer in opened:
            assert viewer.wait_for("groups") == {"g": group_of(2)}
        assert server_threads() == 21
        with RawClient(page.port) as other:
            assert other.ask("/").status == 200
    eventually(lambda: server_threads() == 1, what="the threads have ended")
    eventually(lambda: psutil.Process().num_fds() <= sockets, what="the sockets are closed")
    # The workers of the locator end after a while without work.
    eventually(lambda: threading.active_count() <= threads + 1, what="no thread is left")
    eventually(lambda: page.server._live.viewers == 0)


def test_viewers_do_not_take_all_places(page: Page) -> None:
    with ExitStack() as viewers:
        for _ in range(MOST_VIEWERS):
            viewers.enter_context(Viewer(page)).event()
        assert page.ask("/api/events").status == 503
        assert page.ask("/api/overview").status == 200
    eventually(lambda: page.server._live.viewers == 0)
    with Viewer(page) as viewer:
        assert viewer.head.status == 200


def test_the_head_of_events_makes_no_viewer(page: Page) -> None:
    assert page.ask("/api/events", "HEAD").status == 200
    assert page.looked.looks == 0


def test_a_viewer_that_is_gone_is_found_without_any_change(
    looked: Looked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_overview, "COMMENT_SECONDS", 0.02)
    for page in serving(looked, period_seconds=3600):
        with Viewer(page) as viewer:
            viewer.event()
        eventually(lambda: server_threads() == 1, what="its thread has ended")
        assert looked.looks == 1


def test_requests_that_read_the_store_wait_for_each_other(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_server, "_READER_SECONDS", 0.01)
    release, inside = threading.Event(), threading.Semaphore(0)

    def servers() -> dict[str, Any]:
        inside.release()
        release.wait()
        return {"servers": []}

    monkeypatch.setattr(page.server._details, "servers", servers)
    with ExitStack() as clients:
        asking = [clients.enter_context(RawClient(page.port)) for _ in range(4)]
        for client in asking:
            client.send(f"GET /api/servers HTTP/1.1\r\nHost: localhost\r\n{_field()}\r\n".encode())
        for _ in asking:
            inside.acquire()
        assert page.ask("/api/keys").status == 503
        assert page.ask("/").status == 200
        release.set()
        assert {client.read().status for client in asking} == {200}


def test_the_end_ends_viewers(looked: Looked) -> None:
    server = PageServer(looked.config, "127.0.0.1:0", AccessToken(TOKEN))
    with Viewer(Page(server, looked)) as viewer:
        viewer.event()
        server.close()
        while viewer.socket.recv(65_536):
            pass
    eventually(lambda: server_threads() == 0)
    assert not [one for one in threading.enumerate() if one.name == "kip30-overview"]
    server.close()


def test_an_address_in_use_leaves_nothing_behind(looked: Looked) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(OSError, match="cannot listen"):
            PageServer(looked.config, address, AccessToken())
    assert not [one for one in threading.enumerate() if one.name == "kip30-overview"]
