"""What tests of the pipeline share."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from kip30.pipeline.session import open_session

_FOR_TESTS = {
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.sql.shuffle.partitions": "2",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Yield the session that all tests of the process use."""
    session = open_session("local[2]", conf=_FOR_TESTS)
    yield session
    session.stop()
