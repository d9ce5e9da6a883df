"""Tasks that are called with numbers: by an RDD, and by a DataFrame where there are no RDDs."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from kip30.errors import StoreError
from kip30.pipeline.spark import tasks
from kip30.pipeline.spark.errors import translating
from kip30.pipeline.spark.tasks import run_tasks

from .planned import queries

COLUMNS = "number bigint, name string"
EXPECTED = [(number, f"{number}-{row}") for number in range(3) for row in range(number)]


@pytest.fixture(params=["rdd", "frame"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "frame":
        monkeypatch.setattr(tasks, "context_of", lambda _: None)
    return str(request.param)


def test_rows_of_all_tasks_are_returned(spark: SparkSession, way: str) -> None:
    """In the order of their numbers. Only a DataFrame is planned."""

    # Here, because workers cannot import the modules of tests.
    def rows(number: int) -> Iterator[tuple[int, str]]:
        for row in range(number):
            yield number, f"{number}-{row}"

    before = queries(spark)
    assert list(map(tuple, run_tasks(spark, 3, rows, COLUMNS))) == EXPECTED
    assert (queries(spark) > before) == (way == "frame")


@pytest.mark.usefixtures("way")
def test_an_error_of_a_task_arrives_as_it_is(spark: SparkSession) -> None:
    def fail(number: int) -> Iterator[tuple[int, str]]:
        raise StoreError(f"{number}: broken")

    with pytest.raises(StoreError, match=r"^0: broken$"), translating():
        run_tasks(spark, 1, fail, COLUMNS)
