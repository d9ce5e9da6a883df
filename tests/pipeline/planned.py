"""The queries that Spark has planned."""

from typing import Any

from pyspark.sql import SparkSession


def queries(spark: SparkSession) -> int:
    """Return how many there were in the application of *spark*."""
    session: Any = spark
    found: int = session._jsparkSession.sharedState().statusStore().executionsCount()
    return found
