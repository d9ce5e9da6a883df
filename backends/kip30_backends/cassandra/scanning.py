"""Reading a keyspace in bulk, at a quorum: without a session, and without making anything."""

import time
from collections.abc import Collection, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from typing_extensions import override

from kip30.driver import Context
from kip30.driver.scanning import (
    Change,
    Consistency,
    Layout,
    Page,
    Position,
    ScanDriver,
    Span,
    View,
    check_rows,
)
from kip30.errors import ClosedError, PositionLostError, StoreError, UnsupportedError
from kip30_backends.cassandra.kept_tables import KeptTables, tables_of
from kip30_backends.cassandra.library import Row
from kip30_backends.cassandra.raw_table import DEFAULT, RawTable
from kip30_backends.cassandra.scan_calls import ScanCalls
from kip30_backends.cassandra.settings import CassandraSettings

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
