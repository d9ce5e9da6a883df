"""Failures of a job of Spark, as errors of kip30.

An error of a task arrives in the driver as text: the traceback of the worker. An error of kip30's
in it is raised again here in its original type.
"""

import re
from collections.abc import Generator
from contextlib import contextmanager

from pyspark.errors import AnalysisException, PySparkException

from kip30 import errors
from kip30.errors import Kip30Error, PartialWriteError
from kip30.pipeline.run.job_errors import JobFailedError

_ERROR = re.compile(r"^(?:kip30\.errors\.)(\w+): (.*)$", re.MULTILINE)
_TEXT_LIMIT = 500
_HUNG_UP = ConnectionError, TimeoutError
"""Py4J lets these of its connection to the JVM through."""


@contextmanager
def translating() -> Generator[None]:
    """Raise errors of running jobs as those of kip30 that caused them, or as `JobFailedError`.

    An `AnalysisException` stays as it is: the job itself is wrong, and fails whenever it is run.
    """
    try:
        yield
    except AnalysisException:
        raise
    except Exception as error:
        if is_of_spark(error):
            raise translated(error) from error
        raise


def is_of_spark(error: Exception) -> bool:
    """Return whether Spark, or the connection to its JVM, has raised *error*."""
    if isinstance(error, Kip30Error):  # of which one is a ConnectionError, too
        return False
    return isinstance(error, (PySparkException, *_HUNG_UP)) or _is_of_gateway(error)


def translated(error: Exception) -> Exception:
    """Return the error of kip30 that *error*, which is of Spark, describes."""
    if isinstance(error, _HUNG_UP):
        return JobFailedError(f"Spark does not answer: {error}")
    return _described(str(error))


def _is_of_gateway(error: Exception) -> bool:
    return type(error).__module__.startswith("py4j")


def _described(text: str) -> Exception:
    found = _ERROR.findall(text)
    if found:
        name, message = found[-1]
        kind: object = getattr(errors, name, None)
        if (
            isinstance(kind, type)
            and issubclass(kind, Kip30Error)
            and kind is not PartialWriteError
        ):
            return kind(message)
    return JobFailedError(_summary(text))


def _summary(text: str) -> str:
    """Return the last cause in *text*, of a worker's or of Java, or else its first line."""
    found = (line.strip().removeprefix("Caused by: ") for line in text.splitlines())
    lines = [line.removeprefix(": ") for line in found if line]  # as Py4J begins the first cause
    causes = [line for line in lines if re.match(r"[\w.]+(Error|Exception): ", line)]
    return (causes[-1] if causes else lines[0] if lines else "no reason given")[:_TEXT_LIMIT]
