"""Reading the store in bulk: at a quorum, without a session, and without creating anything.

A table of another program, with a key and a value, is read as it is, by arcs of the ring.
"""

import json
import time
from collections.abc import (
    Callable,
    Collection,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

from typing_extensions import override

from kip30.driver import Context
from kip30.driver.kit import fork_safety
from kip30.driver.kit.lifecycle import CloseOnce, on_thread_of
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
from kip30_backends.cassandra.calls import Calls, TypedRequest, rows_of
from kip30_backends.cassandra.client.connections import (
    FIRST,
    LAST,
    LOOK_AT_CLOCK,
    ClusterConnections,
    Row,
    Statement,
    Statements,
    walk,
)
from kip30_backends.cassandra.resources import ConnectedCluster, once_known
from kip30_backends.cassandra.scan_partitions import KeptTables, tables_of
from kip30_backends.cassandra.settings import CassandraSettings

_PARTITIONER = "Murmur3Partitioner"
_COLUMNS = (
    "SELECT table_name, column_name, kind, type, WRITETIME(type) AS made"
    " FROM system_schema.columns WHERE keyspace_name = "
)
_CQL = {
    "look_at_clock": LOOK_AT_CLOCK,
    "describe": "SELECT cluster_name, partitioner FROM system.local",
    "columns": f"{_COLUMNS}?",
}


class ScanCalls:
    """Sends reads, and waits for their answers. Every read sees all acknowledged writes.

    Attributes:
        cluster: The name of the cluster.
        keyspace: Where the tables are, as the servers write it.
    """

    def __init__(self, context: Context, settings: CassandraSettings) -> None:
        """Connect.

        Raises:
            ConfigError: A file of the settings cannot be read. Nothing is sent.
            AuthenticationError: The cluster wants other credentials.
            StoreError: Its servers are too old, or their partitioner is not the usual one.
            UnavailableError: No node answered in the connect timeout.
        """
        self.keyspace = settings.keyspace.lower()
        self._seconds = context.operation_timeout_seconds
        # How long before a write takes effect its time of writing may be: the clocks of the nodes
        # differ by less than the margin, and a node stamps a conditional write when it begins it.
        self._stamped_before = context.margin_seconds + context.operation_timeout_seconds
        self._cluster = ConnectedCluster(context, settings)
        self._close_once = CloseOnce(on_thread_of("kip30-cassandra", "event_loop"))
        fork_safety.register(self)
        try:
            statements = self._cluster.open(lambda: Statements(self._cluster.connections, _CQL))
            shared = self._cluster.request_context(_go_on)
            seconds, root = context.operation_timeout_seconds, context.namespace
            self._calls = Calls(shared, statements, seconds=seconds, root=root)
            self.cluster = self._described()
        except BaseException:
            self._cluster.close(0)
            raise

    @property
    def root(self) -> str:
        """The namespace of the configuration."""
        return self._calls.root

    def prepare(self, cql: Mapping[str, str]) -> Statements:
        """Return *cql* ready to be bound; its tables must exist.

        Raises:
            StoreError: A node said for as long as a request may take that they do not.
            UnavailableError: No node answered in that time.
        """
        build = partial(Statements, self._cluster.connections, cql)
        waiting = partial(once_known, build, self._seconds, self._calls.gate.check)
        return self._cluster.within(self._seconds, waiting)

    def ask(self, statement: Statement) -> Sequence[Row]:
        """Return the rows that *statement* finds."""
        asked = self._calls.send(TypedRequest(statement, rows_of))
        try:
            return asked.result()
        finally:
            asked.cancel()  # for a caller that was interrupted, or it would be retried

    def settled(self) -> int:
        """Return a time of writing: each write with an earlier one has taken effect before now.

        In microseconds, by the clocks of the nodes, as ``WRITETIME`` is.
        """
        (found,) = self.ask(self._calls.statements.bind("look_at_clock"))
        milliseconds: int = found["milliseconds"]
        return 1_000 * milliseconds - round(1_000_000 * self._stamped_before)

    def columns(self, tables: Sequence[str]) -> Sequence[Row]:
        """Return all columns of those of *tables* that exist.

        A node may not know them yet; so if none exists, all nodes that are up must say so.
        """
        found = self.ask(self._calls.statements.bind("columns", self.keyspace))
        if not (known := _of(tables, found)):
            looking = partial(_columns_anywhere, self._cluster.connections, self.keyspace, tables)
            known = self._cluster.within(self._seconds, looking)
        return known

    def close(self) -> None:
        """End all requests, threads and connections. Idempotent."""
        self._close_once.once(self._close)

    def abandon(self) -> None:
        """In a forked child: leave everything to the parent."""
        self._close_once.forgo()

    def _close(self) -> None:
        until = time.monotonic() + self._seconds
        self._calls.close()
        self._cluster.close(max(0.0, until - time.monotonic()))

    def _described(self) -> str:
        (found,) = self.ask(self._calls.statements.bind("describe"))
        partitioner: str = found["partitioner"].rpartition(".")[2]
        if partitioner != _PARTITIONER:
            raise StoreError(
                f"the cluster has {partitioner}: bulk reading goes by the tokens of {_PARTITIONER}"
            )
        return str(found["cluster_name"])


def _go_on(then: Callable[[], None]) -> None:
    """Create no tables, and let another node be asked."""
    then()


def _of(tables: Sequence[str], found: Sequence[Row]) -> list[Row]:
    return [row for row in found if row["table_name"] in tables]


def _columns_anywhere(
    connections: ClusterConnections, keyspace: str, tables: Sequence[str]
) -> list[Row]:
    for node in connections.reached():
        if found := _of(tables, connections.execute(f"{_COLUMNS}'{keyspace}'", node)):
            return found
    return []


DEFAULT = "kv"
_TYPES = {"text", "blob"}
_KINDS = ["partition_key", "regular"]
_KEYS = 5_000


class RawTable:
    """The records of one table."""

    def __init__(self, calls: ScanCalls, table: str, columns: Sequence[Row]) -> None:
        """Read *table*, which has *columns*.

        Raises:
            StoreError: It does not exist, or has other columns than a key and a value.
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
        """Return 0: the writer of the table numbers nothing."""
        return 0

    def plan(self, rows: int) -> Iterator[Span]:
        """Yield arcs of about *rows* rows; rows with the same token are in the same arc."""
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
        """Yield the pages of the span of *token*."""
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
    written: int | None = row["written"]  # None without a value
    key, value = _bytes(row["key"]) or b"", _bytes(row["value"])
    return Record(key, value, written or 0, 0, None, written, None)


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _key_and_value(table: str, columns: Iterable[Row]) -> tuple[str, str]:
    """Return the names of the two columns of *table*, in quotes."""
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
    """The tables found at one moment, and their readers."""

    store: str
    reading: _Reading


class CassandraScanner(ScanDriver):
    """One keyspace. No request is under way while no method runs."""

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
        self._choose(view)
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
        ahead. Each partition returns its own. Behind a slash follows the time before which writes
        are settled, by the clocks of the nodes.
        """
        opened = self._open()
        settled = self._calls.settled()
        at = max(time.time_ns() // _MICROSECONDS, opened.reading.newest())
        return Position(opened.store, f"{at}/{settled}")

    @override
    def turn_to(self, view: View, at: Position) -> Position:
        """Return a new position: one is of the tables that its view reads."""
        self._choose(view)
        return self.position()

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
        # Versions depend on the clocks of clients, which may be wrong: a later write elsewhere may
        # have a smaller one. Positions of former versions do not have the second time.
        settled = int(at.at.partition("/")[2] or 0)
        return [written is None or written >= settled for written in page.modified]

    @override
    def changes(self, after: Position, until: Position) -> Iterator[Sequence[Change]]:
        raise UnsupportedError("Cassandra keeps no log of changes that kip30 could read")

    @override
    def close(self) -> None:
        self._closed = True
        self._calls.close()

    def _choose(self, view: View) -> None:
        self._tables = [view.under or DEFAULT] if _is_raw(view) else tables_of(view)
        self._view = view
        self._opened: _Opened | None = None

    @contextmanager
    def _reading(self, at: Position) -> Generator[_Reading]:
        """Check before and after the block that the tables are those of the position *at*."""
        opened = self._open(at)
        try:
            yield opened.reading
        except StoreError:
            self._open(at)
            raise
        self._open(at)

    def _open(self, at: Position | None = None) -> _Opened:
        """Find the existing tables, and prepare to read them unless that was done."""
        if self._closed:
            raise ClosedError("this scanner is closed: open another one")
        columns = self._calls.columns(self._tables)
        store = self._identity(columns)
        if at is not None and at.store != store:
            raise PositionLostError(
                f"the position is of {at.store}, and this is {store}: a table that was"
                " created again has another number"
            )
        if self._opened is None or self._opened.store != store:
            self._opened = _Opened(store, self._prepared(columns))
        return self._opened

    def _prepared(self, columns: Sequence[Row]) -> _Reading:
        if _is_raw(self._view):
            return RawTable(self._calls, self._tables[0], columns)
        return KeptTables(self._calls, self._view, {row["table_name"] for row in columns})

    def _identity(self, columns: Collection[Row]) -> str:
        """Return a text that differs once a table was dropped and created again.

        Its id may not differ: a former version chose it by the table's name. So this uses the time
        at which its key was defined, which no ``ALTER TABLE`` changes.
        """
        made = {row["table_name"]: row["made"] for row in columns if row["kind"] == "partition_key"}
        tables = ",".join(f"{name}:{made.get(name, 'none')}" for name in self._tables)
        return f"{self._calls.cluster}/{self._calls.keyspace}/{tables}"


def _is_raw(view: View) -> bool:
    return view.layout is Layout.RAW
