"""Errors of workers that their driver cannot make sense of by itself."""

import socket
from collections.abc import Generator
from contextlib import contextmanager

from kip30.errors import ConfigError


@contextmanager
def naming_worker() -> Generator[None]:
    """Let a `ConfigError` of the block name this machine.

    Environment and files of the driver may be right, and those of a worker wrong.
    """
    try:
        yield
    except ConfigError as error:
        host = socket.gethostname()
        raise ConfigError(f"a worker on {host} cannot use the configuration: {error}") from error
