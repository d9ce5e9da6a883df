"""Scanners of a test, and what they find."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from kip30.config import Written
from kip30.driver.scanning import Change, Page, Position, Row, ScanDriver, Span, View

from .admin import Admin, encoded

WHOLE = 1_000_000


Borrow = Callable[[Sequence[tuple[str, int]]], Mapping[str, Written]]


class OpenScanner(Protocol):
    """Opens a scanner, which is closed when the test ends."""

    def __call__(self, view: View | None = None, /, **more: Written) -> ScanDriver: ...


def spans(store: ScanDriver, at: Position, rows: int = WHOLE) -> list[Span]:
    return list(store.plan(at, rows))


def pages(store: ScanDriver, at: Position, rows: int = WHOLE) -> list[Page]:
    return [page for span in store.plan(at, rows) for page in store.scan(span, at)]


def read(store: ScanDriver, at: Position | None = None, rows: int = WHOLE) -> list[Row]:
    return [row for page in pages(store, at or store.position(), rows) for row in page.rows]


def changes(store: ScanDriver, after: Position, until: Position) -> list[Change]:
    return [change for batch in store.changes(after, until) for change in batch]


def revision_of(admin: Admin) -> int:
    return int(admin.tell("kv/range", key=encoded(b"k"))["header"]["revision"])
