"""Bulk reading of keys that others write, with names of any bytes."""

from collections import Counter

import pytest

from kip30.driver.scanning import Layout, View

from .admin import Admin
from .scans import OpenScanner, pages, rejected, rows_of

STRANGE = [
    *("s/a", "s/a/../b", "s/a/./b", "s/..", "s/a%2Fb", "s/a%252Fb", "s/a b", "s/ a ", "s/a//b"),
    *("s/", "s//", "s/a?b#c&d=e", "s/a\nb", "s/a\0b", "s/é", "s/e\u0301", "s/\U0001f511", "s/ÿ"),
    *("s/\ufffd", "s/\\ufffd", "s/éa", 's/"<&>', "s/\U0010ffff", "s/\x7f", "s/" + "k" * 2_000),
]
PREFIXES = ["s", "s/a", "s/a/..", "s/a%", "s/a ", "s/a//", "s//", "s/é", "s/\U0001f511", "s/\ufffd"]
NOT_UTF_8 = ["s/%FF", "s/%FE", "s/x%C3y", "s/x%C3z", "s/%C3%A9%FF"]
REASON = "the key is not UTF-8, and Consul's answers do not say what it is"


@pytest.fixture
def raw(namespace: str, admin: Admin) -> str:
    """Return a prefix of keys, some of which are not as kip30 writes them."""
    for key in STRANGE:
        admin.put_exactly(f"{namespace}/{key}", key.encode())
    for key in NOT_UTF_8:
        admin.put(f"{namespace}/{key}", b"lost")
    return f"{namespace}/"


@pytest.mark.parametrize("rows", [1, 2, 5, 1_000])
def test_raw_keys_are_as_they_are(open_scanner: OpenScanner, raw: str, rows: int) -> None:
    found = pages(open_scanner(View(layout=Layout.RAW, under=raw)), rows)
    assert Counter(row.key for row in rows_of(found)) == Counter(
        f"{raw}{key}".encode() for key in STRANGE
    )
    assert {row.key: row.data for row in rows_of(found)} == {
        f"{raw}{key}".encode(): key.encode() for key in STRANGE
    }
    assert Counter(one.reason for one in rejected(found)) == {REASON: len(NOT_UTF_8)}


@pytest.mark.parametrize("rows", [1, 1_000])
@pytest.mark.parametrize("under", PREFIXES)
def test_part_of_the_raw_keys(open_scanner: OpenScanner, raw: str, under: str, rows: int) -> None:
    found = pages(open_scanner(View(layout=Layout.RAW, under=f"{raw}{under}")), rows)
    assert Counter(row.data for row in rows_of(found)) == Counter(
        key.encode() for key in STRANGE if key.startswith(under)
    )


@pytest.mark.parametrize("rows", [1, 1_000])
def test_all_raw_keys(open_scanner: OpenScanner, raw: str, admin: Admin, rows: int) -> None:
    ident = admin.tell("PUT", "session/create", {"Behavior": "delete"})["ID"]
    assert admin.take(f"{raw}held", ident)
    found = pages(open_scanner(View(layout=Layout.RAW)), rows)
    keys = Counter(row.key.decode() for row in rows_of(found))
    assert set(keys.values()) == {1}
    assert keys.keys() >= {f"{raw}{key}" for key in STRANGE}
    assert {row.owner for row in rows_of(found) if row.key == f"{raw}held".encode()} == {ident}
    assert {row.owner for row in rows_of(found) if row.key == f"{raw}s/a".encode()} == {None}


def test_names_of_many_characters_share_spans(open_scanner: OpenScanner, admin: Admin) -> None:
    names = [chr(0x4E00 + number) for number in range(150)] + [chr(0x1F600 + n) for n in range(50)]
    for name in names:
        admin.put_exactly(f"wide/{name}/k", b"v")
    store = open_scanner(View(layout=Layout.RAW, under="wide/"))
    at = store.position()
    plan = list(store.plan(at, 100))
    assert len(plan) == 4  # of 64 operations each
    found = [page for span in plan for page in store.scan(span, at)]
    assert Counter(row.key.decode() for row in rows_of(found)) == Counter(
        f"wide/{name}/k" for name in names
    )


def test_long_keys_fit_into_their_requests(open_scanner: OpenScanner, admin: Admin) -> None:
    names = [f"long/{letter * 20_000}" for letter in "abcdefghijklmnopqrstuvwxyz012345"]
    for name in names:
        admin.put_exactly(name, b"v")
    found = pages(open_scanner(View(layout=Layout.RAW, under="long/")), 31)
    assert Counter(row.key.decode() for row in rows_of(found)) == Counter(names)
