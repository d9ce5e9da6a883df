"""Functions that tasks of Spark call once for each number, and whose rows the driver gets."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark import SparkContext
from pyspark.errors import PySparkAttributeError
from pyspark.sql import SparkSession

Row = Sequence[Any]


def run_tasks(
    session: SparkSession, number: int, task: Callable[[int], Iterable[Row]], columns: str
) -> list[Row]:
    """Call *task* with each number below *number*, in a task each, and return the rows it yields.

    A DataFrame costs a plan and generated code, much more than an RDD; a session of Spark Connect
    has nothing else.

    Args:
        session: The session.
        number: How many tasks there are.
        task: What each does; Spark may repeat it.
        columns: Those of a row, in Spark's words.
    """
    context = context_of(session)
    if context is None:
        return _by_a_frame(session, number, task, columns)

    def rows(numbers: Iterable[int]) -> Iterator[Row]:
        for one in numbers:
            yield from map(tuple, task(one))

    return context.parallelize(range(number), number).mapPartitions(rows).collect()


def _by_a_frame(
    session: SparkSession, number: int, task: Callable[[int], Iterable[Row]], columns: str
) -> list[Row]:
    names = [column.split()[0] for column in columns.split(",")]

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for one in task_numbers(batches):
            for row in task(one):
                arrays: list[Any] = [pa.array([field]) for field in row]
                yield pa.RecordBatch.from_arrays(arrays, names=names)

    found = session.range(0, number, 1, number).mapInArrow(rows, columns).collect()
    return list(map(tuple, found))


def task_numbers(batches: Iterable[pa.RecordBatch]) -> Iterator[int]:
    """Yield the numbers of tasks that *batches*, of ``spark.range``, have."""
    for batch in batches:
        found: Any = batch.column(0).to_pylist()
        yield from found


def context_of(session: SparkSession) -> SparkContext | None:
    """Return the context of *session*; None if it is one of Spark Connect, which has none."""
    try:
        return session.sparkContext
    except PySparkAttributeError:
        return None
