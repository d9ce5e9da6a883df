"""Imports gRPC without its log on standard error.

gRPC's core writes a line there for each failed handshake, and reads ``GRPC_VERBOSITY`` once, while
it is imported. A program that sets the variable, or imports gRPC itself first, decides for itself.
"""

import os
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

_VERBOSITY = "GRPC_VERBOSITY"


@contextmanager
def _quiet() -> Generator[None]:
    if _VERBOSITY in os.environ:
        yield
        return
    os.environ[_VERBOSITY] = "NONE"
    try:
        yield
    finally:
        os.environ.pop(_VERBOSITY, None)


with _quiet():
    import grpc as _grpc

grpc: Any = _grpc
