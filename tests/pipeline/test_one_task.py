"""Which sides are compared in one task, and what a task does with files that it cannot read."""

import re
from pathlib import Path

import pyarrow as pa
import pytest

from kip30.driver.scanning import Layout, Page, Rejected
from kip30.errors import StoreError
from kip30.pipeline.compare import one_task
from kip30.pipeline.compare.one_task import fit_one_task
from kip30.pipeline.compare.side_files import SideFiles
from kip30.pipeline.run.report import MOST_FINDINGS
from kip30.pipeline.run.scan_files import write_scan
from kip30.pipeline.spark.arrow_pages import batches


def side_of(folder: Path, keys: list[bytes], rejected: int = 0, value: bytes = b"v") -> SideFiles:
    """Return a raw side, as a snapshot has it in its files."""
    number = len(keys)
    page = Page(
        keys=keys,
        data=[value] * number,
        majors=[1] * number,
        minors=[0] * number,
        created=[None] * number,
        modified=[None] * number,
        owners=[None] * number,
        rejected=[Rejected(b"/bad/%d" % one, "why", None, None) for one in range(rejected)],
    )
    rows = batches(page, [False] * number, Layout.RAW)
    names = tuple(file.name for file in write_scan(rows, folder))
    return SideFiles(folder, names, Layout.RAW, "path")


def test_sides_that_one_task_can_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By rows, by files, and by the bytes of what is compared: values do not count."""
    keys = [b"/k%03d" % number for number in range(100)]
    sides = {"left": side_of(tmp_path, keys, value=b"v" * 1000), "right": side_of(tmp_path, keys)}
    assert fit_one_task(sides, 250_000)
    assert not fit_one_task(sides, 250_001)
    size = sum(one.bytes() for one in sides.values())
    assert 2 * 100 * len(keys[0]) < size < 20_000
    with monkeypatch.context() as patched:
        patched.setattr(one_task, "_MOST_BYTES", size - 1)
        assert not fit_one_task(sides, 200)
    monkeypatch.setattr(one_task, "_MOST_FILES", 1)
    assert not fit_one_task(sides, 200)


def test_a_side_without_files_has_the_columns(tmp_path: Path) -> None:
    for layout, key in ((Layout.RAW, "path"), (Layout.KIP30, "key")):
        empty = SideFiles(tmp_path, (), layout, key).table()
        assert empty.num_rows == 0
        assert empty.column_names[0] == key
    some = side_of(tmp_path, [b"/k"]).table()
    assert SideFiles(tmp_path, (), Layout.RAW, "path").table().schema.equals(some.schema)


def test_rejected_rows_are_named(tmp_path: Path) -> None:
    side = side_of(tmp_path, [b"/k"], rejected=MOST_FINDINGS + 5)
    found = side.rejected()
    assert len(found) == MOST_FINDINGS
    assert found[0] == {"key": "/bad/0", "outcome": "rejected", "detail": "why"}


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    side = side_of(tmp_path, [b"/k%03d" % number for number in range(100)])
    file = tmp_path / side.names[0]
    for content in (file.read_bytes()[:-9], b""):
        file.write_bytes(content)
        for read in (side.table, side.bytes, side.rejected):
            with pytest.raises(StoreError, match=re.escape(f"{file} cannot be read")):
                read()
    file.unlink()
    with pytest.raises(StoreError, match=re.escape(f"{file} cannot be read")):
        side.table()


def test_columns_are_read_by_their_names(tmp_path: Path) -> None:
    """In the order of the columns that are compared, whatever order a file has."""
    table = side_of(tmp_path, [b"/k"]).table()
    expected = [
        "path",
        "version",
        "value_bytes",
        "digest",
        "moving",
        "rejected",
        "record",
        "prefix",
    ]
    assert table.column_names == expected
    assert pa.types.is_binary(table.schema.field("path").type)
