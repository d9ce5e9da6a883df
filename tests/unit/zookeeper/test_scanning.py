"""Bulk reading of nodes that kip30 did not make, or may not read."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any, ClassVar, Protocol

import pytest
from kazoo.security import OPEN_ACL_UNSAFE
from typing_extensions import override

from kip30 import BYTES, PluginLocator
from kip30.config import Written
from kip30.driver.scanning import Layout, Page, Position, Row, ScanDriver, Span, View
from kip30.errors import (
    AuthenticationError,
    ConfigError,
    InvalidNameError,
    LifecycleError,
    PositionLostError,
    UnavailableError,
)
from kip30.runtime.resolution import scanner
from kip30_backends.zookeeper import ZookeeperBackend
from kip30_backends.zookeeper.calls import RequestBatch, Steps
from kip30_backends.zookeeper.client import jute
from kip30_backends.zookeeper.client.messages import Create
from kip30_backends.zookeeper.row_decoding import owner_of
from kip30_backends.zookeeper.scanning import ZookeeperScanner
from kip30_conformance.polling import eventually
from kip30_conformance.servers import Ensemble, start
from tests.unit.children import run_in_child
from tests.unit.clients import PATIENT, Open

from .alice import alice_on, hiding

_WHOLE = 1_000_000
_AROUND_CUTS = ["a/b/c", "a-b/c", "a0/b", "a.b", "A/b", "é/ü", "a/b-c", "zookeeper/k"]
_IMPATIENT: dict[str, Written] = {
    "plugin.session.timeout.ms": 2000,
    "plugin.operation.timeout.ms": 1500,
}
both = pytest.mark.parametrize("protocol", ["3.6", "3.5"])


class OpenScanner(Protocol):
    """Opens a scanner of the test's namespace; it is closed when the test ends."""

    def __call__(self, view: View | None = None, /, **more: Written) -> ScanDriver: ...


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    folder = tmp_path_factory.mktemp("scanning")
    with start("zookeeper", folder=folder, extra=["extendedTypesEnabled=true"]) as servers:
        yield servers


@pytest.fixture
def open_scanner(ensemble: Ensemble, namespace: str) -> Iterator[OpenScanner]:
    with ExitStack() as scanners:

        def open_one(view: View | None = None, /, **more: Written) -> ScanDriver:
            properties = {**PATIENT, **ensemble.settings(), "plugin.namespace": namespace, **more}
            return scanners.enter_context(scanner(properties, view))

        yield open_one


@pytest.fixture
def kazoo(ensemble: Ensemble) -> Iterator[Any]:
    with alice_on(ensemble) as client:
        yield client


@pytest.fixture
def hide(kazoo: Any) -> Iterator[Callable[[str], object]]:
    with hiding(kazoo) as hide_one:
        yield hide_one


def test_foreign_nodes_are_rejected(
    open_client: Open, open_scanner: OpenScanner, kazoo: Any, namespace: str
) -> None:
    open_client().storage().put_many({"n/fine": "v", "m/fine": "v"})
    kv = f"/{namespace}/kv"
    sealed, _ = kazoo.get(f"{kv}/n/fine")
    foreign = {
        "n/no-envelope": b"theirs",
        "n/no-data": None,
        "n/not escaped": sealed,
        "n/=2F": sealed,
        "n/=": sealed,
        "n/fine/below": sealed,
        "no namespace": b"",
        "=2Fn": b"",
    }
    for path, data in foreign.items():
        kazoo.create(f"{kv}/{path}", data)
    kazoo.create(f"{kv}/no namespace/k", sealed)
    for rows in (1, 3, _WHOLE):
        found, rejected = _read(open_scanner(), rows)
        assert sorted(row.key for row in found) == [b"m/fine", b"n/fine"]
        assert sorted(rejected) == sorted(f"{kv}/{path}".encode() for path in foreign)


def test_foreign_claims_are_rejected(
    open_client: Open, open_scanner: OpenScanner, kazoo: Any, namespace: str
) -> None:
    client = open_client()
    client.group_membership("g").join("m", "data")
    assert client.leader_election("s").nominate("c", "")
    foreign = ["group/g/theirs", "group/not escaped", "service/s/theirs", "service/s/epoch/below"]
    for path in foreign:
        kazoo.create(f"/{namespace}/{path}")
    kazoo.create(f"/{namespace}/service/t/epoch", makepath=True)
    found, rejected = _read(open_scanner(View(layout=Layout.CLAIMS)))
    assert {row.key for row in found} >= {b"member/g/m"}
    assert b"epoch/t" not in {row.key for row in found}
    assert sorted(rejected) == sorted(f"/{namespace}/{path}".encode() for path in foreign)
    (member,) = (row for row in found if row.key == b"member/g/m")
    assert member.owner == _session_of(client)
    kazoo.create(f"/{namespace}/service/a=2Fb/leader", makepath=True)
    store = open_scanner(View(layout=Layout.CLAIMS))
    at = store.position()
    found_now = [page for span in store.plan(at, 1_000) for page in store.scan(span, at)]
    prefixes = [one.prefix for page in found_now for one in page.rejected]
    assert list(filter(None, prefixes)) == [b"leader/a=2Fb/"]
    below, _ = _read(open_scanner(View(layout=Layout.CLAIMS, under="member/")))
    assert [row.key for row in below] == [b"member/g/m"]


@both
def test_unreadable_nodes_are_rejected(
    open_client: Open,
    open_scanner: OpenScanner,
    hide: Callable[[str], object],
    namespace: str,
    protocol: str,
) -> None:
    open_client().storage().put_many({"n/fine": "", "n/secret": "", "secret/k": "", "z/fine": ""})
    unreadable = [f"/{namespace}/kv/n/secret", f"/{namespace}/kv/secret"]
    for path in unreadable:
        hide(path)
    for view in (View(), View(layout=Layout.RAW, under=f"/{namespace}")):
        for rows in (1, _WHOLE):
            store = open_scanner(view, **{"plugin.zookeeper.protocol": protocol})
            found, rejected = _read(store, rows)
            assert sorted(rejected) == [path.encode() for path in unreadable]
            assert {row.key.rpartition(b"/")[2] for row in found} >= {b"fine"}
            assert len([row for row in found if row.key.endswith(b"fine")]) == 2


def test_a_service_that_may_not_be_listed_has_a_leader_that_cannot_be_read(
    open_client: Open, open_scanner: OpenScanner, hide: Callable[[str], object], namespace: str
) -> None:
    assert open_client().leader_election("a/b").nominate("c", "")
    hide(f"/{namespace}/service/a=2Fb")
    store = open_scanner(View(layout=Layout.CLAIMS))
    at = store.position()
    found = [page for span in store.plan(at, 1_000) for page in store.scan(span, at)]
    assert [one.prefix for page in found for one in page.rejected] == [b"leader/a=2Fb/"]


@pytest.mark.parametrize("layout", [Layout.KIP30, Layout.RAW])
def test_a_node_that_becomes_unreadable_between_two_spans_hides_what_is_below(
    open_client: Open,
    open_scanner: OpenScanner,
    hide: Callable[[str], object],
    namespace: str,
    layout: Layout,
) -> None:
    """Otherwise the keys of the later span would count as deleted."""
    open_client().storage().put_many({f"n/k{number}": "v" for number in range(9)})
    under = f"/{namespace}/kv" if layout is Layout.RAW else ""
    scanner = open_scanner(View(layout=layout, under=under))
    at = scanner.position()
    first, *others = scanner.plan(at, 3)
    assert others
    list(scanner.scan(first, at))
    hide(f"/{namespace}/kv/n")
    for span in others:
        (page,) = scanner.scan(span, at)
        (rejected,) = page.rejected
        assert rejected.key.endswith(b"n")
        assert rejected.prefix is not None
        assert rejected.prefix.endswith(b"n/")


@pytest.mark.parametrize("layout", [Layout.KIP30, Layout.RAW])
def test_a_view_that_is_all_unreadable_is_an_error(
    open_client: Open,
    open_scanner: OpenScanner,
    hide: Callable[[str], object],
    namespace: str,
    layout: Layout,
) -> None:
    open_client().storage().put("n/k", "")
    store = open_scanner(
        View(layout=layout, under=f"/{namespace}/kv" if layout is Layout.RAW else "")
    )
    at = store.position()
    (span,) = store.plan(at, _WHOLE)
    hide(f"/{namespace}/kv")
    with pytest.raises(AuthenticationError):
        list(store.plan(at, _WHOLE))
    with pytest.raises(AuthenticationError):
        list(store.scan(span, at))


@pytest.fixture(params=["", "/chroot"])
def chroot(request: pytest.FixtureRequest, kazoo: Any) -> str:
    """Return the top of a tree with siblings around each other, and nodes without data."""
    top: str = request.param
    for name in _AROUND_CUTS:
        kazoo.ensure_path(f"{top}/tree/{name}")
    if not kazoo.exists(f"{top}/tree/data"):
        kazoo.create(f"{top}/tree/data", b"some", sequence=True)
        kazoo.create(f"{top}/tree/data")
        kazoo.create(f"{top}/tree/data/empty", b"")
        kazoo.create(f"{top}/tree/data/none", None)
    return top


@pytest.fixture(params=["3.6", "3.5"])
def seen_from(
    request: pytest.FixtureRequest, ensemble: Ensemble, chroot: str
) -> dict[str, Written]:
    """Return properties of a client with that chroot."""
    address = f"{ensemble.nodes[0].address}{chroot}"
    return {"zookeeper.connect": address, "plugin.zookeeper.protocol": request.param}


@pytest.mark.parametrize("rows", [1, 2, 7, _WHOLE])
def test_all_nodes_as_another_client_sees_them(
    open_scanner: OpenScanner, kazoo: Any, chroot: str, seen_from: Mapping[str, Written], rows: int
) -> None:
    found, rejected = _read(open_scanner(View(layout=Layout.RAW), **seen_from), rows)
    assert rejected == []
    expected = dict(_walk(kazoo, chroot, "", [] if chroot else ["/zookeeper"]))
    assert {row.key: row for row in found} == expected
    assert len(found) == len(expected)
    assert expected[b"/tree/data/none"].data is None
    assert expected[b"/tree/data/empty"].data == b""
    part, _ = _read(open_scanner(View(layout=Layout.RAW, under="/tree/a"), **seen_from), rows)
    inside = [key for key in expected if (key + b"/").startswith(b"/tree/a/")]
    assert sorted(row.key for row in part) == sorted(inside)
    assert b"/tree/a-b" in expected.keys() - set(inside)


def test_cuts_are_in_order_of_segments(
    open_scanner: OpenScanner, seen_from: Mapping[str, Written]
) -> None:
    """So a span of some rows is read without those of all the others."""
    store = open_scanner(View(layout=Layout.RAW, under="/tree"), **seen_from)
    at = store.position()
    spans = [list(store.scan(span, at)) for span in store.plan(at, 2)]
    keys = [sorted(row.key.split(b"/") for page in pages for row in page.rows) for pages in spans]
    assert [key for some in keys for key in some] == sorted(key for some in keys for key in some)


def test_owners_are_sessions_alone(
    open_client: Open, open_scanner: OpenScanner, kazoo: Any, namespace: str
) -> None:
    top = f"/{namespace}/owners"
    kazoo.ensure_path(top)
    ephemeral = kazoo.create(f"{top}/e-", ephemeral=True, sequence=True)
    kazoo.create(f"{top}/s-", sequence=True)
    backend = open_client().backend
    assert isinstance(backend, ZookeeperBackend)
    for request in (_Container, _Ttl):
        made = request(f"{top}/{request.type}", b"", tuple(OPEN_ACL_UNSAFE), ephemeral=False)
        backend._resources.outbox.start(_created(made)).result()
    found, _ = _read(open_scanner(View(layout=Layout.RAW, under=f"{top}/")))
    owners = {row.key.decode(): row.owner for row in found}
    assert len(owners) == 5
    assert owners.pop(ephemeral) == f"{kazoo.client_id[0]:#x}"
    assert set(owners.values()) == {None}


@pytest.mark.parametrize(
    ("owner", "shown"),
    [
        (0, None),
        (-(2**63), None),  # a container, as servers keep it
        (0xFF00_0000_0036_EE80 - 2**64, None),  # a node with a time to live
        (0x0100_0000_0036_EE80, "0x10000000036ee80"),
        (0xFE00_0000_0036_EE80 - 2**64, "0xfe0000000036ee80"),
    ],
)
def test_kinds_of_owners(owner: int, shown: str | None) -> None:
    assert owner_of(jute.Stat(1, 1, 0, owner)) == shown


@pytest.mark.parametrize("under", ["tree", "/tree//a", "/tree/../a"])
def test_an_invalid_path_is_refused(open_scanner: OpenScanner, under: str) -> None:
    with pytest.raises(InvalidNameError):
        open_scanner(View(layout=Layout.RAW, under=under))


def test_the_servers_own_node_is_no_namespace(open_scanner: OpenScanner) -> None:
    with pytest.raises(ConfigError, match="zookeeper"):
        open_scanner(**{"plugin.namespace": "zookeeper"})
    found, _ = _read(open_scanner(View(layout=Layout.RAW, under="/zookeeper")))
    assert b"/zookeeper/config" in {row.key for row in found}


def test_a_scan_changes_nothing(
    open_client: Open, open_scanner: OpenScanner, kazoo: Any, namespace: str
) -> None:
    client = open_client(**PATIENT)
    client.storage().put_many({"n/k": "", "k": ""})
    client.group_membership("g").join("m", "")
    before = dict(_stats(kazoo, "/"))
    for layout in Layout:
        _read(open_scanner(View(layout=layout)))
        assert _read(
            open_scanner(View(layout=layout, under="/no" if layout is Layout.RAW else "no"))
        ) == ([], [])
        unused: dict[str, Written] = {"plugin.namespace": f"{namespace}-unused"}
        _read(open_scanner(View(layout=layout), **unused))
    assert dict(_stats(kazoo, "/")) == before
    assert not kazoo.exists(f"/{namespace}-unused")


def test_versions_are_those_of_storage(open_client: Open, open_scanner: OpenScanner) -> None:
    storage = open_client().storage(BYTES)
    storage.put("n/k", b"1")
    storage.delete("n/k")
    storage.put("n/k", b"1")
    version = storage.update("n/k", b"2")
    ((row,), _) = _read(open_scanner())
    found = storage.get("n/k")
    assert found is not None
    assert (row.major, row.minor) == version == found.version
    assert row.created == version.major
    assert row.modified is not None
    assert row.modified > version.major


def test_a_namespace_of_thousands(open_client: Open, open_scanner: OpenScanner) -> None:
    keys = {f"n/{number}": b"" for number in range(3000)} | {f"o/{n}": b"" for n in range(7)}
    open_client(**PATIENT).storage(BYTES).put_many(keys)
    store = open_scanner()
    at = store.position()
    spans = list(store.plan(at, 1000))
    assert [span.rows for span in spans[:3]] == [1000, 1000, 1000]
    assert sum(span.rows for span in spans) <= len(keys) + 2
    found = [
        row.key.decode() for span in spans for page in store.scan(span, at) for row in page.rows
    ]
    assert sorted(found) == sorted(keys)


def test_nodes_deleted_during_a_scan_are_left_out(
    open_client: Open, open_scanner: OpenScanner, kazoo: Any, namespace: str
) -> None:
    storage = open_client(**PATIENT).storage(BYTES)
    storage.put_many({f"n/{number:04}": b"" for number in range(600)} | {"z/k": b""})
    store = open_scanner()
    at = store.position()
    (span,) = store.plan(at, _WHOLE)
    pages = store.scan(span, at)
    found = list(next(pages).rows)
    storage.delete("n/0599")
    storage.put("n/9999", b"")
    kazoo.delete(f"/{namespace}/kv/z", recursive=True)
    found += [row for page in pages for row in page.rows]
    keys = [row.key.decode() for row in found]
    assert sorted(keys) == [f"n/{number:04}" for number in range(599)]


def test_a_scan_goes_on_after_a_restart(
    open_client: Open, open_scanner: OpenScanner, ensemble: Ensemble
) -> None:
    keys = [f"n/{number:04}" for number in range(900)]
    open_client(**PATIENT).storage(BYTES).put_many(dict.fromkeys(keys, b""))
    store = open_scanner()
    at = store.position()
    (span,) = store.plan(at, _WHOLE)
    pages = store.scan(span, at)
    found = list(next(pages).rows)
    ensemble.restart()
    found += [row for page in pages for row in page.rows]
    assert sorted(row.key.decode() for row in found) == keys


def test_a_scan_goes_on_in_another_session(open_client: Open, open_scanner: OpenScanner) -> None:
    keys = [f"n/{number:04}" for number in range(900)]
    open_client(**PATIENT).storage(BYTES).put_many(dict.fromkeys(keys, b""))
    store = open_scanner()
    at = store.position()
    (span,) = store.plan(at, _WHOLE)
    pages = store.scan(span, at)
    found = list(next(pages).rows)
    assert isinstance(store, ZookeeperScanner)
    sessions = store._resources.sessions
    assert sessions.current is not None
    assert sessions.current.session is not None
    sessions.close_former(sessions.current.session.identity)
    found += [row for page in pages for row in page.rows]
    assert sorted(row.key.decode() for row in found) == keys


def test_a_forked_child_is_refused(open_client: Open, open_scanner: OpenScanner) -> None:
    open_client().storage().put("n/k", "")
    store = open_scanner()
    at = store.position()
    assert run_in_child(lambda: _refuses(store)) == 0
    assert store.position().store == at.store


def _refuses(store: ScanDriver) -> bool:
    with pytest.raises(LifecycleError):
        store.position()
    store.close()
    return True


def test_positions_of_others(
    open_client: Open, open_scanner: OpenScanner, ensemble: Ensemble
) -> None:
    storage = open_client().storage()
    for number in range(50):
        storage.put(f"n/{number}", "")
    store = open_scanner(**_IMPATIENT)
    at = store.position()
    (span,) = store.plan(at, _WHOLE)
    chrooted: dict[str, Written] = {"zookeeper.connect": f"{ensemble.nodes[0].address}/chroot"}
    for elsewhere in (
        open_scanner(**chrooted).position(),
        Position(at.store, str(int(at.at) + 1_000_000)),
    ):
        with pytest.raises(PositionLostError):
            list(store.plan(elsewhere, _WHOLE))
        with pytest.raises(PositionLostError):
            list(store.scan(span, elsewhere))
    ensemble.restart(empty=True)
    assert eventually(lambda: _is_lost(store, span, at), what="the servers are behind the position")
    assert _read(store) == ([], [])


def _is_lost(store: ScanDriver, span: Span, at: Position) -> bool:
    """Return whether *at* is lost, and not just the session that no server knows any more."""
    try:
        list(store.scan(span, at))
    except (PositionLostError, UnavailableError) as error:
        return isinstance(error, PositionLostError)
    raise AssertionError("it was scanned, from servers that have lost everything")


def test_positions_are_after_what_others_wrote(
    tmp_path_factory: pytest.TempPathFactory, namespace: str
) -> None:
    folder = tmp_path_factory.mktemp("three")
    with start("zookeeper", 3, folder=folder) as servers, ExitStack() as opened:
        common = {**PATIENT, **servers.settings(), "plugin.namespace": namespace}
        storage = opened.enter_context(PluginLocator().startup(common)).storage()
        stores = [
            opened.enter_context(scanner({**common, "zookeeper.connect": node.address}))
            for node in servers.nodes
        ]
        for number in range(60):
            version = storage.put(f"n/{number}", "")
            for store in stores:
                assert int(store.position().at) >= version.major


class _Container(Create):
    type: ClassVar[int] = 19

    @override
    def serialize(self) -> bytes:
        return super().serialize()[:-4] + jute.integer(4)


class _Ttl(Create):
    type: ClassVar[int] = 21

    @override
    def serialize(self) -> bytes:
        return super().serialize()[:-4] + jute.integer(5) + (3_600_000).to_bytes(8, "big")


def _created(request: Create) -> Steps[None]:
    (yield RequestBatch((request,), writes=True)).only()


def _read(store: ScanDriver, rows: int = 1_000) -> tuple[list[Row], list[bytes]]:
    """Return all rows, and the paths of what was rejected."""
    at = store.position()
    pages: list[Page] = []
    for span in store.plan(at, rows):
        json.loads(span.token)
        pages += store.scan(span, at)
    rejected = [one.key for page in pages for one in page.rejected]
    return [row for page in pages for row in page.rows], rejected


def _walk(kazoo: Any, chroot: str, path: str, left_out: list[str]) -> Iterator[tuple[bytes, Row]]:
    data, stat = kazoo.get(chroot + path or "/")
    key = (path or "/").encode()
    yield key, Row(key, data, stat.czxid, stat.version, stat.czxid, stat.mzxid, None)
    for name in kazoo.get_children(chroot + path or "/"):
        if f"{path}/{name}" not in left_out:
            yield from _walk(kazoo, chroot, f"{path}/{name}", left_out)


def _stats(kazoo: Any, path: str) -> Iterator[tuple[str, Any]]:
    yield path, kazoo.get(path)
    for name in kazoo.get_children(path):
        yield from _stats(kazoo, f"{path.rstrip('/')}/{name}")


def _session_of(client: PluginLocator) -> str:
    backend = client.backend
    assert isinstance(backend, ZookeeperBackend)
    current = backend._resources.sessions.current
    assert current is not None
    assert current.session is not None
    return f"{current.session.ident:#x}"
