"""Scanners of a store, and the records that they return."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Protocol

from kip30.config import Written
from kip30.driver.scanning import Page, Row, ScanDriver, View

from .admin import Admin

EVERYTHING = View()


class OpenScanner(Protocol):
    """Opens a scanner of *view*; it is closed when the test ends."""

    def __call__(self, view: View = ..., /, **more: Written) -> ScanDriver: ...


def located(keyspace: str) -> dict[str, Written]:
    """Return the setting that names *keyspace*."""
    return {"plugin.cassandra.keyspace": keyspace}


def pages_of(store: ScanDriver, rows: int) -> Iterator[Page]:
    """Read the whole view of *store* in spans of *rows* rows."""
    at = store.position()
    for span in [*store.plan(at, rows)]:
        yield from store.scan(span, at)


def rows_of(store: ScanDriver, rows: int = 1_000) -> list[Row]:
    """Return the records of the whole view of *store*; none may be rejected."""
    pages = [*pages_of(store, rows)]
    assert [one for page in pages for one in page.rejected] == []
    return [row for page in pages for row in page.rows]


def sizes_of(store: ScanDriver, rows: int) -> list[int]:
    """Return the number of rows of each span, according to the plan."""
    return [span.rows for span in store.plan(store.position(), rows)]


def keys_of(rows: Iterable[Row]) -> Counter[str]:
    """Return the keys of *rows*."""
    return Counter(row.key.decode() for row in rows)


def is_there(admin: Admin, keyspace: str) -> bool:
    """Return whether *keyspace* exists."""
    found = "SELECT * FROM system_schema.keyspaces WHERE keyspace_name = %s"
    return bool(admin.tell(found, keyspace))
