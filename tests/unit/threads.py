"""A system that has no thread to spare."""

import threading
from collections.abc import Generator
from contextlib import contextmanager

import pytest


@contextmanager
def no_threads(prefix: str = "") -> Generator[None]:
    """Refuse every thread whose name begins with *prefix*, in the words of CPython."""
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name.startswith(prefix):
            raise RuntimeError("can't start new thread")
        start(thread)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        yield
