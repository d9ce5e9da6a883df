"""A raw view of a store, read as keys of kip30's storage below a namespace.

Whether a node of a tree without data is a directory depends on whether anything is below it, which
another span may have. So such nodes come last, in a span of their own, when all others were read.
"""

from collections.abc import Iterator, Sequence
from typing import ClassVar

from typing_extensions import override

from kip30.driver.scanning import (
    Change,
    Completeness,
    Consistency,
    Page,
    Position,
    Rejected,
    Row,
    ScanDriver,
    Span,
)
from kip30.pipeline.stores.path_mapping import Mapping, Skipped, parents, value_of

_WITHOUT_DATA = b"without data"


class MappedScanner(ScanDriver):
    """Reads all spans of a plan, in its order, before it plans again."""

    is_tree: ClassVar[bool] = False

    def __init__(self, raw: ScanDriver, into: str, under: str) -> None:
        """Map the records of *raw*, which is closed with this, to keys below the namespace *into*.

        Args:
            raw: A view of `Layout.RAW`.
            into: The namespace.
            under: That of the view of *raw*.
        """
        self.consistency: Consistency = raw.consistency
        self.completeness: Completeness | None = raw.completeness
        self._raw = raw
        top = under if raw.under_is_prefix else ""
        self._mapping = Mapping(into, top, is_tree=raw.is_tree)
        # Of the present pass over a tree: nodes that have children, and those without data.
        self._parents = set[bytes]()
        self._without_data: list[Row] = []

    @override
    def close(self) -> None:
        """Close the view."""
        self._raw.close()

    @override
    def position(self) -> Position:
        return self._raw.position()

    @override
    def plan(self, at: Position, rows: int) -> Iterator[Span]:
        self._parents, self._without_data = set(), []
        yield from self._raw.plan(at, rows)
        if self._raw.is_tree:
            yield Span(_WITHOUT_DATA, 0)

    @override
    def scan(self, span: Span, at: Position) -> Iterator[Page]:
        if self._raw.is_tree and span.token == _WITHOUT_DATA:
            yield self._page(self._without_data, ())
            return
        for page in self._raw.scan(span, at):
            rows = page.rows
            if self._raw.is_tree:
                self._parents |= parents([*page.keys, *(one.key for one in page.rejected)])
                self._without_data += (row for row in rows if not row.data)
                rows = [row for row in rows if row.data]
            yield self._page(rows, page.rejected)

    @override
    def changes(self, after: Position, until: Position) -> Iterator[Sequence[Change]]:
        for changes in self._raw.changes(after, until):
            yield list(map(self._change, changes))

    def _page(self, rows: Sequence[Row], rejected: Sequence[Rejected]) -> Page:
        found: list[Row] = []
        refused = list(map(self._mapping.hidden_by, rejected))
        for row in rows:
            match self._mapped(row):
                case Row() as one:
                    found.append(one)
                case Rejected() as one:
                    refused.append(one)
                case Skipped():
                    pass
        return Page.of(found, refused)

    def _mapped(self, row: Row) -> Row | Rejected | Skipped:
        key = self._mapping.key_of(row, has_children=row.key in self._parents)
        if isinstance(key, str):
            return row._replace(key=key.encode(), data=value_of(row), owner=None)
        return key

    def _change(self, change: Change) -> Change:
        """Return what *change* is for the key, if it has one.

        A record that ends with a session from now on is no longer a key.
        """
        if change.rejected is not None:
            return change._replace(rejected=self._mapping.hidden_by(change.rejected))
        key = self._mapping.record_of(change.key)
        row = None if change.row is None else self._mapped(change.row)
        if key is not None:
            return Change(key, row if isinstance(row, Row) else None, change.order)
        refused = row if isinstance(row, Rejected) else None
        return Change(change.key, None, change.order, refused, is_record=False)
