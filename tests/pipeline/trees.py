"""Reading trees and prefixes of other programs, and the outcome of each record."""

from collections.abc import Mapping as Properties
from pathlib import Path
from typing import NamedTuple

from kip30.config import Written
from kip30.driver.scanning import Layout, Page, Rejected, Row, View
from kip30.pipeline.stores.path_mapping import Mapping, Skipped, parents, value_of
from kip30.runtime.resolution import scanner


class Scanned(NamedTuple):
    """Result of a scan, all spans together."""

    rows: list[Row]
    rejected: list[Rejected]
    parents: set[bytes]


class Mapped(NamedTuple):
    """The values by their keys, and the paths of the records that have no key."""

    values: dict[str, bytes]
    skipped: dict[bytes, Skipped]
    rejected: dict[bytes, str]


def scanned(config: Path | Properties[str, Written], under: str = "", rows: int = 1_000) -> Scanned:
    """Read all that is below *under*, in spans of *rows* rows."""
    found = Scanned([], [], set())
    with scanner(config, View(layout=Layout.RAW, under=under)) as store:
        at = store.position()
        for span in store.plan(at, rows):
            _add(found, list(store.scan(span, at)))
    return found


def mapped(mapping: Mapping, found: Scanned) -> Mapped:
    """Return the outcome of everything *found*."""
    result = Mapped({}, {}, {one.key: one.reason for one in found.rejected})
    for row in found.rows:
        key = mapping.key_of(row, has_children=row.key in found.parents)
        if isinstance(key, Rejected):
            result.rejected[key.key] = key.reason
        elif isinstance(key, Skipped):
            result.skipped[row.key] = key
        else:
            assert key not in result.values
            result.values[key] = value_of(row)
    return result


def _add(found: Scanned, pages: list[Page]) -> None:
    """Add a span, which knows only its own rows."""
    rows = [row for page in pages for row in page.rows]
    rejected = [one for page in pages for one in page.rejected]
    found.rows.extend(rows)
    found.rejected.extend(rejected)
    found.parents.update(parents(row.key for row in rows))
    found.parents.update(parents(one.key for one in rejected))
