"""Bulk reading of kip30's own records, beside foreign ones, and what it leaves behind."""

from collections import Counter

import pytest

from kip30 import BYTES, ClosedError, InvalidNameError, PositionLostError
from kip30.driver.scanning import Layout, Row, View
from tests.unit.clients import PATIENT, Open

from .admin import Admin
from .scans import OpenScanner, pages, rejected, rows_of

LARGE = 256 * 1024
SEALED = bytes([1, *bytes(10)]) + b"v"


@pytest.mark.parametrize("rows", [1, 3, 1_000])
def test_foreign_keys_are_rejected(
    open_client: Open, open_scanner: OpenScanner, namespace: str, admin: Admin, rows: int
) -> None:
    client = open_client()
    client.storage().put("f/ours", "v")
    client.group_membership("g").join("m", "")
    foreign = ["f/theirs", "f", "f/", "f/ours/below", "f/=6", "f/a=2Fb", "=2Ff/k", "f/=", "=/", ""]
    for key in foreign:
        admin.put_exactly(f"{namespace}/kv/{key}", b"not of kip30" if key == "f/theirs" else SEALED)
    beside = ["kv", "", "values/k", "groups", "group", "service.old/leader"]
    for key in beside:
        admin.put_exactly(f"{namespace}/{key}", SEALED)
    admin.put(f"{namespace}/%FF", SEALED)
    found = pages(open_scanner(), rows)
    assert [row.key for row in rows_of(found)] == [b"f/ours"]
    names = [*(f"kv/{key}" for key in foreign), *beside, "\ufffd"]
    wanted = Counter(f"{namespace}/{name}".encode() for name in names)
    assert Counter(one.key for one in rejected(found)) == wanted
    reasons = Counter(one.reason.startswith("foreign: ") for one in rejected(found))
    assert reasons == {True: len(names) - 1, False: 1}


def test_a_row_has_the_data_version_and_indexes_of_its_key(
    open_client: Open, open_scanner: OpenScanner, namespace: str, admin: Admin
) -> None:
    storage = open_client().storage(BYTES)
    storage.put("é/k", b"1")
    version = storage.update("é/k", b"2")
    told = admin.get(f"{namespace}/kv/=C3=A9/k")
    (row,) = rows_of(pages(open_scanner()))
    created, modified = told["CreateIndex"], told["ModifyIndex"]
    assert created < modified
    assert row == Row("é/k".encode(), b"2", *version, created, modified, None)


def test_a_claim_that_no_session_holds_is_rejected(
    open_client: Open, open_scanner: OpenScanner, namespace: str, admin: Admin
) -> None:
    client = open_client()
    client.group_membership("g").join("m", "data")
    client.leader_election("s").nominate("c", "")
    session = admin.get(f"{namespace}/group/g/m")["Session"]
    admin.put_exactly(f"{namespace}/group/g/left", SEALED)
    admin.put_exactly(f"{namespace}/service/vacant/leader", SEALED)
    assert admin.take(f"{namespace}/service/a=2Fb/leader", session)
    found = pages(open_scanner(View(layout=Layout.CLAIMS)))
    rows = {row.key: row.owner for row in rows_of(found)}
    assert rows == {b"member/g/m": session, b"leader/s/c": session, b"epoch/s": None}
    assert {one.key: one.prefix for one in rejected(found)} == {
        f"{namespace}/group/g/left".encode(): None,
        f"{namespace}/service/vacant/leader".encode(): None,
        f"{namespace}/service/a=2Fb/leader".encode(): b"leader/a=2Fb/",
    }


@pytest.mark.parametrize(
    ("under", "keys"),
    [
        ("member/", [b"member/g/m"]),
        ("l", [b"leader/s/c"]),
        ("epoch/s", [b"epoch/s"]),
        ("epoch/t", []),
        ("none", []),
    ],
)
def test_part_of_the_claims(
    open_client: Open, open_scanner: OpenScanner, under: str, keys: list[bytes]
) -> None:
    client = open_client()
    client.group_membership("g").join("m", "data")
    client.leader_election("s").nominate("c", "")
    found = pages(open_scanner(View(layout=Layout.CLAIMS, under=under)))
    assert [row.key for row in rows_of(found)] == keys


def test_no_text_is_no_view(open_scanner: OpenScanner) -> None:
    for layout in Layout:
        with pytest.raises(InvalidNameError):
            open_scanner(View(layout=layout, under="\udc80"))


def test_many_keys_are_in_few_spans(open_client: Open, open_scanner: OpenScanner) -> None:
    storage = open_client(**PATIENT).storage()
    names = [f"n/{number:06d} é" for number in range(5_000)]
    for first in range(0, len(names), 1_000):
        storage.put_many(dict.fromkeys(names[first : first + 1_000], ""))
    store = open_scanner()
    at = store.position()
    plan = list(store.plan(at, 1_000_000))
    assert [span.rows for span in plan] == [1_000] * 5
    found = [page for span in plan for page in store.scan(span, at)]
    assert Counter(row.key.decode() for row in rows_of(found)) == Counter(names)


def test_large_values_make_small_spans(open_client: Open, open_scanner: OpenScanner) -> None:
    """One answer brings a span: its size is limited as well, by the largest value of a sample."""
    storage = open_client(**PATIENT).storage(BYTES)
    values = {f"n/{number}": bytes([number]) * LARGE for number in range(200)}
    for key, value in values.items():
        storage.put(key, value)
    store = open_scanner()
    at = store.position()
    plan = list(store.plan(at, 1_000_000))
    assert max(span.rows for span in plan) * LARGE <= 32 * 1024 * 1024
    found = [page for span in plan for page in store.scan(span, at)]
    assert {row.key.decode(): row.data for row in rows_of(found)} == values


@pytest.mark.parametrize("rows", [1, 2, 1_000])
def test_keys_deleted_after_the_plan_are_left_out(
    open_client: Open, open_scanner: OpenScanner, rows: int
) -> None:
    storage = open_client().storage()
    storage.put_many(dict.fromkeys(("d/a", "d/ab", "d/b", "e/a"), "v"))
    store = open_scanner()
    at = store.position()
    plan = list(store.plan(at, rows))
    storage.delete("d/a")
    storage.delete("e/a")
    storage.put("d/abc", "new")
    found = [page for span in plan for page in store.scan(span, at)]
    keys = Counter(row.key for row in rows_of(found))
    assert keys - Counter([b"d/abc"]) == Counter([b"d/ab", b"d/b"])
    assert keys[b"d/abc"] <= 1
    assert rejected(found) == []


def test_a_store_that_is_behind_the_position_has_lost_it(
    open_client: Open, open_scanner: OpenScanner
) -> None:
    open_client().storage().put("n/k", "v")
    store = open_scanner()
    at = store.position()
    (span,) = store.plan(at, 10)
    ahead = at._replace(at=str(int(at.at) + 1_000_000))
    for read in (lambda: list(store.plan(ahead, 10)), lambda: list(store.scan(span, ahead))):
        with pytest.raises(PositionLostError, match="restored"):
            read()


def test_a_position_outlasts_deletions(
    open_client: Open, open_scanner: OpenScanner, admin: Admin
) -> None:
    """An index is that of all keys: that of a prefix goes back once its deletions are forgotten."""
    storage = open_client().storage()
    storage.put("n/k", "v")
    storage.put("n/l", "v")
    storage.delete("n/l")
    storage.put("n/m", "v")
    store = open_scanner()
    newest = max(one["ModifyIndex"] for one in admin.tell("GET", "kv/?recurse&consistent"))
    assert int(store.position().at) >= newest
    storage.delete("n/m")
    assert int(store.position().at) > newest


def test_closed_in_the_middle_of_a_span(open_client: Open, open_scanner: OpenScanner) -> None:
    storage = open_client(**PATIENT).storage()
    storage.put_many({f"n/{number}": "v" for number in range(600)})
    store = open_scanner()
    at = store.position()
    (span,) = store.plan(at, 1_000)
    left = store.scan(span, at)
    assert next(left).rows
    store.close()
    with pytest.raises(ClosedError):
        next(left)


def test_nothing_is_written_and_no_session_opened(
    open_client: Open, open_scanner: OpenScanner, admin: Admin
) -> None:
    client = open_client()
    client.storage().put("n/k", "v")
    client.close()
    admin.tell("PUT", "catalog/deregister", {"Node": "kip30-sessions"})
    before = admin.nodes(), admin.sessions(), index(admin)
    for layout in Layout:
        pages(open_scanner(View(layout=layout)))
    assert (admin.nodes(), admin.sessions(), index(admin)) == before
    assert "kip30-sessions" not in before[0]


def index(admin: Admin) -> list[int]:
    """Return when anything was written last, and each key."""
    keys = admin.tell("GET", "kv/?recurse&consistent")
    return [key[field] for key in keys for field in ("ModifyIndex", "LockIndex")]
