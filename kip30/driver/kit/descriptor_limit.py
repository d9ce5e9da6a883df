"""The limits on open file descriptors, named before or after something meets them."""

import errno
import os
import resource
from contextlib import ExitStack

from kip30.errors import StoreError

_NEEDED = 8
"""About as many as a store opens before its first request."""


def shortage(needed: int = _NEEDED) -> str:
    """Return which limit leaves fewer than *needed* descriptors; empty if none does."""
    with ExitStack() as opened:
        try:
            for _ in range(needed):
                opened.callback(os.close, os.open(os.devnull, os.O_RDONLY))
        except OSError as error:
            return named(error)
    return ""


def named(error: OSError) -> str:
    """Return which limit on descriptors *error* is about; empty if it is about none."""
    if error.errno == errno.EMFILE:
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return f"this process has too few file descriptors left of its {most}: raise `ulimit -n`"
    if error.errno == errno.ENFILE:
        return "this system has too few file descriptors left: see fs.file-max"
    return ""


def require(needed: int = _NEEDED) -> None:
    """Return if *needed* descriptors are left; some libraries abort the process without one.

    Raises:
        StoreError: Fewer are left; the message names the limit.
    """
    if found := shortage(needed):
        raise StoreError(found)
