"""Reading tables in bulk that kip30 did not make."""

import os
import time
from collections.abc import Callable, Iterator

import pytest

from kip30 import PositionLostError, StoreError
from kip30.driver.scanning import Layout, PageSize, ScanDriver, View
from kip30_backends.cassandra import scanning

from .admin import Admin
from .scans import OpenScanner, is_there, located, rows_of, sizes_of

KEYSPACE = f"raw_tables_{os.getpid()}"
ROWS = 40
MINUTE = 60_000_000

OpenRaw = Callable[[str], ScanDriver]


@pytest.fixture(scope="module", autouse=True)
def raw(admin: Admin) -> Iterator[None]:
    """Create a keyspace for tables of any shape."""
    admin.tell(
        f"CREATE KEYSPACE {KEYSPACE} WITH replication ="
        " {'class': 'SimpleStrategy', 'replication_factor': 1}"
    )
    yield
    admin.tell(f"DROP KEYSPACE {KEYSPACE}")


@pytest.fixture
def open_raw(open_scanner: OpenScanner) -> OpenRaw:
    return lambda table: open_scanner(View(layout=Layout.RAW, under=table), **located(KEYSPACE))


@pytest.mark.parametrize("limit", [1, 5, 5_000])
def test_keys_and_values_as_they_are(
    open_raw: OpenRaw,
    admin: Admin,
    monkeypatch: pytest.MonkeyPatch,
    limit: int,
) -> None:
    admin.tell(f"CREATE TABLE IF NOT EXISTS {KEYSPACE}.kv (key text PRIMARY KEY, value text)")
    for number in range(ROWS):
        admin.tell(
            f"INSERT INTO {KEYSPACE}.kv (key, value) VALUES (%s, %s) USING TIMESTAMP %s",  # noqa: S608  the test's own name
            f"k/{number}/é",
            f"v{number}",
            number + 1,
        )
    admin.tell(f"INSERT INTO {KEYSPACE}.kv (key) VALUES ('no value')")  # noqa: S608  the test's own name
    monkeypatch.setattr(scanning, "PageSize", lambda: PageSize(limit))
    monkeypatch.setattr(scanning, "_KEYS", limit)
    store = open_raw("")
    for rows in (1, 7, ROWS + 1, 1_000):
        found = {row.key.decode(): row for row in rows_of(store, rows)}
        assert len(found) == sum(sizes_of(store, rows)) == ROWS + 1
        none = found.pop("no value")
        assert (none.data, none.modified) == (None, None)
        for number in range(ROWS):
            row = found[f"k/{number}/é"]
            assert (row.data, row.modified) == (f"v{number}".encode(), number + 1)
    assert sizes_of(store, 7)[:-1] == [7] * 5


def test_rows_written_after_the_position_are_marked_though_the_clock_here_is_ahead(
    open_raw: OpenRaw, admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, now = f"{KEYSPACE}.moving", time.time_ns() // 1000
    admin.tell(f"CREATE TABLE {table} (key text PRIMARY KEY, value text)")
    insert = f"INSERT INTO {table} (key, value) VALUES (%s, 'v')"  # noqa: S608  the test's own name
    admin.tell(f"{insert} USING TIMESTAMP %s", "old", now - 5 * MINUTE)
    admin.tell(f"INSERT INTO {table} (key) VALUES ('no value')")  # noqa: S608  the test's own name
    store = open_raw("moving")
    with monkeypatch.context() as patched:
        patched.setattr(time, "time_ns", lambda: 1000 * (now + 5 * MINUTE))
        at = store.position()
    admin.tell(insert, "new")
    (span,) = store.plan(at, 10)
    (page,) = store.scan(span, at)
    marks = dict(zip(page.keys, store.changed_since(page, at), strict=True))
    assert marks == {b"old": False, b"new": True, b"no value": True}


def test_blobs_in_columns_of_any_name(open_raw: OpenRaw, admin: Admin) -> None:
    admin.tell(f'CREATE TABLE {KEYSPACE}."Odd" ("the $ ""key" blob PRIMARY KEY, "select" blob)')
    admin.tell(f'INSERT INTO {KEYSPACE}."Odd" ("the $ ""key", "select") VALUES (0xff00, 0x)')  # noqa: S608  the test's own name
    (row,) = rows_of(open_raw("Odd"))
    assert (row.key, row.data) == (b"\xff\x00", b"")


@pytest.mark.parametrize(
    ("columns", "named"),
    [
        ("key text, part text, value text, PRIMARY KEY (key, part)", r"part text \(cluster"),
        ("key text, more text, value text, PRIMARY KEY ((key, more))", "more text"),
        ("key int PRIMARY KEY, value text", r"key int \(partition_key\)"),
        ("key text PRIMARY KEY, value text, other text", "other text"),
        ("key text PRIMARY KEY, value counter", "value counter"),
        ("key text PRIMARY KEY", "key text"),
    ],
)
def test_a_table_of_another_shape(
    open_raw: OpenRaw,
    admin: Admin,
    columns: str,
    named: str,
) -> None:
    admin.tell(f"DROP TABLE IF EXISTS {KEYSPACE}.other")
    admin.tell(f"CREATE TABLE {KEYSPACE}.other ({columns})")
    with pytest.raises(StoreError, match=f"{named}.*Spark's Cassandra connector"):
        open_raw("other")


def test_a_table_that_is_not_there(
    open_raw: OpenRaw, open_scanner: OpenScanner, admin: Admin
) -> None:
    with pytest.raises(StoreError, match=rf"there is no table {KEYSPACE}\.absent"):
        open_raw("absent")
    with pytest.raises(StoreError, match=r"there is no table absent\.kv"):
        open_scanner(View(layout=Layout.RAW), **located("absent"))
    assert not is_there(admin, "absent")


def test_a_table_that_is_made_again(open_raw: OpenRaw, admin: Admin) -> None:
    admin.tell(f"CREATE TABLE {KEYSPACE}.again (key text PRIMARY KEY, value text)")
    admin.tell(f"INSERT INTO {KEYSPACE}.again (key, value) VALUES ('k', 'v')")  # noqa: S608  the test's own name
    store = open_raw("again")
    at = store.position()
    (span,) = store.plan(at, 10)
    admin.tell(f"DROP TABLE {KEYSPACE}.again")
    with pytest.raises(PositionLostError):
        list(store.scan(span, at))
    admin.tell(f"CREATE TABLE {KEYSPACE}.again (key blob PRIMARY KEY, value text)")
    with pytest.raises(PositionLostError):
        list(store.scan(span, at))
    assert rows_of(store) == []
