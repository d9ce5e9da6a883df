"""Bulk reads of tables, partitions and tokens, which the suite of all stores cannot know."""

import time
from collections import Counter
from collections.abc import Mapping

import pytest

from kip30 import BYTES, ClosedError, PositionLostError, Version
from kip30.driver.scanning import Layout, PageSize, Position, ScanDriver, View
from kip30_backends.cassandra import scan_partitions
from kip30_backends.cassandra.client.connections import walk
from kip30_conformance.polling import eventually, time_scale
from tests.gate.sizes import others_large
from tests.unit.clients import PATIENT, Open

from .admin import Admin
from .scans import OpenScanner, is_there, keys_of, located, pages_of, rows_of, sizes_of

NAMES = 6000
NAMESPACES = 350
MINUTE = 60_000_000
FAR = 10**17
"""A number of microseconds in the year 5138."""


@pytest.mark.parametrize("layout", [Layout.KIP30, Layout.CLAIMS])
def test_a_missing_keyspace_is_empty_and_stays_missing(
    open_scanner: OpenScanner, admin: Admin, keyspace: str, layout: Layout
) -> None:
    store = open_scanner(View(layout=layout), **located(keyspace))
    at = store.position()
    assert [*store.plan(at, 1)] == []
    assert not is_there(admin, keyspace)


def test_missing_tables_are_made_while_a_scanner_is_open(
    open_scanner: OpenScanner, open_client: Open, keyspace: str
) -> None:
    store = open_scanner(**located(keyspace))
    before = store.position()
    open_client(**PATIENT, **located(keyspace)).storage().put("n/k", "v")
    assert keys_of(rows_of(store)) == {"n/k": 1}
    with pytest.raises(PositionLostError):
        list(store.plan(before, 1))


@pytest.mark.parametrize("rows", others_large([6000, 700, 100_000]))
def test_a_large_namespace_among_small_ones(
    open_scanner: OpenScanner, open_client: Open, keyspace: str, rows: int
) -> None:
    """Use a keyspace of its own, because a scan passes the rows of all namespaces in one."""
    storage = open_client(**PATIENT, **located(keyspace)).storage(BYTES)
    keys = [f"large/{number:04d} é" for number in range(NAMES)]
    keys += [f"small/{number}/{name}" for number in range(NAMESPACES) for name in "ab"]
    versions = dict[str, Version]()
    for at in range(0, len(keys), 1_000):
        versions |= storage.put_many({key: key.encode() for key in keys[at : at + 1_000]})
    store = open_scanner(**located(keyspace))
    found = rows_of(store, rows)
    assert Counter(row.key.decode() for row in found) == Counter(keys)
    assert all(row.data == row.key for row in found)
    assert {row.key.decode(): (row.major, row.minor) for row in found} == versions
    planned = sizes_of(store, rows)
    assert sum(planned) == len(keys)
    assert max(planned) <= rows
    assert len(planned) <= 2 * len(keys) // rows + 1
    part = open_scanner(View(under="small"), **located(keyspace))
    assert len(rows_of(part, rows)) == 2 * NAMESPACES


def test_the_seams_of_all_pages(
    open_scanner: OpenScanner, open_client: Open, keyspace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = open_client(**PATIENT, **located(keyspace)).storage()
    keys = [f"n{number}/k{name}" for number in range(12) for name in range(number)]
    storage.put_many(dict.fromkeys(keys, "v"))
    store = open_scanner(**located(keyspace))
    for most, places, names, at_once in [(1, 1, 1, 1), (2, 3, 2, 5), (7, 4, 3, 2)]:
        monkeypatch.setattr(scan_partitions, "PageSize", lambda most=most: PageSize(most))
        monkeypatch.setattr(scan_partitions, "_PLACES", places)
        monkeypatch.setattr(scan_partitions, "_NAMES", names)
        monkeypatch.setattr(scan_partitions, "_AT_ONCE", at_once)
        for rows in (4, 7, 1_000):
            assert keys_of(rows_of(store, rows)) == Counter(keys)


@pytest.mark.parametrize("limit", range(1, 9))
def test_partitions_with_the_same_token(limit: int) -> None:
    ring = [(1, "a"), (2, "b"), (2, "c"), (2, "d"), (2, "e"), (3, "f"), (4, "g"), (4, "h")]

    def read(first: int, last: int, most: int) -> list[dict[str, object]]:
        found = [{"ring": at, "key": key} for at, key in ring if first <= at <= last]
        return found[:most]

    def identify(row: Mapping[str, object]) -> object:
        return row["key"]

    pages = [*walk(read, (1, 4), lambda: limit, identify)]
    assert [row["key"] for found in pages for row in found] == [*"abcdefgh"]


@pytest.mark.parametrize("rows", [1, 3, 1_000])
def test_deleted_keys_and_new_ones_of_the_same_name(
    open_scanner: OpenScanner, open_client: Open, rows: int
) -> None:
    storage = open_client().storage()
    storage.put_many({f"n/{number}": "old" for number in range(10)} | {"gone/k": "old"})
    for key in ("n/2", "n/4", "n/9", "gone/k"):
        storage.delete(key)
    storage.put("n/4", "new")
    storage.update("n/5", "new")
    found = {
        row.key.decode(): (row.data, (row.major, row.minor))
        for row in rows_of(open_scanner(), rows)
    }
    assert found.keys() == set(storage.list("n"))
    for key, (data, version) in found.items():
        shown = storage.get(key)
        assert shown is not None
        assert (data, version) == (shown.value.encode(), shown.version)


def test_a_position_is_not_below_what_was_written_by_a_clock_that_is_ahead(
    open_scanner: OpenScanner, open_client: Open, admin: Admin, namespace: str
) -> None:
    storage = open_client().storage()
    storage.put("n/k", "v")
    admin.tell(
        "UPDATE kip30.records SET rev = %s WHERE root = %s AND namespace = 'n' IF rev > 0",
        FAR,
        namespace,
    )
    version = storage.update("n/k", "w")
    assert version.major > FAR
    assert _newest(open_scanner().position()) >= version.major
    assert _newest(open_scanner(View(under="elsewhere")).position()) < FAR


def _newest(at: Position) -> int:
    return int(at.at.partition("/")[0])


def test_a_write_after_the_position_is_marked_though_the_clock_here_is_ahead(
    open_scanner: OpenScanner, open_client: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, store = open_client(**PATIENT).storage(), open_scanner()
    storage.put("n/k", "v")
    in_five_minutes = time.time_ns() // 1000 + 5 * MINUTE
    with monkeypatch.context() as patched:
        patched.setattr(time, "time_ns", lambda: 1000 * in_five_minutes)
        at = store.position()
    assert _newest(at) >= in_five_minutes
    storage.update("n/k", "w")
    assert _marks(store, at) == {b"n/k": True}


def test_a_write_after_the_position_is_marked_though_a_writer_elsewhere_is_ahead(
    open_scanner: OpenScanner, open_client: Open, admin: Admin, namespace: str
) -> None:
    storage, store = open_client(**PATIENT).storage(), open_scanner()
    storage.put_many({"n/k": "v", "other/k": "v"})
    in_five_minutes = time.time_ns() // 1000 + 5 * MINUTE
    admin.tell(
        "UPDATE kip30.records SET rev = %s WHERE root = %s AND namespace = 'other' IF rev > 0",
        in_five_minutes,
        namespace,
    )
    at = store.position()
    assert _newest(at) == in_five_minutes
    storage.update("n/k", "w")
    assert _marks(store, at)[b"n/k"]


def test_a_record_that_was_written_long_before_the_position_is_certain(
    open_scanner: OpenScanner, open_client: Open, admin: Admin, namespace: str
) -> None:
    open_client().storage().put("n/new", "v")
    now = time.time_ns() // 1000
    admin.tell(
        "INSERT INTO kip30.records (root, namespace, name, version, nonce, data)"
        " VALUES (%s, 'n', 'old', %s, 'nonce', 0x00) USING TIMESTAMP %s",
        namespace,
        now + 5 * MINUTE,  # by a client whose clock was ahead
        now - 5 * MINUTE,
    )
    store = open_scanner()
    at = store.position()
    assert _marks(store, at) == {b"n/new": True, b"n/old": False}
    former = Position(at.store, str(_newest(at)))  # as it was in runs of former versions
    assert _marks(store, former) == {b"n/new": True, b"n/old": True}


def _marks(store: ScanDriver, at: Position) -> dict[bytes, bool]:
    """Return for each record whether it may have changed after *at*."""
    marks = dict[bytes, bool]()
    for span in store.plan(at, 1_000):
        for page in store.scan(span, at):
            marks |= dict(zip(page.keys, store.changed_since(page, at), strict=True))
    return marks


def test_foreign_rows_are_rejected(
    open_scanner: OpenScanner, open_client: Open, admin: Admin, namespace: str
) -> None:
    open_client().storage().put("n/k", "v")
    for name, version in (("no version", None), ("a/b", 1)):
        admin.tell(
            "INSERT INTO kip30.records (root, namespace, name, version, data)"
            " VALUES (%s, 'n', %s, %s, 0x00)",
            namespace,
            name,
            version,
        )
    pages = [*pages_of(open_scanner(), 1_000)]
    assert [row.key for page in pages for row in page.rows] == [b"n/k"]
    rejected = sorted(one for page in pages for one in page.rejected)
    assert [one.key for one in rejected] == [b"n/a/b", b"n/no version"]
    assert "has no version" in rejected[1].reason


def test_foreign_claims_are_rejected(
    open_scanner: OpenScanner, open_client: Open, admin: Admin, namespace: str
) -> None:
    """A leader that cannot be read leads all the same, and a member is one."""
    client = open_client(**PATIENT)
    client.group_membership("g").join("m", "data")
    assert client.leader_election("s").nominate("c", "")
    admin.tell(
        "INSERT INTO kip30.members (root, in_group, id, version, data)"
        " VALUES (%s, 'g', 'x', 1, 0x00)",
        namespace,
    )
    admin.tell(
        "INSERT INTO kip30.leaders (root, service, seat, epoch, candidate)"
        " VALUES (%s, 'a/b', 0, 4, 'x')",
        namespace,
    )
    pages = [*pages_of(open_scanner(View(layout=Layout.CLAIMS)), 1_000)]
    assert {row.key for page in pages for row in page.rows} == {
        *(b"member/g/m", b"leader/s/c", b"epoch/s", b"epoch/a=2Fb")
    }
    member, leader = sorted(one for page in pages for one in page.rejected)
    assert (member.key, member.prefix) == (b"in_group = 'g' and id = 'x'", None)
    assert leader.key == b"service = 'a/b' and seat = 0 in table leaders"
    assert leader.prefix == b"leader/a=2Fb/"


@pytest.mark.parametrize("rows", [1, 2, 1_000])
def test_claims_of_many_groups_and_of_services_without_a_leader(
    open_scanner: OpenScanner, open_client: Open, rows: int
) -> None:
    client = open_client(**PATIENT)
    for number in range(5):
        client.group_membership("g").join(f"m{number}", "data")
    led, left = client.leader_election("led"), client.leader_election("left")
    for election in (led, left):
        election.nominate("c", "")
        assert election.wait_elected("c", 20 * time_scale())
    left.resign("c")
    claims = View(layout=Layout.CLAIMS)

    def seen() -> Counter[str]:
        return keys_of(rows_of(open_scanner(claims), rows))

    members = {f"member/g/m{number}" for number in range(5)}
    expected = Counter({*members, "leader/led/c", "epoch/led", "epoch/left"})
    assert eventually(lambda: seen() == expected, what="all claims are shown")
    store = open_scanner(View(layout=Layout.CLAIMS, under="epoch/le"))
    at = store.position()
    spans = [*store.plan(at, rows)]
    led.resign("c")
    epochs = {"epoch/led": 1, "epoch/left": 1}
    eventually(lambda: "leader/led/c" not in seen(), what="the service has no leader")
    found = [page for span in spans for page in store.scan(span, at)]
    assert keys_of(row for page in found for row in page.rows) == epochs
    assert keys_of(rows_of(store, rows)) == epochs


def test_an_expired_claim_is_not_shown(
    open_scanner: OpenScanner, open_client: Open, admin: Admin, namespace: str
) -> None:
    open_client()
    admin.tell(
        "INSERT INTO kip30.members (root, in_group, id, version, nonce, data)"
        " VALUES (%s, 'g', 'm', 1, 'nonce', 0x00) USING TTL 2",
        namespace,
    )
    store = open_scanner(View(layout=Layout.CLAIMS))
    (row,) = rows_of(store)
    assert (row.key, row.major, row.owner) == (b"member/g/m", 1, "nonce")
    eventually(lambda: not rows_of(store), what="it is gone")


def test_closed_in_the_middle_of_a_span(
    open_scanner: OpenScanner, open_client: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan_partitions, "PageSize", lambda: PageSize(3))
    open_client().storage().put_many({f"n/{number}": "v" for number in range(10)})
    store = open_scanner()
    at = store.position()
    (span,) = store.plan(at, 10)
    pages = store.scan(span, at)
    next(pages)
    store.close()
    with pytest.raises(ClosedError):
        next(pages)
