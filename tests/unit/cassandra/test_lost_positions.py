"""Positions of keyspaces that are dropped, and made again: under the same id, by their names."""

from collections.abc import Callable

import pytest

from kip30 import PositionLostError
from kip30.driver.scanning import PageSize
from kip30_backends.cassandra import scan_partitions
from tests.unit.clients import PATIENT, Open

from .admin import Admin
from .scans import OpenScanner, is_there, located, rows_of

Drop = Callable[[], None]


@pytest.fixture(params=["dropped", "made again"])
def end(request: pytest.FixtureRequest) -> str:
    """Yield what becomes of a keyspace."""
    how: str = request.param
    return how


@pytest.fixture
def drop(end: str, open_client: Open, admin: Admin, keyspace: str) -> Drop:
    """Return what drops the keyspace, and makes it again in one of two cases."""

    def do() -> None:
        admin.tell(f"DROP KEYSPACE {keyspace}")
        if end == "made again":
            _fill(open_client, keyspace, "another")

    return do


def _fill(open_client: Open, keyspace: str, value: str) -> None:
    with open_client(**PATIENT, **located(keyspace)) as client:
        client.storage().put_many({f"n/{number}": value for number in range(10)})


def test_between_plan_and_scan(
    open_scanner: OpenScanner, open_client: Open, admin: Admin, keyspace: str, drop: Drop
) -> None:
    _fill(open_client, keyspace, "v")
    store = open_scanner(**located(keyspace))
    at = store.position()
    (span,) = store.plan(at, 10)
    drop()
    for lost in (lambda: list(store.scan(span, at)), lambda: list(store.plan(at, 10))):
        with pytest.raises(PositionLostError):
            lost()
    is_again = is_there(admin, keyspace)
    assert [row.data for row in rows_of(store)] == (10 * [b"another"] if is_again else [])


def test_in_the_middle_of_a_span(
    open_scanner: OpenScanner,
    open_client: Open,
    keyspace: str,
    drop: Drop,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scan_partitions, "PageSize", lambda: PageSize(3))
    _fill(open_client, keyspace, "v")
    store = open_scanner(**{**located(keyspace), "plugin.operation.timeout.ms": 3_000})
    at = store.position()
    (span,) = store.plan(at, 10)
    pages = store.scan(span, at)
    next(pages)
    drop()
    with pytest.raises(PositionLostError):
        list(pages)


def test_altered_tables_are_the_same(
    open_scanner: OpenScanner, open_client: Open, admin: Admin, keyspace: str
) -> None:
    _fill(open_client, keyspace, "v")
    store = open_scanner(**located(keyspace))
    at = store.position()
    (span,) = store.plan(at, 10)
    for change in ("WITH comment = 'altered'", "ADD remark text", "DROP remark"):
        admin.tell(f"ALTER TABLE {keyspace}.records {change}")
        assert len([row for page in store.scan(span, at) for row in page.rows]) == 10
