"""Servers to measure on."""

from collections.abc import Generator
from contextlib import contextmanager

from kip30_conformance.servers import Ensemble, ServerMissingError, start


class NoServerError(Exception):
    """The server could not be had; the message is one line."""


@contextmanager
def running(store: str) -> Generator[Ensemble]:
    """Run one server for the time of the block, with its data in a temporary folder."""
    with _started(store) as ensemble:
        yield ensemble


def _started(store: str) -> Ensemble:
    try:
        return start(store)
    except ServerMissingError as error:
        raise NoServerError(str(error)) from error
    except (AssertionError, OSError) as error:
        first = next(iter(str(error).splitlines()), type(error).__name__)
        raise NoServerError(f"{store} did not start: {first}") from error
