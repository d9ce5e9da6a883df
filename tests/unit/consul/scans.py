"""Reading all of a view, and the parts of what was found."""

from typing import Protocol

from kip30.config import Written
from kip30.driver.scanning import Page, Rejected, Row, ScanDriver, View


class OpenScanner(Protocol):
    """Opens a scanner with more properties than it would have, closed when the test ends."""

    def __call__(self, view: View | None = None, **more: Written) -> ScanDriver: ...


def pages(store: ScanDriver, rows: int = 1_000) -> list[Page]:
    """Return all pages of *store*, read in spans of *rows* rows."""
    at = store.position()
    return [page for span in store.plan(at, rows) for page in store.scan(span, at)]


def rows_of(found: list[Page]) -> list[Row]:
    return [row for page in found for row in page.rows]


def rejected(found: list[Page]) -> list[Rejected]:
    return [one for page in found for one in page.rejected]
