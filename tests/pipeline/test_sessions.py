"""Sessions of Spark: what jobs open, and what programs open."""

import pytest
from pyspark.sql import SparkSession

from kip30.pipeline.spark.session import running_session


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
