"""Keeping the driver from saying every second that the same node cannot be reached."""

import logging
import threading
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from typing import Any

from typing_extensions import override

_SOURCES = ("cassandra.cluster", "cassandra.pool")
_SECONDS = 60.0


class Quiet(logging.Filter):
    """Lets pass what the driver logs of a node once a minute; where it logs for debugging, all.

    Nothing of why no connection came about, which is raised. Concerns the nodes of one connection
    alone: a program may use the driver for its own ends.
    """

    def __init__(self, nodes: Callable[[], Iterable[Any]]) -> None:
        """Look after those that *nodes* returns."""
        super().__init__()
        self._nodes = nodes
        self._connecting: int | None = None
        self._passed: dict[tuple[str, int], float] = {}

    def begin(self) -> None:
        """Listen to what the driver logs."""
        for name in _SOURCES:
            logging.getLogger(name).addFilter(self)

    def end(self) -> None:
        """Undo `begin`."""
        for name in _SOURCES:
            logging.getLogger(name).removeFilter(self)

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        return self._is_news(record) or logging.getLogger(record.name).isEnabledFor(logging.DEBUG)

    @contextmanager
    def connecting(self) -> Generator[None]:
        """Take note that what is logged on this thread meanwhile is raised as well."""
        self._connecting = threading.get_ident()
        try:
            yield
        finally:
            self._connecting = None

    def _is_news(self, record: logging.LogRecord) -> bool:
        if record.thread == self._connecting:
            return False
        about = record.args[0] if isinstance(record.args, tuple) and record.args else None
        if not any(about is node for node in self._nodes()):
            return True
        return self._is_new(str(record.msg), id(about))

    def _is_new(self, text: str, node: int) -> bool:
        now = time.monotonic()
        if now - self._passed.get((text, node), -_SECONDS) < _SECONDS:
            return False
        self._passed[text, node] = now
        return True
