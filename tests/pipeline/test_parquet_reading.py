"""Files are read on the calling thread: with threads of Arrow's, a process may abort at its end."""

import subprocess
import sys

from kip30_conformance.polling import time_scale

_PROGRAM = """
import tempfile
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from kip30.pipeline.run.parquet_reading import batches, parsed

process, table = psutil.Process(), pa.table({name: list(range(1000)) for name in "abc"})
with tempfile.TemporaryDirectory() as folder:
    file = Path(folder) / "file.parquet"
    pq.write_table(table, file, row_group_size=300)
    before = process.num_threads()
    assert parsed(file.read_bytes()).equals(table)
    assert parsed(file.read_bytes(), ["c", "a"]).column("a").equals(table.column("a"))
    assert pa.Table.from_batches(batches(file)).equals(table)
    assert [one.num_columns for one in batches(file, ["b"])] == [1]
    assert process.num_threads() == before
"""


def test_reading_starts_no_thread() -> None:
    subprocess.run([sys.executable, "-c", _PROGRAM], check=True, timeout=60 * time_scale())
