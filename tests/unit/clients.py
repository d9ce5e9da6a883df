"""Clients of a real server, which is the tests' own: shared by all stores on servers."""

import itertools
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Protocol

import psutil

from kip30 import PluginLocator
from kip30.config import Written
from kip30_conformance.polling import time_scale
from kip30_conformance.servers import Ensemble

_SESSION, _OPERATION = "plugin.session.timeout.ms", "plugin.operation.timeout.ms"
PATIENT: dict[str, Written] = {
    _SESSION: round(20_000 * time_scale()),
    _OPERATION: round(10_000 * time_scale()),
}
"""For clients that have much to do, however slow the machine is."""

_NAMESPACES = itertools.count()
_DEFAULT_SESSION_SECONDS = 10.0


def timeouts(operation_seconds: float) -> dict[str, Written]:
    """Return an operation timeout that follows the machine, and a session that outlasts it."""
    operation = operation_seconds * time_scale()
    session = max(_DEFAULT_SESSION_SECONDS, 2 * operation)
    return {_SESSION: round(session * 1000), _OPERATION: round(operation * 1000)}


class Open(Protocol):
    """Opens a client with additional properties; it is closed when the test ends."""

    def __call__(self, **more: Written) -> PluginLocator: ...


def connections_to(port: int) -> int:
    """Return how many connections of this process lead to *port*."""
    found = psutil.Process().net_connections("tcp")
    return sum(getattr(one.raddr, "port", None) == port for one in found)  # () if it has none


def unused_namespace() -> str:
    """Return a namespace that no other test of the run has, in any process."""
    return f"unit-{os.getpid()}-{next(_NAMESPACES)}"


@contextmanager
def opening(
    ensemble: Ensemble, namespace: str, *, session_ms: int = 2000, operation_ms: int = 1500
) -> Iterator[Open]:
    """Yield a function that opens clients of *ensemble* in *namespace*."""
    with ExitStack() as clients:

        def open_one(**more: Written) -> PluginLocator:
            properties: dict[str, Written] = {
                _SESSION: session_ms,
                _OPERATION: operation_ms,
                **ensemble.settings(),
                "plugin.namespace": namespace,
                **more,
            }
            return clients.enter_context(PluginLocator().startup(properties))

        yield open_one
