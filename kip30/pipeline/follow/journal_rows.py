"""The parts of a journal: its rows, and the position behind them."""

import json
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any, NamedTuple

import pyarrow as pa

from kip30.driver.scanning import Layout, Position, Row
from kip30.pipeline.spark.schemas import VERSION


class JournalRowKind(Enum):
    """The kinds of rows of a journal."""

    CHANGE = "change"
    """The state of a key changed."""
    GAP = "gap"
    """Changes before this row are missing. The rows that follow make the states right again."""


class JournalRow(NamedTuple):
    """One row of a journal.

    Attributes:
        key: Of a change, as in `kip30.driver.scanning.Row`; None for a gap.
        row: The record from then on; None: deleted, or a gap.
        order: The store's own number of the change, if it has one.
        kind: See `JournalRowKind`.
    """

    key: bytes | None
    row: Row | None
    order: int | None
    kind: JournalRowKind = JournalRowKind.CHANGE

    @property
    def size(self) -> int:
        """About how many bytes it has."""
        data = None if self.row is None else self.row.data
        return len(self.key or b"") + len(data or b"")


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalPosition:
    """Position of a journal.

    Attributes:
        at: The position behind which changes are still to be read; None before the first listing.
        order: All changes up to this number of the store's are read, too.
        listing: Whether a comparison with the whole view is due, or has begun.
        listed: The store (`Position.store`) that it has begun with; empty: it has not, or is over.
        reached: When *at* was the present, in seconds since 1970.
        rows: How many rows the journal has had; the next row gets this number.
        gaps: How many of these are gaps.
    """

    at: Position | None
    order: int = -1
    listing: bool = False
    listed: str = ""
    reached: float = 0.0
    rows: int = 0
    gaps: int = 0

    def to_json(self) -> str:
        """Return the text that `of_json` reads."""
        return json.dumps(asdict(self))

    @classmethod
    def of_json(cls, text: str | bytes) -> "JournalPosition":
        """Return the position that *text* holds."""
        found: dict[str, Any] = json.loads(text)
        at = found.pop("at")
        return cls(at=None if at is None else Position(*at), **found)


def journal_schema(layout: Layout) -> pa.Schema:
    """Return the columns of a journal.

    *number* grows from row to row over the whole journal. *value* is null if the key was deleted,
    *version* is null, too, then; a raw node without data has a version. *time* is when the change
    was read.
    """
    return pa.schema(
        [
            ("number", pa.int64()),
            ("key", pa.binary() if layout is Layout.RAW else pa.string()),
            ("value", pa.binary()),
            ("version", VERSION),
            ("modified", pa.int64()),
            ("order", pa.int64()),
            ("kind", pa.string()),
            ("time", pa.timestamp("us", tz="UTC")),
        ]
    )
