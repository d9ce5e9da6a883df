"""The columns of the rows of a scan, for Arrow and for Spark.

Spark requires that the batches of a data source have the declared schema exactly, nullability
included.
"""

from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from kip30.driver.scanning import Layout


def _required(name: str, kind: pa.DataType) -> "pa.Field[Any]":
    return pa.field(name, kind, nullable=False)


VERSION = pa.struct([_required("major", pa.int64()), _required("minor", pa.int64())])

_COMMON = (
    _required("version", VERSION),
    pa.field("created", pa.int64()),
    pa.field("modified", pa.int64()),
    pa.field("owner", pa.string()),
    _required("moving", pa.bool_()),
    pa.field("rejected", pa.string()),
    pa.field("record", pa.binary()),
    pa.field("prefix", pa.binary()),
)

RECORDS = pa.schema([_required("key", pa.string()), _required("value", pa.binary()), *_COMMON])
"""Records of kip30's storage. *moving*: changed after the position, so perhaps not as of it.
*rejected*: why the row is no record; null for records. A rejected row has its place in the store as
its key, and in *record* and *prefix* the keys that it hides, as in `Rejected`."""

CLAIM_RECORDS = pa.schema([RECORDS.field("key"), pa.field("value", pa.binary()), *_COMMON])
"""Claims. *value* is null for an epoch."""

RAW_RECORDS = pa.schema(
    [
        _required("path", pa.binary()),
        pa.field("text", pa.string()),
        pa.field("value", pa.binary()),
        _required("kind", pa.string()),
        *_COMMON,
    ]
)
"""Records of any program. *text* is the path, null if it is not UTF-8; *value* is null for a node
without data."""


_SCHEMAS = {
    Layout.KIP30: RECORDS,
    Layout.RAW: RAW_RECORDS,
    Layout.CLAIMS: CLAIM_RECORDS,
}


def arrow_schema(layout: Layout) -> pa.Schema:
    """Return the columns of a scan with *layout*."""
    return _SCHEMAS[layout]


def spark_schema(layout: Layout) -> StructType:
    """Return the same for Spark."""
    return from_arrow_schema(arrow_schema(layout))
