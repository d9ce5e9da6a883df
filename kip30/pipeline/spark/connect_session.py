"""A session of a Spark Connect server: its requirements, and a check that the server is there."""

import re
import socket

from pyspark.sql import SparkSession

from kip30.errors import UnavailableError, UsageError

_ADDRESS = re.compile(r"sc://(\[[^\]]+\]|[^/:;\s]+)(?::([0-9]{1,5}))?(?:/.*)?")
_PORT = 15002
"""The port of a server by default, as Spark's documentation of Connect says."""
_CONNECT_SECONDS = 10.0


def open_remote(builder: SparkSession.Builder, remote: str) -> SparkSession:
    """Return a session of the server at *remote*, such as ``sc://host:15002``.

    Spark's client tries for ten minutes to reach a server that is not there, and cannot be
    interrupted meanwhile. So a connection is tried first.

    Raises:
        UsageError: *remote* is no address of such a server, or a package is missing here.
        UnavailableError: No server accepts connections there.
    """
    host, port = _host_and_port(remote)
    try:
        socket.create_connection((host, port), _CONNECT_SECONDS).close()
    except OSError as error:
        raise UnavailableError(
            f"there is no Spark Connect server at {host}:{port}: {error}"
        ) from None
    try:
        return builder.remote(remote).getOrCreate()
    except ImportError as error:
        raise UsageError(
            f"--remote needs more packages: pip install 'pyspark[connect]' ({error})"
        ) from None


def _host_and_port(remote: str) -> tuple[str, int]:
    found = _ADDRESS.fullmatch(remote)
    if found is None or int(found[2] or _PORT) >= 2**16:
        raise UsageError(
            f"--remote {remote}: write the address of the server, as sc://host:{_PORT}"
        )
    return found[1].strip("[]"), int(found[2] or _PORT)
