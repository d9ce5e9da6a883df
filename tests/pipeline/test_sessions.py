"""Sessions of Spark: what jobs open, and what programs open."""

from collections.abc import Iterator

import pyarrow as pa
import pyspark
import pytest
from pyspark.sql import SparkSession

from kip30.pipeline.spark.session import running_session
from kip30.pipeline.spark.worker_daemon import without_zips


def test_a_job_looks_for_no_data_sources(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs need none, and each look costs the start of two processes."""
    new = spark.newSession()
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: new)
    with running_session() as session:
        assert session is new
        with pytest.raises(Exception, match="DATA_SOURCE_NOT_FOUND"):
            session.read.format("kip30").load()


def test_local_workers_have_compiled_code(spark: SparkSession) -> None:
    """Each daemon would compile the content of Spark's zip file anew."""

    # Here, because workers cannot import the modules of tests.
    def place(_: int) -> str:
        return pyspark.__file__

    def places(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"place": [pyspark.__file__]})

    found = spark.sparkContext.parallelize([0], 1).map(place).collect()
    assert found == [pyspark.__file__]
    frame = spark.range(1).mapInArrow(places, "place string")
    assert [row.place for row in frame.collect()] == [pyspark.__file__]


def test_only_sparks_own_zip_files_are_left_out() -> None:
    others = ["", "/a/pyspark.zip.d", "/b/kip30.zip", "/c/site-packages"]
    zips = ["/s/python/lib/pyspark.zip", "/s/python/lib/py4j-0.10.9.9-src.zip"]
    assert without_zips([*zips, *others]) == others
