"""The only file that knows gRPC: one channel to one server, and the calls it offers."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol, cast

import grpc

from kip30.errors import ConfigError
from kip30_backends.etcd.errors import Failure
from kip30_backends.etcd.messages import MESSAGES, WatchAnswer
from kip30_backends.etcd.settings import EtcdSettings

Metadata = tuple[tuple[str, str], ...]

RANGE = "KV/Range"
TXN = "KV/Txn"
LEASE_GRANT = "Lease/LeaseGrant"
LEASE_REVOKE = "Lease/LeaseRevoke"
LEASE_KEEP_ALIVE = "Lease/LeaseKeepAlive"
"""A stream of the API. One request and one answer of it are a call like any other."""
AUTHENTICATE = "Auth/Authenticate"
STATUS = "Maintenance/Status"
_WATCH = "Watch/Watch"

_UNARY = (RANGE, TXN, LEASE_GRANT, LEASE_REVOKE, LEASE_KEEP_ALIVE, AUTHENTICATE, STATUS)

GRPC_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # etcd ends connections that ping more often than every five seconds. Both of the http2 options
    # are needed for a silent peer to be noticed at all while a watch waits.
    ("grpc.keepalive_time_ms", 5000),
    ("grpc.keepalive_timeout_ms", 2000),
    ("grpc.http2.ping_timeout_ms", 2000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 500),
    # A write is sent once, and each client has connections of its own.
    ("grpc.enable_retries", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
)
"""What a channel needs so that long lists arrive and a peer that fell silent is noticed."""


class Rpc(Protocol):
    """A call under way."""

    def result(self, timeout: float | None = None) -> Any:
        """Return the answer, or raise what `failure_of` reads."""
        ...

    def add_done_callback(self, callback: Callable[["Rpc"], None]) -> None:
        """Have *callback* called when it has ended, on a thread of gRPC."""
        ...

    def code(self) -> Any:
        """Return gRPC's status code."""
        ...

    def details(self) -> str | None:
        """Return what was said with it."""
        ...

    def cancel(self) -> object:
        """End it."""
        ...


class Stream(Rpc, Protocol):
    """A stream of a watch."""

    def __iter__(self) -> Iterator[WatchAnswer]:
        """Iterate over what comes; ends by raising `CallError`."""
        ...


CallError = cast("type[Exception]", grpc.RpcError)
"""What `Channel.ask` and a stream raise when they fail; `failure_of` reads it."""


class Channel:
    """A connection to one server, made when it is needed and again when it was lost.

    Attributes:
        server: Its name in messages.
        is_ours: Whether `close` closes it.
    """

    def __init__(self, server: str, grpc_channel: Any, *, is_ours: bool = True) -> None:
        """Call by *grpc_channel*."""
        self.server = server
        self.is_ours = is_ours
        self._channel = grpc_channel
        self._unary = {path: self._stub(path) for path in _UNARY}
        self._watch = self._channel.stream_stream(
            *_method(_WATCH), response_deserializer=MESSAGES["WatchResponse"].FromString
        )

    def call(self, path: str, request: Any, seconds: float, metadata: Metadata) -> Rpc:
        """Send *request*; the call ends within *seconds*.

        Raises:
            ValueError: The channel is closed.
        """
        method = self._unary[path]
        rpc: Rpc = method.future(request, timeout=_timeout(seconds), metadata=metadata)
        return rpc

    def ask(self, path: str, request: Any, seconds: float, metadata: Metadata) -> Any:
        """Send *request* and return the answer, within *seconds*.

        Raises:
            CallError: It failed.
            ValueError: The channel is closed.
        """
        return self._unary[path](request, timeout=_timeout(seconds), metadata=metadata)

    def watch(self, requests: Iterator[Any], metadata: Metadata) -> Stream:
        """Open a stream of *requests*, which gRPC takes from a thread of its own.

        Raises:
            ValueError: The channel is closed.
        """
        stream: Stream = self._watch(requests, metadata=metadata)
        return stream

    def close(self) -> None:
        """End all calls and the connection; those of somebody else go on."""
        if self.is_ours:
            self._channel.close()

    def _stub(self, path: str) -> Any:
        answer = MESSAGES[path.rpartition("/")[2] + "Response"]
        return self._channel.unary_unary(*_method(path), response_deserializer=answer.FromString)


def is_ok(rpc: Rpc) -> bool:
    """Say whether a call that has ended was answered."""
    return rpc.code() is grpc.StatusCode.OK


def failure_of(rpc: Rpc | Exception) -> Failure:
    """Return how a call that has ended failed; a `CallError` is such a call itself."""
    rpc = cast("Rpc", rpc)
    code = rpc.code()
    return Failure("CANCELLED" if code is None else code.name, rpc.details() or "")


def channels(settings: EtcdSettings) -> list[Channel]:
    """Return a channel to each server of *settings*. Nothing is connected yet.

    Raises:
        ConfigError: A file of *settings* cannot be read.
    """
    credentials = _credentials(settings) if settings.secure else None
    return [_open(str(address), credentials) for address in settings.endpoints]


def _open(server: str, credentials: Any) -> Channel:
    library: Any = grpc
    if credentials is None:
        return Channel(server, library.insecure_channel(server, options=GRPC_OPTIONS))
    return Channel(server, library.secure_channel(server, credentials, options=GRPC_OPTIONS))


def _credentials(settings: EtcdSettings) -> Any:
    library: Any = grpc
    return library.ssl_channel_credentials(
        _content("plugin.etcd.tls.ca", settings.tls_ca),
        _content("plugin.etcd.tls.key", settings.tls_key),
        _content("plugin.etcd.tls.cert", settings.tls_cert),
    )


def _content(key: str, file: Path | None) -> bytes | None:
    try:
        return None if file is None else file.read_bytes()
    except OSError as error:
        raise ConfigError(f"{key}: {file} cannot be read: {error.strerror}") from error


def _timeout(seconds: float) -> float:
    """Return what makes gRPC's deadline *seconds* from now.

    It adds `time.time`, which programs under test replace, to what is a time of the system.
    """
    return seconds + time.clock_gettime(time.CLOCK_REALTIME) - time.time()


def _method(path: str) -> tuple[str, Callable[[Any], bytes]]:
    return f"/etcdserverpb.{path}", _serialized


def _serialized(message: Any) -> bytes:
    data: bytes = message.SerializeToString()
    return data
