"""Bulk reading where the suite of all stores cannot know what is there, or what becomes of it."""

import itertools
from collections.abc import Callable

import pytest

from kip30 import (
    BYTES,
    AuthenticationError,
    InvalidNameError,
    PluginLocator,
    PositionLostError,
    UnsupportedError,
)
from kip30.config import Written
from kip30.driver.record_format import seal
from kip30.driver.scanning import Layout, Position, ScanDriver, Span, View
from kip30.runtime.resolution import scanner
from kip30_backends.etcd import scanning
from kip30_conformance.process_resources import expect_no_more_than, resources_held
from kip30_conformance.servers import Ensemble, start
from tests.unit.clients import PATIENT, Open

from .admin import Admin, encoded
from .scanners import WHOLE, OpenScanner, changes, pages, read, revision_of, spans

LARGE = 100 * 1024


SECRET = "geheim-1"  # noqa: S105  the test's own


def put(admin: Admin, key: bytes, value: bytes, lease: str = "0") -> None:
    admin.tell("kv/put", key=encoded(key), value=encoded(value), lease=lease)


def rejected(store: ScanDriver) -> set[bytes]:
    found = [one for page in pages(store, store.position()) for one in page.rejected]
    assert all(one.reason.startswith("foreign") for one in found)
    return {one.key for one in found}


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
    admin.put(f"/{namespace}/service/a=2Fb/leader", b"")
    prefixes = [one.prefix for page in pages(store, store.position()) for one in page.rejected]
    assert list(filter(None, prefixes)) == [b"leader/a=2Fb/"]
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
    found = pages(store, store.position())
    assert sum(len(page.rows) for page in found) == 400
    assert max(len(page.rows) for page in found) <= 4 * 1024 * 1024 // LARGE


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


def test_a_read_only_user_can_scan_only_its_own_prefix(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
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


def test_nothing_is_left_of_a_scanner_that_was_dropped(
    ensemble: Ensemble, namespace: str, open_client: Open
) -> None:
    open_client(**PATIENT).storage().put("n/k", "v")
    before = resources_held()
    store = scanner({**ensemble.settings(), **PATIENT, "plugin.namespace": namespace})
    assert len(read(store)) == 1
    del store
    expect_no_more_than(before)
