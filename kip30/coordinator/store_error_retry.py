"""Handling of store errors, shared by all tasks of a coordinator."""

import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager

from kip30.errors import ClosedError, Kip30Error, LifecycleError

log: logging.Logger = logging.getLogger(__name__)


@contextmanager
def outliving_failures(task: str, try_again: Callable[[], None]) -> Generator[None]:
    """Log a failure of the block of *task*, and retry it, unless everything is being closed.

    An exception that is not kip30's is raised, because it is a bug and not a failure of the store;
    *try_again* is called nevertheless, because one such failure must not stop the task permanently.
    """
    try:
        yield
    except (ClosedError, LifecycleError) as error:
        log.debug("%s ends: %s", task, error)
    except Exception as error:
        log.info("retrying %s after: %s", task, error)
        try_again()
        if not isinstance(error, Kip30Error):
            raise
