"""The connection of an ``etcd3.Etcd3Client`` that the program has created itself.

Only the channel and the metadata of etcd3 are used. Its watches are lost when a server restarts,
and kip30 implements leases and transactions differently.
"""

import pkgutil
from typing import Any, NamedTuple

from kip30.errors import ConfigError, UnsupportedError
from kip30_backends.etcd.client.channel import Channel, Metadata
from kip30_backends.etcd.client.private_grpc import GRPC

_KEY = "plugin.etcd.client"
_SERVER = "the server of the caller's own client"


class ExternalClient(NamedTuple):
    """A channel that this package must not close, and the metadata of its owner."""

    channel: Channel
    metadata: Metadata


def borrow(reference: str) -> ExternalClient:
    """Return the channel and metadata of the client from *reference*, ``package.module:function``.

    Raises:
        ConfigError: There is no such function, or it returns no client of etcd3.
        UnsupportedError: This is a forked child: the gRPC of etcd3 is that of its parent.
    """
    if GRPC.has_forked():
        raise UnsupportedError(
            f"{_KEY} cannot be used in a process that was forked from one that had imported gRPC:"
            " set plugin.etcd.endpoints there, or start it with multiprocessing's method 'spawn'"
        )
    client = _called(_found(reference), reference)
    try:
        channel, metadata = client.channel, client.metadata
    except AttributeError as error:
        kind = type(client).__name__
        raise ConfigError(
            f"{_KEY}: {reference} returned a {kind}; it must return an etcd3.Etcd3Client"
        ) from error
    return ExternalClient(Channel(_SERVER, channel, is_ours=False), tuple(metadata or ()))


def _found(reference: str) -> Any:
    try:
        return pkgutil.resolve_name(reference)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"{_KEY}: {reference} was not found ({error}); write package.module:function"
        ) from error


def _called(function: Any, reference: str) -> Any:
    if not callable(function):
        raise ConfigError(f"{_KEY}: {reference} is not a function that returns a client")
    try:
        return function()
    except Exception as error:
        raise ConfigError(f"{_KEY}: {reference} failed: {type(error).__name__}") from error
