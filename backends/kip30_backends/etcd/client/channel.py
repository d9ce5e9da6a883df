"""One gRPC channel to one server, and the calls it offers.

gRPC starts the thread that serves the calls of a channel with the first of several calls, and
counts the call before it does. If the system cannot start a thread, the call stays counted and no
thread serves it: no later call starts the thread, so none would ever end, and closing the channel
would wait for them without a limit. gRPC offers no remedy, so this module repeats what gRPC does
inside.
"""

import logging
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Protocol, cast

from kip30.config.tls import Signature, TlsFiles
from kip30.driver.kit.thread_start import start_eventually
from kip30.errors import ConfigError, StoreError
from kip30_backends.etcd.client.messages import MESSAGES, WatchAnswer
from kip30_backends.etcd.client.private_grpc import GRPC
from kip30_backends.etcd.errors import Failure
from kip30_backends.etcd.settings import EtcdSettings


def unencrypted(files: TlsFiles) -> bytes | None:
    """Return the private key of *files*, decrypted in memory alone, or None if there is none.

    *files* must have been checked by `TlsFiles.context`.

    Raises:
        ConfigError: The file cannot be read.
    """
    content = files.content("key", files.key)
    if content is None or files.password is None or b"ENCRYPTED" not in content:
        return content
    # Imported for encrypted keys alone, because the import is slow.
    from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415
        Encoding,
        NoEncryption,
        PrivateFormat,
        load_pem_private_key,
    )

    key = load_pem_private_key(content, files.password.current().encode())
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


# ruff: noqa: SLF001  see above


_START = "_run_channel_spin_thread"


def lacks_server(error: RuntimeError) -> bool:
    """Return whether *error*, raised by gRPC, leaves a call that no thread serves."""
    return any(frame == _START for frame in _functions(error.__traceback__))


def serve(channel: Any) -> None:
    """Start the thread that *channel* lacks.

    Raises:
        RuntimeError: The system still cannot start one.
    """
    # By way of its methods: a process may have several instances of gRPC.
    channel.close.__func__.__globals__[_START](channel._call_state)


def _functions(traceback: TracebackType | None) -> list[str]:
    names: list[str] = []
    while traceback is not None:
        names.append(traceback.tb_frame.f_code.co_name)
        traceback = traceback.tb_next
    return names


log: logging.Logger = logging.getLogger(__name__)

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
    # etcd ends connections that ping more often than every five seconds. Both http2 options are
    # needed to detect a silent peer while a watch waits.
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
"""Options of a channel, so that long lists arrive and a peer that fell silent is noticed."""


class Rpc(Protocol):
    """A call under way."""

    def result(self, timeout: float | None = None) -> Any:
        """Return the answer, or raise what `failure_of` reads."""
        ...

    def add_done_callback(self, callback: Callable[["Rpc"], None]) -> None:
        """Call *callback* when it has ended, on a thread of gRPC."""
        ...

    def code(self) -> Any:
        """Return gRPC's status code."""
        ...

    def details(self) -> str | None:
        """Return the message of the status."""
        ...

    def cancel(self) -> object:
        """Cancel it."""
        ...


class WatchRpc(Rpc, Protocol):
    """A stream of a watch."""

    def __iter__(self) -> Iterator[WatchAnswer]:
        """Iterate over the responses; ends by raising one of `GrpcLibrary.call_errors`."""
        ...


class NoThreadError(Exception):
    """The system cannot start another thread. The request may have been sent."""


class Channel:
    """A connection to one server, made on demand, and again after it was lost.

    Attributes:
        server: Its name in messages.
        is_ours: Whether `close` closes it; if not, its owner does.
        successor: Returns the channel to use in its place if its TLS files have changed, or None.
    """

    def __init__(
        self,
        server: str,
        grpc_channel: Any,
        *,
        is_ours: bool = True,
        successor: Callable[[], "Channel | None"] = lambda: None,
    ) -> None:
        """Send calls over *grpc_channel*."""
        self.server = server
        self.is_ours = is_ours
        self.successor = successor
        self._is_inherited = False
        """True if this belongs to the parent process; set once, by `abandon`."""
        self._lacks_server = False
        """True if no thread serves calls; written under `_lock`."""
        self._lock = threading.Lock()
        self._starting = threading.Lock()
        """Held while a call starts that needs a thread."""
        self._is_closing = False
        """True if calls that need a thread may no longer start; written under `_starting`."""
        self._channel: Any = grpc_channel
        self._unary: dict[str, Any] = {path: self._stub(path) for path in _UNARY}
        self._watch: Any = self._channel.stream_stream(
            *_method(_WATCH), response_deserializer=MESSAGES["WatchResponse"].FromString
        )

    def call(self, path: str, request: Any, seconds: float, metadata: Metadata) -> Rpc:
        """Send *request*; the call ends within *seconds*.

        Raises:
            NoThreadError: The system cannot start another thread. The request may have been sent.
            ValueError: The channel is closed.
        """
        self._require_own()
        with self._starting_threads():
            method = self._unary[path]
            rpc: Rpc = method.future(request, timeout=_timeout(seconds), metadata=metadata)
        return rpc

    def ask(self, path: str, request: Any, seconds: float, metadata: Metadata) -> Any:
        """Send *request* and return the answer, within *seconds*.

        Raises:
            Exception: It failed: one of `GrpcLibrary.call_errors`, which `failure_of` reads.
            ValueError: The channel is closed.
        """
        self._require_own()
        method = self._unary.get(path)
        if method is None:
            raise ValueError("the channel was given back")
        return method(request, timeout=_timeout(seconds), metadata=metadata)

    def watch(self, requests: Iterator[Any], metadata: Metadata) -> WatchRpc:
        """Open a stream of *requests*, which gRPC takes from a thread of its own.

        Raises:
            NoThreadError: The system cannot start another thread.
            ValueError: The channel is closed.
        """
        self._require_own()
        with self._starting_threads():
            stream: WatchRpc = self._watch(requests, metadata=metadata)
        return stream

    def cancel(self, rpc: Rpc) -> None:
        """Cancel *rpc*, one of this channel; in a forked child do nothing, it is the parent's."""
        if not self._is_inherited:
            rpc.cancel()

    def close(self) -> None:
        """End all calls and the connection; a borrowed connection is left open."""
        if self._is_inherited:
            return
        # A call that starts without a thread after the check below would never end, and neither
        # would gRPC's own close.
        with self._starting:
            self._is_closing = True
        if not self.is_ours:
            # If its owner has dropped it, it ends now and not with this object.
            with self._lock:
                self._lacks_server = False
            self._channel, self._watch, self._unary = None, None, {}
            return
        try:
            self._require_server()
        except NoThreadError:
            closing = threading.Thread(target=self.close, name="kip30-etcd-close", daemon=True)
            start_eventually(closing)
        else:
            self._channel.close()

    def abandon(self) -> None:
        """In a forked child: leave the connection and all calls to the parent."""
        self._is_inherited = True

    @contextmanager
    def _starting_threads(self) -> Generator[None]:
        """Raise `NoThreadError` if the block finds that the system cannot start a thread."""
        with self._starting:
            if self._is_closing:
                raise ValueError("the channel is closed")
            # Only now: another call may have found no thread while this one waited to start. It
            # would have no server then, and neither an answer nor its own cancellation would reach
            # it.
            self._require_server()
            try:
                yield
            except RuntimeError as error:
                if lacks_server(error):
                    with self._lock:
                        self._lacks_server = True
                raise NoThreadError(str(error)) from error

    def _require_server(self) -> None:
        """Serve calls again, if a thread for that was missing."""
        if not self._lacks_server:
            return
        with self._lock:
            if self._lacks_server:
                try:
                    serve(self._channel)
                except RuntimeError as error:
                    raise NoThreadError(str(error)) from error
                self._lacks_server = False

    def _require_own(self) -> None:
        if self._is_inherited:
            raise ValueError("the channel is that of the parent process")

    def _stub(self, path: str) -> Any:
        answer = MESSAGES[path.rpartition("/")[2] + "Response"]
        return self._channel.unary_unary(*_method(path), response_deserializer=answer.FromString)


def is_ok(rpc: Rpc) -> bool:
    """Return whether a call that has ended was answered."""
    code = rpc.code()
    return code is not None and code.name == "OK"


def failure_of(rpc: Rpc | Exception) -> Failure:
    """Return how a call that has ended failed; what gRPC raises is such a call itself."""
    rpc = cast("Rpc", rpc)
    code = rpc.code()
    return Failure("CANCELLED" if code is None else code.name, rpc.details() or "")


def channels(settings: EtcdSettings) -> list[Channel]:
    """Return a channel to each server of *settings*. Nothing is connected yet.

    Raises:
        ConfigError: A file of *settings* cannot be used.
        StoreError: This process has too few file descriptors left.
    """
    servers = [str(address) for address in settings.endpoints]
    if not settings.secure:
        return [_plain(one) for one in servers]
    return [_encrypted(one, settings.tls_files) for one in servers]


def _encrypted(server: str, files: TlsFiles) -> Channel:
    # Taken before the files are read: a change during the reading is read again.
    successor = _Successor(server, files, files.signature())
    credentials = _credentials(files)
    grpc_channel = GRPC.secure_channel(server, credentials, GRPC_OPTIONS)
    return Channel(server, grpc_channel, successor=successor)


def _plain(server: str) -> Channel:
    return Channel(server, GRPC.plain_channel(server, GRPC_OPTIONS))


class _Successor:
    """Makes the channel with the current files: gRPC keeps those that it began with."""

    def __init__(self, server: str, files: TlsFiles, seen: Signature) -> None:
        self._server = server
        self._files = files
        self._seen = seen
        self._refused: Signature | None = None

    def __call__(self) -> Channel | None:
        signature = self._files.signature()
        if signature == self._seen:
            return None
        try:
            return _encrypted(self._server, self._files)
        except (ConfigError, StoreError) as error:
            if signature != self._refused:
                log.warning("the former certificates stay in use: %s", str(error))
            self._refused = signature
            return None


def _credentials(files: TlsFiles) -> Any:
    files.context()  # refuses files with which gRPC would never connect
    contents = (
        files.content("ca", files.ca),
        unencrypted(files),
        files.content("cert", files.certificate),
    )
    return GRPC.ssl_credentials(*contents)


def _timeout(seconds: float) -> float:
    """Return a timeout with which gRPC's deadline is *seconds* from now.

    It adds `time.time`, which programs under test replace, to what is a time of the system.
    """
    return seconds + time.clock_gettime(time.CLOCK_REALTIME) - time.time()


def _method(path: str) -> tuple[str, Callable[[Any], bytes]]:
    return f"/etcdserverpb.{path}", _serialized


def _serialized(message: Any) -> bytes:
    data: bytes = message.SerializeToString()
    return data
