"""The files of one side of a diff, as a task of Spark reads them by itself."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from kip30.driver.scanning import Layout
from kip30.errors import StoreError
from kip30.pipeline.compare.comparison import compared_columns
from kip30.pipeline.run.parquet_reading import batches, bytes_of, read_columns
from kip30.pipeline.run.report import MOST_FINDINGS
from kip30.pipeline.run.scan_files import MEASURES
from kip30.pipeline.spark.schemas import arrow_schema
from kip30.pipeline.transfer.snapshot_files import rejected_finding


@dataclass(frozen=True, slots=True)
class SideFiles:
    """The files of a side.

    Attributes:
        folder: Where they are, for driver and workers.
        names: Their names below it.
        layout: That of their records.
        key: The name that keys have in them.
    """

    folder: Path
    names: tuple[str, ...]
    layout: Layout
    key: str

    def table(self) -> pa.Table:
        """Return their rows in the columns that are compared, without values.

        Raises:
            StoreError: One cannot be read; the message names it.
        """
        columns = self._columns
        if not self.names:
            return _schema(self.layout).empty_table()
        tables = [_read(self.folder / name, columns) for name in self.names]
        return pa.concat_tables(tables).select(columns)

    def bytes(self) -> int:
        """Return how many bytes these columns have, before compression; raises as `table`."""
        return sum(_bytes(self.folder / name, self._columns) for name in self.names)

    def rejected(self) -> list[dict[str, str]]:
        """Return up to `MOST_FINDINGS` rejected rows as findings; raises as `table`."""
        return [rejected_finding(*row) for row in islice(self._rejected(), MOST_FINDINGS)]

    @property
    def _columns(self) -> list[str]:
        _, *others = compared_columns(is_raw=self.layout is Layout.RAW, full=False)
        return [self.key, *others]

    def _rejected(self) -> Iterator[tuple[Any, str]]:
        for name in self.names:
            path = self.folder / name
            try:
                for batch in batches(path, [self.key, "rejected"]):
                    keys, reasons = (column.to_pylist() for column in batch.columns)
                    yield from ((k, r) for k, r in zip(keys, reasons, strict=True) if r is not None)
            except (OSError, pa.ArrowException) as error:
                raise _unreadable(path, error) from error


def _read(path: Path, columns: list[str]) -> pa.Table:
    try:
        return read_columns(path, columns)
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(path, error) from error


def _bytes(path: Path, columns: list[str]) -> int:
    try:
        return bytes_of(path, columns)
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> StoreError:
    return StoreError(f"{path} cannot be read: {error}")


def _schema(layout: Layout) -> pa.Schema:
    """Return the types of the columns that are compared."""
    known = pa.schema([*arrow_schema(layout), *MEASURES])
    names = compared_columns(is_raw=layout is Layout.RAW, full=False)
    return pa.schema([known.field(name) for name in names])
