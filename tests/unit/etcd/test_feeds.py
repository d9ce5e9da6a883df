"""The changes between two positions, and how a caller that waits for them ends."""

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from kip30 import (
    BYTES,
    ClosedError,
    PositionLostError,
    UnavailableError,
    UnsupportedError,
)
from kip30.driver.scanning import Change, Layout, Position, ScanDriver, View
from kip30.runtime.resolution import scanner
from kip30_backends.etcd import GRPC_OPTIONS, scanning
from kip30_backends.etcd.scanning import tells_progress
from kip30_backends.etcd.session import finding
from kip30_conformance.polling import eventually, time_scale
from kip30_conformance.process_resources import expect_no_more_than, resources_held
from kip30_conformance.servers import Ensemble
from tests.unit.clients import PATIENT, Open

from .admin import Admin
from .scanners import Borrow, OpenScanner, changes, read, spans

LARGE = 100 * 1024


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
    admin.delete(f"/{namespace}/kv/n/=no")
    *found, strange, gone = changes(store, before, store.position())
    assert [one.row and one.row.data for one in found] == [b"1", b"2", b"3", None, b"4", None]
    assert {one.key for one in found} == {b"n/k"}
    for one in (strange, gone):  # a key that can be no record, while it is there and afterwards
        assert (one.key, one.row, one.is_record) == (f"/{namespace}/kv/n/=no".encode(), None, False)
    assert strange.rejected is not None
    assert gone.rejected is None
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
    before = resources_held()
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


def _error_of_silence(
    ensemble: Ensemble, begin: Callable[[], Iterator[object]]
) -> BaseException | None:
    """Begin to read, freeze the servers, and return how it ends; None if all had arrived."""
    iterator = begin()
    next(iterator)
    with ThreadPoolExecutor(1) as thread, ensemble.frozen():
        error = thread.submit(list, iterator).exception(10 * time_scale())
    ensemble.await_ready()
    return error


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
    span = spans(store, last)[0]
    begins: list[Callable[[], Iterator[object]]] = [
        lambda: store.scan(span, last),
        lambda: store.changes(first, last),
    ]
    for begin in begins:
        error = eventually(
            partial(_error_of_silence, ensemble, begin), within=60, what="silence before the end"
        )
        assert isinstance(error, UnavailableError)
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
        stream = store.changes(before, after)
        next(stream)
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
def test_correct_watch_progress_depends_on_the_server_version(
    version: str, *, is_right: bool
) -> None:
    assert tells_progress(version) is is_right
    assert ("update it to 3.4.31, 3.5.13 or 3.6" in finding(version)) is not is_right


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
