"""Reading a keyspace in bulk, at a quorum: without a session, and without making anything.

A table of another program, with a key and a value, is read as it is, by arcs of the ring.
"""

import json
import time
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from typing_extensions import override

from kip30.driver import Context
from kip30.driver.scanning import (
    Change,
    Consistency,
    Layout,
    Page,
    PageSize,
    Position,
    ScanDriver,
    Span,
    View,
    check_rows,
)
from kip30.driver.scanning import Row as Record
from kip30.errors import ClosedError, PositionLostError, StoreError, UnsupportedError
from kip30_backends.cassandra.client.library import Row
from kip30_backends.cassandra.client.statements import FIRST, LAST, walk
from kip30_backends.cassandra.scan_request import ScanCalls
from kip30_backends.cassandra.scan_tables import KeptTables, tables_of
from kip30_backends.cassandra.settings import CassandraSettings

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


_MICROSECONDS = 1_000


_Reading = KeptTables | RawTable


class _Opened(NamedTuple):
    """The tables as they were when they were found, and what reads them."""

    store: str
    reading: _Reading


class CassandraScanner(ScanDriver):
    """One keyspace. No request is under way while no method is."""

    consistency = Consistency.FUZZY
    under_is_prefix = False  # it names a table

    def __init__(self, context: Context, settings: CassandraSettings, view: View) -> None:
        """Connect.

        Raises:
            ConfigError: Settings contradict each other, or a file cannot be read. Nothing is sent.
            AuthenticationError: The cluster wants other credentials.
            StoreError: Its servers are too old, or their partitioner is not the usual one. Or the
                view is of `Layout.RAW`, and its table is not there or has other columns.
            UnavailableError: No node answered in the connect timeout.
        """
        self._view = view
        self._tables = [view.under or DEFAULT] if _is_raw(view) else tables_of(view)
        self._opened: _Opened | None = None
        self._closed = False
        self._calls = ScanCalls(context, settings)
        try:
            if _is_raw(view):
                self._open()
        except BaseException:
            self.close()
            raise

    @override
    def position(self) -> Position:
        """Return the time of day in microseconds, or the newest version if that is greater.

        Versions are such times by the clocks of the clients that wrote, so one of these may be
        ahead. Each partition is asked for its own.
        """
        opened = self._open()
        at = max(time.time_ns() // _MICROSECONDS, opened.reading.newest())
        return Position(opened.store, str(at))

    @override
    def plan(self, at: Position, rows: int) -> Iterator[Span]:
        check_rows(rows)
        with self._reading(at) as reading:
            yield from reading.plan(rows)

    @override
    def scan(self, span: Span, at: Position) -> Iterator[Page]:
        with self._reading(at) as reading:
            yield from reading.scan(span.token)

    @override
    def changed_since(self, page: Page, at: Position) -> Sequence[bool]:
        # Versions and times of writing are both microseconds, and a version is never before its
        # writing. A raw table has no versions.
        newest = int(at.at)
        written = zip(page.majors, page.modified, strict=True)
        return [max(major, modified or 0) > newest for major, modified in written]

    @override
    def changes(self, after: Position, until: Position) -> Iterator[Sequence[Change]]:
        raise UnsupportedError("Cassandra keeps no log of changes that kip30 could read")

    @override
    def close(self) -> None:
        self._closed = True
        self._calls.close()

    @contextmanager
    def _reading(self, at: Position) -> Generator[_Reading]:
        """Check before and after the block that the tables are those that *at* is a moment of."""
        opened = self._open(at)
        try:
            yield opened.reading
        except StoreError:
            self._open(at)
            raise
        self._open(at)

    def _open(self, at: Position | None = None) -> _Opened:
        """Look which tables are there, and prepare to read them unless that was done."""
        if self._closed:
            raise ClosedError("this scanner is closed: open another one")
        columns = self._calls.columns(self._tables)
        store = self._identity(columns)
        if at is not None and at.store != store:
            raise PositionLostError(
                f"the position is of {at.store}, and this is {store}: the number of a table is"
                " another one when it was made again"
            )
        if self._opened is None or self._opened.store != store:
            self._opened = _Opened(store, self._prepared(columns))
        return self._opened

    def _prepared(self, columns: Sequence[Row]) -> _Reading:
        if _is_raw(self._view):
            return RawTable(self._calls, self._tables[0], columns)
        return KeptTables(self._calls, self._view, {row["table_name"] for row in columns})

    def _identity(self, columns: Collection[Row]) -> str:
        """Return what differs once a table was dropped and made again.

        Its id is no such thing where a former version chose it by the table's name. So this has
        when its key was defined, which no ``ALTER TABLE`` changes.
        """
        made = {row["table_name"]: row["made"] for row in columns if row["kind"] == "partition_key"}
        tables = ",".join(f"{name}:{made.get(name, 'none')}" for name in self._tables)
        return f"{self._calls.cluster}/{self._calls.keyspace}/{tables}"


def _is_raw(view: View) -> bool:
    return view.layout is Layout.RAW
