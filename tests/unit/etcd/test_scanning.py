"""Bulk reading where the suite of all stores cannot know what is there, or what becomes of it."""

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from types import SimpleNamespace
from typing import Protocol

import grpc
import pytest

from kip30 import (
    BYTES,
    AuthenticationError,
    ClosedError,
    InvalidNameError,
    PluginLocator,
    PositionLostError,
    UnavailableError,
    UnsupportedError,
)
from kip30.config import Written
from kip30.envelope import seal
from kip30.resolution import scanner
from kip30.scanning import Change, Layout, Page, Position, Row, ScanDriver, Span, View
from kip30_backends.etcd import GRPC_OPTIONS, scanning
from kip30_backends.etcd.feed import tells_progress
from kip30_conformance.patience import TIME_SCALE, eventually
from kip30_conformance.resources import expect_no_more_than, resources
from kip30_conformance.servers import Ensemble, start
from tests.unit.clients import PATIENT, Open

from .admin import Admin, encoded

SECRET = "geheim-1"  # noqa: S105  the test's own
WHOLE = 1_000_000
LARGE = 100 * 1024
Borrow = Callable[[Sequence[tuple[str, int]]], Mapping[str, Written]]


class OpenScanner(Protocol):
    """Opens a scanner, which is closed when the test ends."""

    def __call__(self, view: View | None = None, /, **more: Written) -> ScanDriver: ...


@pytest.fixture
def admin(ensemble: Ensemble) -> Admin:
    return Admin(ensemble.nodes[0].address)


@pytest.fixture
def open_scanner(ensemble: Ensemble, namespace: str) -> Iterator[OpenScanner]:
    with ExitStack() as scanners:

        def open_one(view: View | None = None, /, **more: Written) -> ScanDriver:
            config = {**ensemble.settings(), **PATIENT, "plugin.namespace": namespace, **more}
            return scanners.enter_context(scanner(config, view))

        yield open_one


@pytest.fixture
def borrow(ensemble: Ensemble, monkeypatch: pytest.MonkeyPatch) -> Iterator[Borrow]:
    """Yield what makes the properties for the program's own channel with some options."""
    with ExitStack() as channels:

        def settings(options: Sequence[tuple[str, int]]) -> Mapping[str, Written]:
            channel = grpc.insecure_channel(ensemble.nodes[0].address, options=options)
            channels.callback(channel.close)
            client = SimpleNamespace(channel=channel, metadata=None)
            monkeypatch.setattr("json.kip30_lend", lambda: client, raising=False)
            return {"plugin.backend": "etcd", "plugin.etcd.client": "json:kip30_lend"}

        yield settings


def put(admin: Admin, key: bytes, value: bytes, lease: str = "0") -> None:
    admin.tell("kv/put", key=encoded(key), value=encoded(value), lease=lease)


def spans(store: ScanDriver, at: Position, rows: int = WHOLE) -> list[Span]:
    return list(store.plan(at, rows))


def pages(store: ScanDriver, at: Position, rows: int = WHOLE) -> list[Page]:
    return [page for span in store.plan(at, rows) for page in store.scan(span, at)]


def read(store: ScanDriver, at: Position | None = None, rows: int = WHOLE) -> list[Row]:
    return [row for page in pages(store, at or store.position(), rows) for row in page.rows]


def rejected(store: ScanDriver) -> set[bytes]:
    found = [one for page in pages(store, store.position()) for one in page.rejected]
    assert all(one.reason.startswith("foreign") for one in found)
    return {one.key for one in found}


def changes(store: ScanDriver, after: Position, until: Position) -> list[Change]:
    return [change for batch in store.changes(after, until) for change in batch]


def revision_of(admin: Admin) -> int:
    return int(admin.tell("kv/range", key=encoded(b"k"))["header"]["revision"])


def test_foreign_keys_are_rejected(
    open_client: Open, open_scanner: OpenScanner, namespace: str, admin: Admin
) -> None:
    storage = open_client(**PATIENT).storage()
    storage.put_many({"f/a/b": "1", "f/c": "2"})
    ours = seal("00" * 8, b"v")
    foreign = {
        "kv/f/theirs": b"not of kip30",
        "kv/f/short": b"\x01",
        "kv/f/newer": b"\x02" + ours[1:],
        "kv/f/=no": ours,
        "kv/f/a=2Fb": ours,  # which would be f/a/b once more
        "kv/f/=": ours,
        "kv/f/" + "k" * 256: ours,
        "kv/f/g/h": ours,
        "kv/=2Ff/k": ours,
        "kv/lonely": ours,
        "kv": ours,
        "": ours,
        "else": b"",
        "groups/g": b"",
        "service": b"",
        "zzz": b"",
    }
    for key, value in foreign.items():
        admin.put(f"/{namespace}/{key}", value)
    odd = f"/{namespace}/kv/f/".encode() + b"\xff\0"
    put(admin, odd, ours)
    store = open_scanner()
    assert sorted(row.key for row in read(store)) == [b"f/a/b", b"f/c"]
    assert rejected(store) == {odd, *(f"/{namespace}/{key}".encode() for key in foreign)}
    below = {key for key in rejected(store) if key.startswith(f"/{namespace}/kv/f/".encode())}
    assert rejected(open_scanner(View(under="f"))) == below


def test_claims_that_are_none_are_rejected(
    open_client: Open, open_scanner: OpenScanner, namespace: str, admin: Admin
) -> None:
    client = open_client(**PATIENT)
    client.group_membership("g").join("m", "")
    assert client.leader_election("s").nominate("c", "")
    foreign = ["group/g/other", "group/h", "service/s/other", "service/s/leader/x", "group/g/=no"]
    for key in foreign:
        admin.put(f"/{namespace}/{key}", b"")
    store = open_scanner(View(layout=Layout.CLAIMS))
    rows = {row.key: row for row in read(store)}
    assert rows.keys() == {b"member/g/m", b"leader/s/c", b"epoch/s"}
    leases = {one["ID"] for one in admin.tell("lease/leases")["leases"]}
    assert str(int(rows[b"member/g/m"].owner or "", 16)) in leases
    assert rejected(store) == {f"/{namespace}/{key}".encode() for key in foreign}
    leaders = open_scanner(View(layout=Layout.CLAIMS, under="leader/"))
    assert [row.key for row in read(leaders)] == [b"leader/s/c"]
    assert store.completeness is None
    with pytest.raises(UnsupportedError):
        changes(store, store.position(), store.position())


def test_raw_keys_and_values_are_as_they_are(
    open_scanner: OpenScanner, namespace: str, admin: Admin
) -> None:
    lease = admin.tell("lease/grant", TTL="600")["ID"]
    prefix = f"\0raw-{namespace}"
    ends = [
        b"",
        b"\0",
        b"\xff",
        b"\xff\xfe",
        b"//x",
        b"/",
        b"\xc3",
        "é".encode(),
        seal("00" * 8, b""),
    ]
    for end in ends:
        put(admin, prefix.encode() + end, b"\0" + end)
        put(admin, prefix.encode() + end, end, lease=lease if end == b"//x" else "0")
    put(admin, prefix.encode()[:-1] + bytes([prefix.encode()[-1] + 1]), b"beside it")
    rows = {
        row.key: row for row in read(open_scanner(View(layout=Layout.RAW, under=prefix)), rows=2)
    }
    assert {key: row.data for key, row in rows.items()} == {
        prefix.encode() + end: end for end in ends
    }
    owned = rows.pop(prefix.encode() + b"//x")
    assert owned.owner == f"{int(lease):x}"
    assert {row.owner for row in rows.values()} == {None}
    assert {row.modified - (row.created or 0) for row in rows.values() if row.modified} == {1}
    assert all((row.major, row.minor) == (row.modified, 0) for row in rows.values())
    everything = {row.key for row in read(open_scanner(View(layout=Layout.RAW)))}
    assert rows.keys() < everything
    admin.tell("lease/revoke", ID=lease)


@pytest.mark.parametrize("under", ["/a", "a/", "\ud800"])
def test_no_namespace(open_scanner: OpenScanner, under: str) -> None:
    with pytest.raises(InvalidNameError):
        open_scanner(View(under=under))


def test_a_prefix_that_is_no_text(open_scanner: OpenScanner) -> None:
    with pytest.raises(InvalidNameError):
        open_scanner(View(layout=Layout.RAW, under="\ud800"))


@pytest.mark.parametrize("server_bytes", [1, 64 * 1024 * 1024])
def test_thousands_of_keys(
    open_client: Open,
    open_scanner: OpenScanner,
    server_bytes: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scanning, "_SERVER_BYTES", server_bytes)
    keys = [f"n/{number:04} é" for number in range(4321)]
    open_client(**PATIENT).storage().put_many(dict.fromkeys(keys, "v"))
    store = open_scanner()
    at = store.position()
    for rows, most in [(WHOLE, 1), (4321, 5), (2500, 3), (1000, 6), (999, 6)]:
        plan = spans(store, at, rows)
        assert len(plan) <= most
        assert sum(span.rows for span in plan) == len(keys)
        assert sorted(row.key.decode() for row in read(store, at, rows)) == keys
    assert [span.rows for span in itertools.islice(store.plan(at, 1), 1500)] == [1] * 1500


def test_one_row_a_span(open_client: Open, open_scanner: OpenScanner) -> None:
    keys = [f"n/{number:03}" for number in range(300)]
    open_client(**PATIENT).storage().put_many(dict.fromkeys(keys, "v"))
    store = open_scanner()
    assert [row.key.decode() for row in read(store, rows=1)] == keys


def test_pages_of_large_values_are_small(open_client: Open, open_scanner: OpenScanner) -> None:
    storage = open_client(**PATIENT).storage(BYTES)
    storage.put_many({f"n/{number:03}": bytes(LARGE) for number in range(400)})
    store = open_scanner()
    first, *rest = pages(store, store.position())
    assert len(first.rows) == 256
    assert sum(len(page.rows) for page in rest) == 144
    assert max(len(page.rows) for page in rest) <= 4 * 1024 * 1024 // LARGE


@pytest.mark.parametrize("planned", [True, False])
def test_compaction_ends_a_scan(
    ensemble: Ensemble, open_client: Open, open_scanner: OpenScanner, *, planned: bool
) -> None:
    storage = open_client(**PATIENT).storage()
    keys = [f"n/{number:03}" for number in range(600)]
    storage.put_many(dict.fromkeys(keys, "old"))
    store = open_scanner()
    at = store.position()
    [span] = spans(store, at)
    scan = store.scan(span, at)
    assert {row.data for row in next(scan).rows} == {b"old"}
    for key in keys[-50:]:
        storage.update(key, "new")
    ensemble.compact()
    with pytest.raises(PositionLostError):
        list(scan)
    with pytest.raises(PositionLostError):
        spans(store, at) if planned else list(store.scan(span, at))
    assert sorted({row.data or b"" for row in read(store)}) == [b"new", b"old"]


def test_another_cluster(
    open_client: Open,
    open_scanner: OpenScanner,
    namespace: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    open_client(**PATIENT).storage().put("n/k", "v")
    store = open_scanner()
    at = store.position()
    [span] = spans(store, at)
    with start("etcd", folder=tmp_path_factory.mktemp("other")) as other:
        there = open_scanner(**other.settings())
        admin = Admin(other.nodes[0].address)
        admin.put(f"/{namespace}/kv/n/k", seal("00" * 8, b"theirs"))
        while revision_of(admin) <= int(at.at):
            admin.put("k", b"")
        _is_lost(there, span, at)
        _is_lost(there, span, at._replace(at=there.position().at))
        other.restart(empty=True)
        later = there.position()
        _is_lost(there, span, Position(later.store, at.at))  # a moment that is still to come


def _is_lost(store: ScanDriver, span: Span, at: Position) -> None:
    calls: list[Callable[[], object]] = [
        lambda: spans(store, at),
        lambda: list(store.scan(span, at)),
        lambda: changes(store, at, at),
        lambda: changes(store, at, store.position()),
        lambda: changes(store, store.position(), at),
    ]
    for call in calls:
        with pytest.raises(PositionLostError):
            call()


def test_who_may_only_read(tmp_path_factory: pytest.TempPathFactory) -> None:
    with start("etcd", folder=tmp_path_factory.mktemp("reading")) as servers:
        admin = Admin(servers.nodes[0].address)
        config: dict[str, Written] = {**servers.settings(), "plugin.namespace": "mine"}
        with PluginLocator().startup(config) as client:
            client.storage().put_many({"n/k": "v", "n/l": "v"})
        admin.add_user("root", SECRET)
        admin.add_user("reader", SECRET, prefix="/mine/", permission="READ")
        admin.tell("auth/enable")
        admin.log_in("root", SECRET)
        before = revision_of(admin)
        reader: dict[str, Written] = {"plugin.etcd.user": "reader", "plugin.etcd.password": SECRET}
        with scanner({**config, **reader}) as store:
            assert [row.key for row in read(store)] == [b"n/k", b"n/l"]
            first = store.position()._replace(at="1")
            assert [one.key for one in changes(store, first, store.position())] == [b"n/k", b"n/l"]
        assert revision_of(admin) == before
        assert admin.tell("lease/leases").get("leases", []) == []
        with pytest.raises(AuthenticationError, match="read on the prefix /yours/"):
            scanner({**config, **reader, "plugin.namespace": "yours"})
        with pytest.raises(AuthenticationError, match="read on all keys"):
            scanner({**config, **reader}, View(layout=Layout.RAW))
        with scanner({**config, **reader}, View(layout=Layout.RAW, under="/mine/kv/")) as store:
            assert len(read(store)) == 2


def test_each_change_of_a_key(
    open_client: Open, open_scanner: OpenScanner, namespace: str, admin: Admin
) -> None:
    storage = open_client(**PATIENT).storage()
    storage.put("n/k", "0")
    store = open_scanner()
    before = store.position()
    versions = [storage.update("n/k", str(number)) for number in (1, 2, 3)]
    storage.delete("n/k")
    storage.put("n/k", "4")
    admin.put(f"/{namespace}/kv/n/k", b"not of kip30")
    admin.put(f"/{namespace}/kv/n/=no", b"")
    admin.put(f"/{namespace}/group/g", b"")
    found = changes(store, before, store.position())
    assert [one.row and one.row.data for one in found] == [b"1", b"2", b"3", None, b"4", None]
    assert {one.key for one in found} == {b"n/k"}
    assert [one.order for one in found[:3]] == [version.major for version in versions]
    after = Position(before.store, str(versions[0].major))
    until = Position(before.store, str(versions[2].major))
    assert [one.row and one.row.data for one in changes(store, after, until)] == [b"2", b"3"]
    assert changes(store, until, until) == []
    with pytest.raises(PositionLostError):
        changes(store, until, after)


def test_changes_of_a_part(open_client: Open, open_scanner: OpenScanner) -> None:
    storage = open_client(**PATIENT).storage()
    raw = open_scanner(View(layout=Layout.RAW))
    part = open_scanner(View(under="a"))
    before = raw.position()
    for key in ("a/k", "a/b/k", "a-b/k", "a", "ab/k", "a0/k"):
        storage.put(key, "v")
    after = raw.position()
    assert [one.key for one in changes(part, before, after)] == [b"a/k", b"a/b/k"]
    assert len(changes(raw, before, after)) == 6
    nothing = open_scanner(View(under="nobody"))
    assert changes(nothing, before, after) == []


def test_a_revision_comes_whole(open_client: Open, open_scanner: OpenScanner) -> None:
    storage = open_client(**PATIENT).storage(BYTES)
    store = open_scanner()
    before = store.position()
    values = {f"n/{number}": bytes([number]) * LARGE for number in range(9)}
    for turn in range(8):  # together more than a server sends in one piece
        storage.set(f"n/{turn}", b"")
        storage.delete(f"n/{turn}")
        storage.put_many(values)
        for key in values:
            storage.delete(key)
    batches = list(store.changes(before, store.position()))
    orders = [[one.order for one in batch] for batch in batches]
    assert len(orders) > 2
    assert all(one[-1] < other[0] for one, other in itertools.pairwise(orders))
    together = Counter(order for batch in orders for order in batch)
    assert sorted(together.values()) == [1] * (8 * 11) + [9] * 8


def test_changes_lead_from_one_scan_to_the_next(
    open_client: Open, open_scanner: OpenScanner
) -> None:
    storage = open_client(**PATIENT).storage()
    storage.put_many({f"n/{number}": "0" for number in range(50)})
    store = open_scanner()
    enough = threading.Event()

    def write() -> None:
        for turn in itertools.takewhile(lambda _turn: not enough.is_set(), itertools.count()):
            storage.set(f"n/{turn % 50}", str(turn))
            storage.delete(f"n/{turn % 50}")
            storage.set(f"n/{turn * 7 % 50}", str(turn))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        at = store.position()
        state = {row.key: row for row in read(store, at)}
        for _ in range(5):
            then = eventually(partial(_later, store, int(at.at) + 200))
            for change in changes(store, at, then):
                assert int(at.at) < change.order <= int(then.at)
                if change.row is None:
                    del state[change.key]
                else:
                    state[change.key] = change.row
            assert state == {row.key: row for row in read(store, then)}
            at = then
    finally:
        enough.set()
        writer.join()


def _later(store: ScanDriver, revision: int) -> Position | None:
    at = store.position()
    return at if int(at.at) > revision else None


@pytest.mark.parametrize("back", [1, 3])
def test_forgotten_changes(
    ensemble: Ensemble, open_client: Open, open_scanner: OpenScanner, back: int
) -> None:
    storage = open_client(**PATIENT).storage()
    store = open_scanner()
    for value in "12":
        storage.set("n/k", value)
    storage.delete("n/k")
    compacted = store.position()
    ensemble.compact()
    storage.put("n/l", "v")
    after = Position(compacted.store, str(int(compacted.at) - back))
    with pytest.raises(PositionLostError):
        changes(store, after, store.position())
    assert [one.key for one in changes(store, compacted, store.position())] == [b"n/l"]


def test_nothing_is_left_of_a_feed(open_client: Open, open_scanner: OpenScanner) -> None:
    storage = open_client(**PATIENT).storage(BYTES)
    before = resources()
    store = open_scanner()
    first = store.position()
    for number in range(100):
        storage.put(f"n/{number}", bytes(LARGE))
    last = store.position()
    within = store.changes(first, last)
    next(within)
    within.close()  # type: ignore[attr-defined]
    other = store.changes(first, last)
    next(other)
    store.close()
    expect_no_more_than(before)
    with pytest.raises(ClosedError):
        list(other)
    with pytest.raises(ClosedError):
        changes(store, first, last)


def test_nothing_is_left_of_a_scanner_that_was_dropped(
    ensemble: Ensemble, namespace: str, open_client: Open
) -> None:
    open_client(**PATIENT).storage().put("n/k", "v")
    before = resources()
    store = scanner({**ensemble.settings(), **PATIENT, "plugin.namespace": namespace})
    assert len(read(store)) == 1
    del store
    expect_no_more_than(before)


def test_a_silent_server_ends_everything_in_time(
    ensemble: Ensemble, open_client: Open, namespace: str, borrow: Borrow
) -> None:
    storage = open_client(**PATIENT).storage(BYTES)
    # Without pings: nothing but the operation timeout tells that the server is silent.
    config = borrow([("grpc.max_receive_message_length", -1)])
    store = scanner({**config, "plugin.operation.timeout.ms": 1500, "plugin.namespace": namespace})
    first = store.position()
    for number in range(300):
        storage.put(f"n/{number}", bytes(LARGE))
    last = store.position()
    scan, feed = store.scan(spans(store, last)[0], last), store.changes(first, last)
    next(scan)
    next(feed)
    with ThreadPoolExecutor(1) as thread, ensemble.frozen():
        for iterator in (scan, feed):
            rest = thread.submit(list, iterator)
            assert isinstance(rest.exception(10 * TIME_SCALE), UnavailableError)
    ensemble.await_ready()
    assert len(eventually(lambda: _answers(store, first, last))) == 300
    store.close()


def _answers(store: ScanDriver, first: Position, last: Position) -> list[Change]:
    try:
        return changes(store, first, last)
    except UnavailableError:
        return []


def test_a_borrowed_connection(namespace: str, open_client: Open, borrow: Borrow) -> None:
    config = borrow(GRPC_OPTIONS)
    storage = open_client(**PATIENT).storage()
    with scanner({**config, "plugin.namespace": namespace}) as store:
        before = store.position()
        storage.put_many({"n/k": "1", "n/l": "1"})
        after = store.position()
        assert [row.key for row in read(store)] == [b"n/k", b"n/l"]
        assert len(changes(store, before, after)) == 2
        feed = store.changes(before, after)
        next(feed)
    with pytest.raises(ClosedError):
        read(store)
    with scanner({**config, "plugin.namespace": namespace}) as again:
        assert len(read(again)) == 2


@pytest.mark.parametrize(
    ("version", "is_right"),
    [
        ("3.4.23", False),
        ("3.4.30", False),
        ("3.4.31", True),
        ("3.5.8", False),
        ("3.5.12", False),
        ("3.5.13", True),
        ("3.6.0-rc.1", True),
        ("3.6.15", True),
        ("4.0.0", True),
        ("3.3.99", False),
        ("", False),
    ],
)
def test_which_servers_tell_how_far_a_watch_is(version: str, *, is_right: bool) -> None:
    assert tells_progress(version) is is_right


def test_older_servers_have_no_log(
    open_scanner: OpenScanner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scanning, "tells_progress", _no)
    store = open_scanner()
    assert store.completeness is None
    with pytest.raises(UnsupportedError, match=r"3\.5\.13"):
        changes(store, store.position(), store.position())


def _no(_version: str) -> bool:
    return False
