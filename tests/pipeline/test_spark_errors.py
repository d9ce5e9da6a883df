"""Errors of Spark, and of the connection to its JVM, are those of kip30."""

import pytest
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException, PySparkRuntimeError

from kip30 import KeyMissingError, Kip30Error, OutcomeUnknownError, UnavailableError
from kip30.pipeline.run.job_errors import JobFailedError
from kip30.pipeline.spark.errors import translating


@pytest.mark.parametrize(
    "error", [ConnectionRefusedError("refused"), BrokenPipeError("torn"), TimeoutError("late")]
)
def test_a_jvm_that_is_gone_does_not_answer(error: Exception) -> None:
    with pytest.raises(JobFailedError, match=f"^Spark does not answer: {error}$"), translating():
        raise error


@pytest.mark.parametrize("kind", [Py4JError, PySparkRuntimeError])
def test_an_error_of_spark_fails_the_job(kind: type[Exception]) -> None:
    with pytest.raises(JobFailedError, match=r"^no space left$"), translating():
        raise kind("no space left")


def test_the_error_of_a_task_is_raised_in_its_type() -> None:
    text = "Traceback (most recent call last):\nkip30.errors.KeyMissingError: there is no 'a'"
    with pytest.raises(KeyMissingError, match=r"^there is no 'a'$"), translating():
        raise Py4JError(text)


@pytest.mark.parametrize("kind", [UnavailableError, OutcomeUnknownError])
def test_an_error_of_kip30_in_the_driver_stays(kind: type[Kip30Error]) -> None:
    error = kind("no server answers")
    with pytest.raises(kind) as raised, translating():
        raise error
    assert raised.value is error


def test_other_errors_stay() -> None:
    with pytest.raises(AnalysisException), translating():
        raise AnalysisException("no such column")
    with pytest.raises(PermissionError), translating():
        raise PermissionError("not yours")
