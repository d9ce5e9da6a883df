"""Restores the default handling of signals in processes of the tests."""

import signal
from collections.abc import Generator
from contextlib import contextmanager

HEEDED = (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


@contextmanager
def heeded() -> Generator[None]:
    """Make processes that are started in the block heed `HEEDED`. Main thread only.

    Shells ignore SIGINT and SIGQUIT in what they start in the background, `nohup` ignores SIGHUP,
    and children inherit that.
    """
    ignored = [number for number in HEEDED if signal.getsignal(number) == signal.SIG_IGN]
    for number in ignored:
        signal.signal(number, signal.SIG_DFL)
    try:
        yield
    finally:
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)
