"""Answers of the embedded store that come late: it has no server that could be stopped."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kip30 import PluginLocator
from kip30_backends.embedded import EmbeddedBackend


@contextmanager
def late_answers(client: PluginLocator) -> Iterator[None]:
    """Do what *client* writes, and say so in the end."""
    backend = client.backend
    assert isinstance(backend, EmbeddedBackend)
    database, ended = backend._resources.database, threading.Event()
    write = database.write

    def write_late(*given: Any, **options: Any) -> Any:
        try:
            return write(*given, **options)
        finally:
            ended.wait()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "write", write_late)
        try:
            yield
        finally:
            ended.set()
