"""Pages of a scan as batches of Arrow."""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from kip30.driver.scanning import Layout, Page, Rejected
from kip30.pipeline.spark.schemas import VERSION, arrow_schema

_REJECTED_KIND = ""


def batches(page: Page, moving: Sequence[bool], layout: Layout) -> Iterator[pa.RecordBatch]:
    """Yield *page* as batches: its records, and then what was rejected.

    Args:
        page: What a scan yielded.
        moving: Whether each record was changed after the position of the scan.
        layout: That of the scan.
    """
    if page.keys:
        yield (_raw_records if layout is Layout.RAW else _records)(page, moving, layout)
    if page.rejected:
        yield _rejected(page.rejected, layout)


def _records(page: Page, moving: Sequence[bool], layout: Layout) -> pa.RecordBatch:
    keys = pa.array(page.keys, pa.binary()).cast(pa.string())
    columns: list[Any] = [keys, pa.array(page.data, pa.binary()), *_common(page, moving)]
    return pa.RecordBatch.from_arrays(columns, schema=arrow_schema(layout))


def _raw_records(page: Page, moving: Sequence[bool], layout: Layout) -> pa.RecordBatch:
    columns: list[Any] = [
        pa.array(page.keys, pa.binary()),
        pa.array(list(map(_text, page.keys)), pa.string()),
        pa.array(page.data, pa.binary()),
        pa.array([_kind(owner) for owner in page.owners], pa.string()),
    ]
    return pa.RecordBatch.from_arrays(
        [*columns, *_common(page, moving)], schema=arrow_schema(layout)
    )


def _common(page: Page, moving: Sequence[bool]) -> list[Any]:
    return [
        _versions(page.majors, page.minors),
        pa.array(page.created, pa.int64()),
        pa.array(page.modified, pa.int64()),
        pa.array(page.owners, pa.string()),
        pa.array(moving, pa.bool_()),
        pa.nulls(len(page.keys), pa.string()),
        *[pa.nulls(len(page.keys), pa.binary())] * 2,
    ]


def _rejected(rejected: Sequence[Rejected], layout: Layout) -> pa.RecordBatch:
    number = len(rejected)
    keys = [one.key for one in rejected]
    shown = [key.decode(errors="backslashreplace") for key in keys]
    empty = pa.array([b""] * number, pa.binary())
    common: list[Any] = [
        _versions([0] * number, [0] * number),
        pa.nulls(number, pa.int64()),
        pa.nulls(number, pa.int64()),
        pa.nulls(number, pa.string()),
        pa.array([False] * number, pa.bool_()),
        pa.array([one.reason for one in rejected], pa.string()),
        pa.array([one.record for one in rejected], pa.binary()),
        pa.array([one.prefix for one in rejected], pa.binary()),
    ]
    if layout is not Layout.RAW:
        return pa.RecordBatch.from_arrays(
            [pa.array(shown), empty, *common], schema=arrow_schema(layout)
        )
    texts = pa.array(list(map(_text, keys)), pa.string())
    kinds = pa.array([_REJECTED_KIND] * number, pa.string())
    columns: list[Any] = [pa.array(keys, pa.binary()), texts, empty, kinds]
    return pa.RecordBatch.from_arrays([*columns, *common], schema=arrow_schema(layout))


def _versions(majors: Sequence[int], minors: Sequence[int]) -> pa.StructArray:
    parts = [pa.array(majors, pa.int64()), pa.array(minors, pa.int64())]
    return pa.StructArray.from_arrays(parts, fields=list(VERSION))


def _text(key: bytes) -> str | None:
    try:
        return key.decode()
    except UnicodeDecodeError:
        return None


def _kind(owner: str | None) -> str:
    return "persistent" if owner is None else "ephemeral"
