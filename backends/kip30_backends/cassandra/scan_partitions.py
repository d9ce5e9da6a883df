"""The partitions that a scan covers: ranges of their rows, and how rows are decoded.

Large partitions are cut into spans; between small ones, spans end at their borders.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby, islice
from typing import Any, NamedTuple, Protocol

from kip30.driver.records import Version
from kip30.driver.scanning import (
    Layout,
    Page,
    PageSize,
    Rejected,
    Span,
    View,
    claim_row,
    hidden_leaders,
)
from kip30.driver.scanning import Row as Record
from kip30_backends.cassandra.client.connections import (
    FIRST,
    LAST,
    Row,
    Statement,
    Statements,
    walk,
)
from kip30_backends.cassandra.target_states import entry_of, seat_of, service_of

_AT_ONCE = 100
_PLACES = 1_000
_NAMES = 5_000


class Reads(Protocol):
    """Requests of a scanner: see `kip30_backends.cassandra.scanning`."""

    keyspace: str

    @property
    def root(self) -> str:
        """The namespace of the configuration."""
        ...

    def prepare(self, cql: Mapping[str, str]) -> Statements:
        """Return *cql* ready to be bound; raises `StoreError` if one of its tables is missing."""
        ...

    def ask(self, statement: Statement) -> Sequence[Row]:
        """Return the rows that *statement* finds."""
        ...


class TableColumns(NamedTuple):
    """The column names of a table.

    Attributes:
        name: Of the table.
        scope: The column that distinguishes its partitions, beside the root.
        row: The column that orders their rows.
        least: Less than any value of *row*.
        number: A static column that only grows; ``rev`` is that of versions.
        columns: The other columns of a row.
        is_one: Whether a partition has at most one row, and counts even without it.
    """

    name: str
    scope: str
    row: str
    least: Any
    number: str
    columns: str
    is_one: bool = False


# Every write of a record writes its nonce; one that it guards writes its version again.
RECORDS = TableColumns(
    "records", "namespace", "name", "", "rev", "version, data, WRITETIME(nonce) AS written"
)
MEMBERS = TableColumns("members", "in_group", "id", "", "rev", "version, nonce, data")
LEADERS = TableColumns(
    "leaders", "service", "seat", -128, "epoch", "epoch, candidate, nonce, data", is_one=True
)


class ScanBound(NamedTuple):
    """The end of a read of a table: a row of a partition, included; None: all of that."""

    ring: int
    scope: str
    row: Any = None

    def order(self) -> tuple[int, int, bytes]:
        """Return the sort key of partitions, also of those that have the same token."""
        # Within a token, Cassandra orders keys by their bytes, which begin with the length.
        scope = self.scope.encode()
        return self.ring, len(scope), scope


class RowRange(NamedTuple):
    """The rows after *after*, up to and including *until*. None: the beginning, and the end."""

    after: ScanBound | None = None
    until: ScanBound | None = None

    @classmethod
    def of(cls, after: Sequence[Any] | None, until: Sequence[Any] | None) -> "RowRange":
        """Return the run whose ends JSON has made lists."""
        return cls(
            None if after is None else ScanBound(*after),
            None if until is None else ScanBound(*until),
        )

    def part(self, place: ScanBound) -> "PartitionSlice | None":
        """Return the part of this run in the partition at *place*, if any."""
        after, until, order = self.after, self.until, place.order()
        is_first, is_last = _is_at(after, order), _is_at(until, order)
        if after is not None and (order < after.order() or (is_first and after.row is None)):
            return None
        if until is not None and order > until.order():
            return None
        return PartitionSlice(
            place.scope,
            after.row if after is not None and is_first else None,
            until.row if until is not None and is_last else None,
        )


def _is_at(place: ScanBound | None, order: tuple[int, int, bytes]) -> bool:
    return place is not None and place.order() == order


class PartitionSlice(NamedTuple):
    """The rows of a partition after *after*, up to and including *until*; None: all."""

    scope: str
    after: Any = None
    until: Any = None

    @property
    def is_whole(self) -> bool:
        """True if it is unlimited at both ends."""
        return self.after is None and self.until is None


class PartitionSize(NamedTuple):
    """Number of rows of a partition, and the rows at which it can be cut."""

    place: ScanBound
    rows: int
    cuts: Sequence[Any]


class Partitions:
    """The partitions of one table that belong to the configuration's namespace."""

    def __init__(self, calls: Reads, table: TableColumns, inside: Callable[[str], bool]) -> None:
        """Read those whose scope is *inside*; the table must be there.

        Raises:
            StoreError: It is not.
        """
        self._ask = calls.ask
        self._root = calls.root
        self._table = table
        self._inside = inside
        self._statements: Statements = calls.prepare(_cql(table, calls.keyspace))

    def places(self, run: RowRange) -> Iterator[Sequence[tuple[ScanBound, int | None]]]:
        """Yield the partitions of *run*, and their growing numbers, in batches."""
        scope, number = self._table.scope, self._table.number
        first = FIRST if run.after is None else run.after.ring
        last = LAST if run.until is None else run.until.ring
        for found in walk(self._walk, (first, last), lambda: _PLACES, _identity(scope)):
            yield [
                (ScanBound(row["ring"], row[scope]), row[number])
                for row in found
                if row["root"] == self._root and self._inside(row[scope])
            ]

    def newest(self) -> int:
        """Return the greatest version of any write; 0 if there was none."""
        if self._table.number != "rev":
            return 0
        found = chain.from_iterable(self.places(RowRange()))
        return max((number or 0 for _, number in found), default=0)

    def rows(self, run: RowRange, limit: Callable[[], int]) -> Iterator[Sequence[Row]]:
        """Yield the rows of *run* in batches of *limit*; one may have only static columns."""
        parts = (run.part(place) for found in self.places(run) for place, _ in found)
        yield from self._read("rows", filter(None, parts), limit)

    def tallies(self, rows: int) -> Iterator[PartitionSize]:
        """Count all partitions, in order, and cut each after every *rows* rows."""
        for found in self.places(RowRange()):
            places = iter(place for place, _ in found)
            while some := list(islice(places, _AT_ONCE)):
                yield from self._counted(some, rows)

    def _counted(self, places: Sequence[ScanBound], rows: int) -> Iterator[PartitionSize]:
        counts, cuts = Counter[str](), defaultdict[str, list[Any]](list)
        scope, name, is_one = self._table.scope, self._table.row, self._table.is_one
        read = self._read(
            "names", (PartitionSlice(place.scope) for place in places), lambda: _NAMES
        )
        for row in chain.from_iterable(read):
            if row[name] is None and not is_one:
                continue
            counts[row[scope]] += 1
            if counts[row[scope]] % rows == 0:
                cuts[row[scope]].append(None if is_one else row[name])
        for place in places:
            yield PartitionSize(place, counts[place.scope], cuts[place.scope])

    def _read(
        self, what: str, parts: Iterable[PartitionSlice], limit: Callable[[], int]
    ) -> Iterator[Sequence[Row]]:
        """Read *parts*; whole ones together, in one request."""
        for is_whole, some in groupby(parts, lambda part: part.is_whole):
            while is_whole and (scopes := {part.scope for part in islice(some, _AT_ONCE)}):
                yield from self._read_whole(what, scopes, limit)
            for part in some:
                yield from self._read_part(what, part, limit)

    def _read_whole(
        self, what: str, scopes: set[str], limit: Callable[[], int]
    ) -> Iterator[Sequence[Row]]:
        """Read whole partitions; an answer that is cut off lacks rows of its last one alone."""
        scope, name = self._table.scope, self._table.row
        while scopes:
            most = limit()
            found = self._tell(f"{what}_in", sorted(scopes), most)
            yield found
            if len(found) < most:
                return
            last = found[-1]
            scopes = scopes - {row[scope] for row in found}
            if last[name] is not None and not self._table.is_one:
                yield from self._read_part(what, PartitionSlice(last[scope], last[name]), limit)

    def _read_part(
        self, what: str, part: PartitionSlice, limit: Callable[[], int]
    ) -> Iterator[Sequence[Row]]:
        after = self._table.least if part.after is None else part.after
        while True:
            most = limit()
            if part.until is None:
                found = self._tell(f"{what}_after", part.scope, after, most)
            else:
                found = self._tell(f"{what}_between", part.scope, after, part.until, most)
            yield found
            if len(found) < most:
                return
            after = found[-1][self._table.row]

    def _tell(self, name: str, *values: Any) -> Sequence[Row]:
        return self._ask(self._statements.bind(name, self._root, *values))

    def _walk(self, first: int, last: int, most: int) -> Sequence[Row]:
        return self._ask(self._statements.bind("walk", first, last, most))


def _identity(scope: str) -> Callable[[Row], tuple[str, str]]:
    return lambda row: (row["root"], row[scope])


def _cql(table: TableColumns, keyspace: str) -> dict[str, str]:
    name, scope, row, _, number, columns, is_one = table
    all_but_heads = "" if is_one else f" AND {row} > ''"
    here, ring = f"FROM {keyspace}.{name}", f"token(root, {scope})"
    ends = {
        "in": f"{scope} IN ?{all_but_heads}",
        "after": f"{scope} = ? AND {row} > ?",
        "between": f"{scope} = ? AND {row} > ? AND {row} <= ?",
    }
    shown = {"names": f"{scope}, {row}", "rows": f"{scope}, {row}, {columns}"}
    return {
        "walk": f"SELECT DISTINCT root, {scope}, {number}, {ring} AS ring {here}"
        f" WHERE {ring} >= ? AND {ring} <= ? LIMIT ?",
        **{
            f"{what}_{end}": f"SELECT {some} {here} WHERE root = ? AND {rows} LIMIT ?"
            for what, some in shown.items()
            for end, rows in ends.items()
        },
    }


def cut(tallies: Iterable[PartitionSize], rows: int) -> Iterator[tuple[RowRange, int]]:
    """Yield runs that follow each other, and how many rows each has: *rows*, or fewer.

    The last one has no end. A partition without rows has no run of its own.
    """
    start: ScanBound | None = None
    end: ScanBound | None = None
    size = 0
    for place, count, ends in tallies:
        if size and size + count > rows:
            yield RowRange(start, end), size
            start, size = end, 0
        for row in ends:
            end = place._replace(row=row)
            yield RowRange(start, end), rows
            start = end
        size += count - rows * len(ends)
        end = place
    if size:
        yield RowRange(start), size


_Convert = Callable[[Sequence[Row]], Page]


class _Kept(NamedTuple):
    partitions: Partitions
    convert: _Convert


class KeptTables:
    """The tables of one view."""

    def __init__(self, calls: Reads, view: View, there: Collection[str]) -> None:
        """Read those of its tables that are *there*.

        Raises:
            StoreError: One of them is missing.
        """
        inside, convert = _inside(view), _converting(view)
        self._kept = {
            table.name: _Kept(Partitions(calls, table, inside), convert[table])
            for table in convert
            if table.name in there
        }

    def newest(self) -> int:
        """Return the greatest version of any write; 0 if there was none."""
        return max((kept.partitions.newest() for kept in self._kept.values()), default=0)

    def plan(self, rows: int) -> Iterator[Span]:
        """Yield spans of about *rows* rows."""
        for name, kept in self._kept.items():
            for run, count in cut(kept.partitions.tallies(rows), rows):
                yield Span(json.dumps([name, *run]).encode(), count)

    def scan(self, token: bytes) -> Iterator[Page]:
        """Yield the pages of the span of *token*."""
        name, *places = json.loads(token)
        if name not in self._kept:
            return
        kept, size = self._kept[name], PageSize()
        for found in kept.partitions.rows(RowRange.of(*places), lambda: size.rows):
            page = kept.convert(found)
            size.adapt(page)
            if page.keys or page.rejected:
                yield page


def tables_of(view: View) -> Sequence[str]:
    """Return the tables of *view*."""
    return [table.name for table in _converting(view)]


def _inside(view: View) -> Callable[[str], bool]:
    under = view.under
    if view.layout is Layout.CLAIMS or not under:
        return lambda _: True
    return lambda namespace: namespace == under or namespace.startswith(f"{under}/")


def _converting(view: View) -> Mapping[TableColumns, _Convert]:
    if view.layout is Layout.KIP30:
        return {RECORDS: _values}
    under = view.under.encode()

    def only(claims: Callable[[Row], Iterator[Record | Rejected]]) -> _Convert:
        def convert(found: Sequence[Row]) -> Page:
            read = [claim for row in found for claim in claims(row)]
            rejected = [one for one in read if isinstance(one, Rejected)]
            rows = (one for one in read if isinstance(one, Record))
            return Page.of((row for row in rows if row.key.startswith(under)), rejected)

        return convert

    return {MEMBERS: only(_members), LEADERS: only(_leaders)}


def _values(found: Sequence[Row]) -> Page:
    return _page_of_records(found) or _page_of_any(found)


def _page_of_records(found: Sequence[Row]) -> Page | None:
    """Return the page if all rows are records, as in most pages."""
    names = [one["name"] for one in found]
    versions = [one["version"] for one in found]
    if None in names or None in versions or not _can_be_names(names):
        return None
    places = zip([one["namespace"] for one in found], names, strict=True)
    keys = [(f"{space}/{name}" if space else name).encode() for space, name in places]
    data = [one["data"] or b"" for one in found]
    zeros, nones = (0,) * len(found), (None,) * len(found)
    written = [one["written"] for one in found]
    return Page(keys, data, versions, zeros, nones, written, nones)


def _can_be_names(names: Sequence[str]) -> bool:
    return "" not in names and "/" not in "".join(names)


def _page_of_any(found: Sequence[Row]) -> Page:
    rows, rejected = list[Record](), list[Rejected]()
    for one in found:
        namespace, name, version = one["namespace"], one["name"], one["version"]
        if name is None:  # the partition has only static columns
            continue
        key = (f"{namespace}/{name}" if namespace else name).encode()
        if version is None:
            rejected.append(Rejected(key, "the row has no version: kip30 did not write it", key))
        elif not name or "/" in name:
            rejected.append(Rejected(key, f"no key has the name {name!r}: kip30 did not write it"))
        else:
            rows.append(Record(key, one["data"] or b"", version, 0, None, one["written"], None))
    return Page.of(rows, rejected)


def _members(row: Row) -> Iterator[Record | Rejected]:
    if row["version"] is None:  # the partition has only static columns
        return
    entry, (group, name) = entry_of(row, "id", "members"), (row["in_group"], row["id"])
    if not entry.nonce:
        yield Rejected(f"in_group = {group!r} and id = {name!r}".encode(), entry.data.decode())
        return
    yield claim_row(
        "member", group, name, data=entry.data, version=entry.version, owner=entry.nonce
    )


def _leaders(row: Row) -> Iterator[Record | Rejected]:
    service, state = row["service"], service_of([row])
    if state.epoch is not None:
        yield claim_row("epoch", service, data=None, version=Version(state.epoch), owner=None)
    for candidate, entry in state.leaders(service).items():
        if not entry.nonce:
            reason, prefix = entry.data.decode(), hidden_leaders(service)
            yield Rejected(seat_of(service).encode(), reason, prefix=prefix)
            continue
        names, version = (service, candidate), entry.version
        yield claim_row("leader", *names, data=entry.data, version=version, owner=entry.nonce)
