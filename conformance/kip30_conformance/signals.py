"""Signals that processes of the tests have to heed."""

import signal
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def heeded() -> Generator[None]:
    """Have processes that are started in the block heed SIGINT and SIGHUP. Main thread only.

    A shell has what it starts in the background ignore them, and that is inherited.
    """
    ignored = [
        number
        for number in (signal.SIGINT, signal.SIGHUP)
        if signal.getsignal(number) == signal.SIG_IGN
    ]
    for number in ignored:
        signal.signal(number, signal.SIG_DFL)
    try:
        yield
    finally:
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)
