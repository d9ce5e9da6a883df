"""Rows that another program has written are left out, named, and hide no record."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kip30.driver.records import Claim, Condition, Fence, Kind, Snapshot, Target, Write
from kip30.errors import StoreError
from kip30.names import Key
from kip30_backends.embedded import EmbeddedBackend

NAMESPACE, GROUP = Target(Kind.NAMESPACE, "ns"), Target(Kind.GROUP, "g")
SERVICE = Target(Kind.SERVICE, "s")
Sql = Callable[[str], None]

ROWS = {
    "data is text": ("x'62'", "5", "'n'", "'text'"),
    "data is a number": ("x'62'", "5", "'n'", "7"),
    "data is text in no encoding": ("x'62'", "5", "'n'", "CAST(x'ff' AS TEXT)"),
    "nonce is a blob": ("x'62'", "5", "x'00'", "x'00'"),
    "version is text": ("x'62'", "'v'", "'n'", "x'00'"),
    "name is text": ("'b'", "5", "'n'", "x'00'"),
    "name is not UTF-8": ("x'ff62'", "5", "'n'", "x'00'"),
    "name is text in no encoding": ("CAST(x'ff' AS TEXT)", "5", "'n'", "x'00'"),
}
NO_NAMES = {
    "name is text": "'b'",
    "name is not UTF-8": "\\xffb",
    "name is text in no encoding": "b'\\xff'",
}
rows = pytest.mark.parametrize("row", ROWS)


@pytest.fixture
def sql(directory: Path) -> Iterator[Sql]:
    with closing(sqlite3.connect(directory / "kip30.db", timeout=10)) as connection:

        def execute(statement: str) -> None:
            with connection:
                connection.execute(statement)

        yield execute


def put(backend: EmbeddedBackend, name: str, data: bytes = b"1") -> None:
    backend.storage.write(Write(Key("ns", name), "n", data, Condition.ANY)).result()


def insert(sql: Sql, row: str, root: str = "1") -> None:
    name, *rest = ROWS[row]
    columns = "root, namespace, name, rev, nonce, data"
    sql(f"INSERT INTO kv ({columns}) VALUES ({root}, x'6e73', {name}, {', '.join(rest)})")  # noqa: S608


def test_a_value_that_is_no_record_is_refused_by_name(backend: EmbeddedBackend, sql: Sql) -> None:
    put(backend, "a")
    for row in list(ROWS)[:5]:
        insert(sql, row)
        with pytest.raises(StoreError, match="the record of 'ns/b' cannot be read: its "):
            backend.storage.read([Key("ns", "b")]).result()
        state = backend.observe.snapshot(Target(Kind.VALUE, "ns", "b")).result()
        assert (state.entries, list(state.unreadable)) == ({}, ["b"])
        assert backend.storage.read([Key("ns", "a")]).result()[0]
        sql("DELETE FROM kv WHERE name = x'62'")


def test_an_unreadable_record_can_be_replaced_and_deleted(
    backend: EmbeddedBackend, sql: Sql
) -> None:
    for row in list(ROWS)[:5]:
        insert(sql, row)
        put(backend, "b", b"new")
        (entry,) = backend.storage.read([Key("ns", "b")]).result()
        assert entry is not None
        assert entry.data == b"new"
        sql("DELETE FROM kv")
        insert(sql, row)
        write = Write(Key("ns", "b"), "n", None, Condition.ANY)
        backend.storage.write(write).result()
        assert backend.storage.read([Key("ns", "b")]).result() == [None]


@rows
def test_a_namespace_is_listed_without_names_that_are_none(
    backend: EmbeddedBackend, sql: Sql, row: str
) -> None:
    put(backend, "a")
    insert(sql, row)
    put(backend, "c")
    names = ["a", "c"] if row in NO_NAMES else ["a", "b", "c"]
    page = backend.storage.list_names("ns", "", 3).result()
    assert (page.names, page.is_last) == (names, True)
    state = backend.observe.snapshot(NAMESPACE).result()
    assert list(state.entries) == names
    assert list(state.unreadable) == ([NO_NAMES[row]] if row in NO_NAMES else [])


def test_a_page_is_never_empty_before_the_end(backend: EmbeddedBackend, sql: Sql) -> None:
    sql(
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000)"
        " INSERT INTO kv SELECT 1, x'6e73', CAST(x'ff' || i AS BLOB), i, 'n', x'' FROM n"
    )
    sql("INSERT INTO kv VALUES (1, x'6e73', x'41ff', 9, 'n', x'')")
    put(backend, "z")
    put(backend, "A")
    page = backend.storage.list_names("ns", "", 1).result()
    assert (page.names, page.is_last) == (["A"], False)
    page = backend.storage.list_names("ns", "A", 1).result()
    assert (page.names, page.is_last) == (["z"], True)
    page = backend.storage.list_names("ns", "z", 1).result()
    assert (page.names, page.is_last) == ([], True)


@rows
def test_listeners_of_others_go_on(
    backend: EmbeddedBackend, sql: Sql, eventually: Any, row: str
) -> None:
    seen: list[Snapshot] = []
    backend.observe.watch(NAMESPACE, seen.append)
    eventually(lambda: seen)
    insert(sql, row)
    name = ROWS[row][0]
    sql(f"INSERT INTO change (root, kind, scope, name) VALUES (1, 1, x'6e73', {name})")  # noqa: S608
    sql("INSERT INTO change (root, kind, scope, name) VALUES (1, 77, x'6e73', x'62')")
    put(backend, "a")
    more = set() if row in NO_NAMES else {"b"}
    eventually(lambda: set(seen[-1].entries) == {"a"} | more)
    unreadable = [NO_NAMES[row]] if row in NO_NAMES else []
    assert list(seen[-1].unreadable) == unreadable
    before = len(seen)
    put(backend, "a", b"2")
    put(backend, "c")
    eventually(lambda: set(seen[-1].entries) == {"a", "c"} | more)
    assert list(seen[-1].unreadable) == unreadable
    assert seen[-1].delta is not None
    assert len(seen) == before + 1
    sql(f"DELETE FROM kv WHERE name = {name}")  # noqa: S608
    sql("INSERT INTO change (root, kind, scope, name) VALUES (1, 1, x'6e73', 'b')")
    put(backend, "d")
    eventually(lambda: set(seen[-1].entries) == {"a", "c", "d"} and not seen[-1].unreadable)


def test_a_member_that_is_no_record_hides_no_other(
    backend: EmbeddedBackend, sql: Sql, eventually: Any
) -> None:
    seen: list[Snapshot] = []
    backend.observe.watch(GROUP, seen.append)
    backend.membership.claim("g", "a", "n", b"").result()
    sql("INSERT INTO member SELECT 1, scope, x'ff', 1, 'n', x'', 1, session FROM member")
    sql("INSERT INTO member SELECT 1, scope, x'62', 1, 'n', 'x', 1, session FROM member LIMIT 1")
    backend.membership.claim("g", "c", "n", b"").result()
    # In any order: what changed between two looks is read name by name, from a set.
    eventually(lambda: seen and set(seen[-1].entries) == {"a", "c"})
    state = backend.observe.snapshot(GROUP).result()
    assert list(state.entries) == ["a", "c"]
    assert state.unreadable == {"\\xff": "its name is not UTF-8", "b": "its data is text"}
    one = backend.observe.snapshot(Target(Kind.MEMBER, "g", "b")).result()
    assert one.unreadable == {"b": "its data is text"}


def test_a_leader_that_is_no_record_leads_and_is_named(backend: EmbeddedBackend, sql: Sql) -> None:
    claim = backend.election.claim("s", "c", "n", b"").result()
    assert isinstance(claim, Claim)
    for change in ("candidate = x'ff'", "candidate = x'63', data = 7"):
        sql(f"UPDATE service SET {change}")  # noqa: S608
        with pytest.raises(StoreError, match="the leader of 's' cannot be read"):
            backend.election.claim("s", "other", "m", b"").result()
        state = backend.observe.snapshot(SERVICE).result()
        assert (dict(state.entries), len(state.unreadable)) == ({}, 1)
    backend.election.release("s", claim).result()
    again = backend.election.claim("s", "other", "m", b"").result()
    assert isinstance(again, Claim)
    assert again.entry.version.major == 2


def test_an_epoch_that_is_none_is_named(backend: EmbeddedBackend, sql: Sql) -> None:
    sql("INSERT INTO service (root, scope, epoch, rev) VALUES (1, x'73', 'new', 1)")
    with pytest.raises(StoreError, match="the epoch of 's'"):
        backend.election.claim("s", "c", "n", b"").result()
    assert isinstance(backend.election.claim("t", "c", "n", b"").result(), Claim)
    fenced = Write(Key("ns", "a"), "n", b"", Condition.ANY, Fence("t", 1))
    backend.storage.write(fenced).result()


def test_a_session_that_is_none_keeps_no_other_from_opening(
    backend: EmbeddedBackend, sql: Sql
) -> None:
    sql(f"INSERT INTO session VALUES ('x', '{backend._resources.liveness.boot}', 'never', 1)")  # noqa: S608
    assert isinstance(backend.election.claim("s", "c", "n", b"").result(), Claim)


def test_columns_of_a_later_kip30_do_no_harm(backend: EmbeddedBackend, sql: Sql) -> None:
    put(backend, "a")
    for table in ("kv", "member", "service", "session", "change"):
        sql(f"ALTER TABLE {table} ADD COLUMN later TEXT DEFAULT 'x'")
    put(backend, "b")
    put(backend, "a", b"2")
    backend.membership.claim("g", "m", "n", b"").result()
    assert isinstance(backend.election.claim("s", "c", "n", b"").result(), Claim)
    assert list(backend.observe.snapshot(NAMESPACE).result().entries) == ["a", "b"]
    assert list(backend.observe.snapshot(GROUP).result().entries) == ["m"]
