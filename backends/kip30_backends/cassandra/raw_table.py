"""One table of another program, with a key and a value: by arcs of the ring, as it is."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence

from kip30.driver.scanning import Page, PageSize, Span
from kip30.driver.scanning import Row as Record
from kip30.errors import StoreError
from kip30_backends.cassandra.library import Row
from kip30_backends.cassandra.ring import FIRST, LAST, walk
from kip30_backends.cassandra.scan_calls import ScanCalls

DEFAULT = "kv"
_TYPES = {"text", "blob"}
_KINDS = ["partition_key", "regular"]
_KEYS = 5_000


class RawTable:
    """The records of one table."""

    def __init__(self, calls: ScanCalls, table: str, columns: Sequence[Row]) -> None:
        """Read *table*, which has *columns*.

        Raises:
            StoreError: It is not there, or has other columns than a key and a value.
        """
        self._ask = calls.ask
        key, value = _key_and_value(f"{calls.keyspace}.{table}", columns)
        here = f'FROM {calls.keyspace}."{table}"'
        ring = f"token({key})"
        between = f"{here} WHERE {ring} >= ? AND {ring} <= ? LIMIT ?"
        rows = f"{key} AS key, {value} AS value, WRITETIME({value}) AS written, {ring} AS ring"
        self._statements = calls.prepare(
            {
                "keys": f"SELECT {key} AS key, {ring} AS ring {between}",
                "rows": f"SELECT {rows} {between}",
            }
        )

    def newest(self) -> int:
        """Return 0: what wrote the table numbers nothing."""
        return 0

    def plan(self, rows: int) -> Iterator[Span]:
        """Yield arcs of about *rows* rows; rows with the same token are in the same one."""
        first, end, size = FIRST, FIRST, 0
        for found in self._walk("keys", (FIRST, LAST), lambda: _KEYS):
            for row in found:
                if size >= rows and row["ring"] != end:
                    yield _span(first, end, size)
                    first, size = end + 1, 0
                end, size = row["ring"], size + 1
        if size:
            yield _span(first, LAST, size)

    def scan(self, token: bytes) -> Iterator[Page]:
        """Yield what is in the span of *token*."""
        first, last = json.loads(token)
        size = PageSize()
        for found in self._walk("rows", (first, last), lambda: size.rows):
            page = Page.of(map(_record, found))
            size.adapt(page)
            if page.keys:
                yield page

    def _walk(
        self, what: str, arc: tuple[int, int], limit: Callable[[], int]
    ) -> Iterator[Sequence[Row]]:
        def read(first: int, last: int, most: int) -> Sequence[Row]:
            return self._ask(self._statements.bind(what, first, last, most))

        return walk(read, arc, limit, lambda row: row["key"])


def _span(first: int, last: int, rows: int) -> Span:
    return Span(json.dumps([first, last]).encode(), rows)


def _record(row: Row) -> Record:
    written: int | None = row["written"]  # None where there is no value
    key, value = _bytes(row["key"]) or b"", _bytes(row["value"])
    return Record(key, value, written or 0, 0, None, written, None)


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _key_and_value(table: str, columns: Iterable[Row]) -> tuple[str, str]:
    """Return what the two columns of *table* are called, in quotes."""
    ordered = sorted(columns, key=lambda row: (row["kind"], row["column_name"]))
    if not ordered:
        raise StoreError(f"there is no table {table}: `View.under` names the table to be read")
    kinds = [row["kind"] for row in ordered]
    if kinds != _KINDS or not _TYPES.issuperset(row["type"] for row in ordered):
        shape = ", ".join(f"{row['column_name']} {row['type']} ({row['kind']})" for row in ordered)
        raise StoreError(
            f"{table} has the columns {shape}: only a table of one text or blob key and one text or"
            " blob value is read as it is. Spark's Cassandra connector reads any table"
        )
    key, value = (_quoted(row["column_name"]) for row in ordered)
    return key, value


def _quoted(name: str) -> str:
    return '"{}"'.format(name.replace('"', '""'))
