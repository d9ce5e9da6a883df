"""Files of a scan: they hold the rows that were scanned, or they do not count."""

import functools
import operator
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from kip30 import StoreError
from kip30.driver.scanning import Layout, Page, Rejected, Row
from kip30.pipeline.compare.record_digests import with_digest
from kip30.pipeline.run import scan_files
from kip30.pipeline.run.manifest import DataFile
from kip30.pipeline.run.scan_files import FILE_BYTES, ScanFile, read_whole, slices, write_scan
from kip30.pipeline.spark.arrow_pages import batches
from kip30.pipeline.spark.schemas import spark_schema

VALUES = [b"", b"v", bytes(range(256)) * 20, "ü".encode()]


def rows(values: Sequence[bytes | None], first: int = 0) -> list[Row]:
    return [
        Row(b"n/k%05d" % number, value, number, 1, None, None, None)
        for number, value in enumerate(values, first)
    ]


def page(found: Sequence[Row], layout: Layout = Layout.KIP30) -> Iterator[pa.RecordBatch]:
    rejected = [Rejected(b"n/odd", "why")]
    return batches(Page.of(found, rejected), [False] * len(found), layout)


def in_folder(folder: Path, written: ScanFile) -> pa.Table:
    return read_whole(folder, DataFile(written.name, written.size, written.checksum))


@pytest.mark.parametrize("layout", [Layout.KIP30, Layout.RAW])
def test_digests_are_those_that_spark_computes(
    spark: SparkSession, tmp_path: Path, layout: Layout
) -> None:
    values = VALUES if layout is Layout.KIP30 else [*VALUES, None]
    (written,) = write_scan(page(rows(values), layout), tmp_path)
    here = {
        (one["version"]["major"], one["value_bytes"], one["digest"])
        for one in in_folder(tmp_path, written).to_pylist()
    }
    found = spark.createDataFrame([], spark_schema(layout)).schema
    frame = spark.read.schema(found).parquet(f"file://{tmp_path / written.name}")
    there = with_digest(frame).select("version.major", "value_bytes", "digest").collect()
    assert here == set(map(tuple, there))


def test_the_measures_of_a_file_are_of_its_records(tmp_path: Path) -> None:
    values = VALUES * 50  # the sum of their digests has more than 64 bits
    moving = [number % 3 == 0 for number in range(len(values))]
    found = Page.of(rows(values), [Rejected(b"n/odd", "why")])
    (written,) = write_scan(batches(found, moving, Layout.KIP30), tmp_path)
    table = in_folder(tmp_path, written)
    hashes = [one["digest"] for one in table.to_pylist() if one["rejected"] is None]
    assert (written.rows, written.rejected) == (len(values), 1)
    assert written.moving == sum(moving)
    assert abs(sum(hashes)) > 2**64
    assert int(written.total) == sum(hashes)
    assert written.xor == functools.reduce(operator.xor, hashes)
    assert written.value_bytes == sum(map(len, values))


def test_a_file_ends_at_its_size_whatever_size_the_values_have(tmp_path: Path) -> None:
    value, number = bytes(250_000), 200
    pages = (batch for first in range(number) for batch in page(rows([value], first)))
    found = list(write_scan(pages, tmp_path))
    assert sum(one.rows for one in found) == number
    assert len(found) == -(-number * len(value) // FILE_BYTES)
    for one in found:
        assert pq.read_metadata(tmp_path / one.name).num_row_groups == 1


def test_only_some_columns_are_kept_and_the_path_is_the_key(tmp_path: Path) -> None:
    (written,) = write_scan(page(rows(VALUES), Layout.RAW), tmp_path, ("path", "digest"))
    assert in_folder(tmp_path, written).column_names == ["key", "digest"]
    assert written.rows == len(VALUES)


@pytest.mark.parametrize("place", range(20))
def test_a_byte_that_changes_on_the_way_to_the_disk_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    write: Callable[[Path, pa.Table], None] = scan_files._write

    def damaged(path: Path, table: pa.Table) -> None:
        write(path, table)
        data = bytearray(path.read_bytes())
        data[len(data) * place // 20] ^= 0x40
        path.write_bytes(data)

    monkeypatch.setattr(scan_files, "_write", damaged)
    values = [os.urandom(3_000) for _ in range(50)]
    try:
        (written,) = write_scan(page(rows(values)), tmp_path)
    except StoreError as error:
        assert str(tmp_path) in str(error)  # noqa: PT017  a byte of Parquet's own may not matter
    else:
        found = in_folder(tmp_path, written).to_pylist()
        assert [one["value"] for one in found][:-1] == values


@pytest.mark.parametrize("place", range(20))
def test_a_byte_that_changes_later_is_noticed_by_the_next_read(tmp_path: Path, place: int) -> None:
    (written,) = write_scan(page(rows([os.urandom(3_000)] * 20)), tmp_path)
    path = tmp_path / written.name
    data = bytearray(path.read_bytes())
    data[len(data) * place // 20] ^= 0x01
    path.write_bytes(data)
    with pytest.raises(StoreError, match=written.name):
        in_folder(tmp_path, written)


def test_other_rows_than_were_written_are_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write: Callable[[Path, pa.Table], None] = scan_files._write
    monkeypatch.setattr(scan_files, "_write", lambda path, table: write(path, table.slice(1)))
    with pytest.raises(StoreError, match="holds other rows than were written"):
        list(write_scan(page(rows(VALUES)), tmp_path))


def test_slices_are_cut_by_their_size() -> None:
    table = pa.table({"value": pa.array([bytes(1_000)] * 100)})
    parts: Any = list(slices(table, 10_000))
    assert sum(map(len, parts)) == 100
    assert all(9 <= len(part) <= 10 for part in parts[:-1])
    assert [len(part) for part in slices(table, 1)] == [1] * 100
    assert list(slices(table.slice(0, 0), 1)) == []
