"""P15: the number of writes a second of a restore, by the times at which they were sent."""

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kip30.pipeline.run.directory import read_manifest
from kip30.pipeline.stores.endpoints import parse_endpoint, store_endpoint
from kip30.pipeline.transfer import snapshot
from kip30_conformance.polling import time_scale
from tests.unit.pipeline.test_rate_limit import most_in_a_second

from .odd_stores import times_beside
from .store import embedded, write_properties

# Enough for four tasks to share, and so slow that they overlap for seconds: on a busy machine their
# processes start one by one.
_KEYS = 800
_RATE = 80


@pytest.fixture(scope="module")
def taken(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a snapshot of files that four tasks can share."""
    folder = tmp_path_factory.mktemp("taken")
    source = store_endpoint(parse_endpoint(str(embedded(folder, _KEYS))))
    options = snapshot.SnapshotOptions(source=source, out=folder / "run", span_rows=40)
    snapshot.run(spark, options)
    assert sum(len(wave.files) for wave in read_manifest(folder / "run").waves) >= 4
    return folder / "run"


@pytest.mark.large
@pytest.mark.parametrize("slots", [1, 2, 4])
def test_no_second_has_more_than_the_rate(taken: Path, tmp_path: Path, slots: int) -> None:
    """P15: `kip30 pipeline restore` with all its waves, tasks and processes."""
    target = tmp_path / "target"
    settings = {
        "plugin.locator.classname": "odd_stores:Timed",
        "plugin.additional.paths": Path(__file__).parent,
        "plugin.embedded.directory": target,
    }
    file = write_properties(tmp_path / "target.properties", settings)
    words = ["restore", taken, file, "--out", tmp_path / "run", "--rate", _RATE]
    call = [sys.executable, "-m", "kip30", "pipeline", *words, "--master", f"local[{slots}]"]
    subprocess.run(list(map(str, call)), check=True, timeout=120 * time_scale())
    times = times_beside(target)
    assert len(times) == _KEYS
    assert most_in_a_second(times) <= 1.1 * _RATE
