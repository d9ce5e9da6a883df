"""Records of other programs, as records of kip30's storage below a namespace.

Whether a node of a tree is a directory depends on whether anything is below it, which may have been
read in another span: so this looks at all paths of a snapshot, and not only at those of a wave.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from kip30.driver.scanning import Rejected, Row
from kip30.pipeline.spark.schemas import VERSION
from kip30.pipeline.stores.path_mapping import Mapping, Skipped, value_of

_COLUMNS = (
    "key string, value binary, version struct<major: bigint, minor: bigint>, moving boolean,"
    " skipped string, rejected string, record binary, prefix binary"
)
_COLUMN_TYPES: dict[str, pa.DataType] = {
    "key": pa.string(),
    "value": pa.binary(),
    "version": VERSION,
    "moving": pa.bool_(),
    "skipped": pa.string(),
    "rejected": pa.string(),
    "record": pa.binary(),
    "prefix": pa.binary(),
}
_SCHEMA = pa.schema(_COLUMN_TYPES)


@dataclass(frozen=True, slots=True, kw_only=True)
class PathMapping:
    """Mapping of another program's records to a namespace.

    Attributes:
        into: The namespace.
        under: The path below which they are, as in `View`.
        is_tree: Whether paths name nodes of a tree, as `ScanDriver.is_tree` says.
    """

    into: str
    under: str
    is_tree: bool


class _Found(NamedTuple):
    """A row of another program's."""

    path: bytes
    value: bytes | None
    version: dict[str, int]
    owner: str | None
    moving: bool
    rejected: str | None
    record: bytes | None
    prefix: bytes | None
    has_children: bool


def mapped(rows: DataFrame, everything: DataFrame, place: PathMapping) -> DataFrame:
    """Return raw *rows*, which are part of *everything*, as rows of kip30's storage.

    The columns are those of `kip30.pipeline.spark.schemas.RECORDS` without created, modified and
    owner, and *skipped*: why a record needs no key (`Skipped`), else null. A path that cannot
    become a key is rejected; *key* is the path then, as in a skipped row. *record* and *prefix* of
    a rejected row are those of the keys that it hides.
    """
    marked = _with_children(rows, everything) if place.is_tree else _without_children(rows)

    def apply(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        mapping = Mapping(place.into, place.under, is_tree=place.is_tree)
        for batch in batches:
            found = zip(*(column.to_pylist() for column in batch.columns), strict=True)
            yield _batch([_mapped(mapping, _Found(*one)) for one in found])

    return marked.select(*_Found._fields).mapInArrow(apply, _COLUMNS)


def _with_children(rows: DataFrame, everything: DataFrame) -> DataFrame:
    """Return *rows* with the column *has_children*. A tree has paths in UTF-8."""
    name = f.substring_index("text", "/", -1)
    above = f.expr("substring(text, 1, length(text) - length(substring_index(text, '/', -1)) - 1)")
    parents = everything.where(f.length(name) > 0).select(
        f.when(f.length(above) > 0, above).otherwise("/").alias("parent")
    )
    joined = rows.join(parents.distinct(), rows["text"] == f.col("parent"), "left")
    return joined.withColumn("has_children", f.col("parent").isNotNull())


def _without_children(rows: DataFrame) -> DataFrame:
    return rows.withColumn("has_children", f.lit(col=False))


def _mapped(mapping: Mapping, found: _Found) -> tuple[object, ...]:
    """Return the row that *found* becomes, in the columns of `mapped`."""
    version = found.version
    shown = found.path.decode(errors="backslashreplace")
    if found.rejected is not None:
        one = Rejected(found.path, found.rejected, found.record, found.prefix)
        _, reason, *hidden = mapping.hidden_by(one)
        return shown, b"", version, found.moving, None, reason, *hidden
    numbers = version["major"], version["minor"]
    row = Row(found.path, found.value, *numbers, None, None, found.owner)
    match mapping.key_of(row, has_children=found.has_children):
        case Skipped() as skipped:
            return shown, b"", version, found.moving, skipped.value, *[None] * 3
        case Rejected(reason=reason):
            return shown, b"", version, found.moving, None, reason, None, None
        case key:
            return key, value_of(row), version, found.moving, *[None] * 4


def _batch(rows: list[tuple[object, ...]]) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True)) or [()] * len(_SCHEMA)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)
