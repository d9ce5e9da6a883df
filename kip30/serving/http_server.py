"""A small server of HTTP/1 for requests that are answered at once, or nearly so.

One thread accepts, and each connection has one of its own. None of them is ever needed by the rest
of the program, and what clients can take of it is bounded: `MOST_CONNECTIONS` threads, sockets and
request heads, `REQUEST_SECONDS` each. When all are taken, a new connection gets the place of one
that only waits for its client, so clients that send or read slowly, or not at all, keep no probe
out.
"""

import logging
import select
import socket
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from http import HTTPStatus
from typing import TypeVar

from typing_extensions import override

from kip30.driver.closeable import Closeable
from kip30.driver.kit import fork_safety
from kip30.driver.kit.thread_start import started
from kip30.errors import UnavailableError
from kip30.serving.http_message import (
    HEAD_BYTES,
    HEAD_END,
    HttpRequest,
    HttpResponse,
    RefusedRequestError,
    StreamedResponse,
    check_beginning,
    encode_head,
    encode_response,
    parse_request,
    refusal,
)
from kip30.serving.listen_address import OwnHosts

log: logging.Logger = logging.getLogger(__name__)

MOST_CONNECTIONS = 64
REQUEST_SECONDS = 10.0
"""Within which a request must have come as a whole, and again its response be taken."""

_LINE_END = b"\r\n"
_CHUNK = 16 * 1024
_LINGER_SECONDS = 1.0
_LINGER_BYTES = 256 * 1024
_ROOM_SECONDS = 0.5
_SHORTAGE_SECONDS = 0.2
_CLOSE_SECONDS = 2.0
_NO_PLACE = "no place is left for this connection: try again"

SlowResponse = Callable[[], HttpResponse]
"""Returns a response that may take a while; called by several threads at once."""
Answer = Callable[[HttpRequest], HttpResponse | SlowResponse | StreamedResponse]
"""Answers a request at once, one at a time.

Both may raise `RefusedRequestError`. Another error is a 500.
"""


T = TypeVar("T")


class ServedConnection:
    """One connection, served by one thread.

    Attributes:
        thread: The thread.
    """

    def __init__(
        self, connected: socket.socket, answer: Answer, hosts: OwnHosts, answering: threading.Lock
    ) -> None:
        """Serve nothing before `serve`; answer while *answering* is held."""
        self.thread: threading.Thread | None = None
        self._socket = connected
        self._answer = answer
        self._hosts = hosts
        self._answering = answering
        # Bytes that came and belong to no request that was answered.
        self._received = bytearray()
        # How many of them are known to be no mistake.
        self._checked = 0
        # Since when it waits for the client, by `time.monotonic`; None while it answers.
        self._waits_since: float | None = time.monotonic()
        # Whether it waits for the client to take a response.
        self._is_sending = False
        # Set by other threads: no further request is awaited.
        self._is_given_up = False

    @property
    def patience(self) -> tuple[bool, float] | None:
        """The rank in which waiting connections are given up; None if it does not wait.

        One without a request comes before one with a request that is sent or answered.
        """
        since = self._waits_since
        if since is None or self._is_given_up:
            return None
        return bool(self._received) or self._is_sending, since

    def serve(self) -> None:
        """Answer requests until the client closes, a request is refused, or it is given up.

        Raises:
            OSError: The client is gone, or takes no response.
        """
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        goes_on = True
        while goes_on:
            head: bytes | None = b""
            try:
                head = self._head()
                if head is None:
                    return
                request, response = self._answered(head)
            except RefusedRequestError as error:
                is_head = (head or self._received).startswith(b"HEAD ")
                self._send(encode_response(refusal(error), "HEAD" if is_head else "", closes=True))
                break
            if isinstance(response, StreamedResponse):
                self._send_stream(response, request.method)
                break
            goes_on = request.keeps_open and not self._is_given_up
            self._send(encode_response(response, request.method, closes=not goes_on))
        self._linger()

    def give_up(self) -> None:
        """Await no further request. What is under way is answered. Any thread may call."""
        self._is_given_up = True
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RD)

    def make_room(self) -> None:
        """End it, because another connection needs its place. Any thread may call."""
        if self._is_sending:
            self.break_off()
        else:
            self.give_up()

    def break_off(self) -> None:
        """End it at once, in the middle of a response if need be. Any thread may call."""
        self._is_given_up = True
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the socket of this process."""
        self._socket.close()

    def _answered(self, head: bytes) -> tuple[HttpRequest, HttpResponse | StreamedResponse]:
        """Return the request with this *head*, and the response.

        Raises:
            RefusedRequestError: It is not a request for this server.
        """
        with self._answering:
            request = parse_request(head, self._hosts)
            response = _response(lambda: self._answer(request))
        if isinstance(response, HttpResponse | StreamedResponse):
            return request, response
        return request, _response(response)

    def _head(self) -> bytes | None:
        """Return the head of the next request; None if there is none.

        Raises:
            RefusedRequestError: What has come cannot become one, or not in time.
        """
        until = time.monotonic() + REQUEST_SECONDS
        self._waits_since = time.monotonic()
        try:
            while not (length := self._head_length()):
                if not self._receive(until):
                    return None
        finally:
            self._waits_since = None
        head = bytes(self._received[:length])
        del self._received[:length]
        self._checked = 0
        return head

    def _head_length(self) -> int:
        """Return the length of the head if it has come as a whole, else 0.

        Raises:
            RefusedRequestError: What has come cannot become one.
        """
        received = self._received
        while received.startswith(_LINE_END):  # as some clients send after a request
            del received[: len(_LINE_END)]
        end = received.find(HEAD_END, max(0, self._checked - len(HEAD_END)))
        length = 0 if end < 0 else end + len(HEAD_END)
        check_beginning(received[:length] if length else received, self._checked)
        if (length or len(received)) > HEAD_BYTES:
            raise _refused(
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"more than {HEAD_BYTES} bytes"
            )
        self._checked = len(received)
        return length

    def _receive(self, until: float) -> bool:
        """Wait for more bytes; false if there are none, and no request has begun.

        Raises:
            RefusedRequestError: A request has begun, and its rest does not come.
        """
        chunk = b""
        left = until - time.monotonic()
        is_late = left <= 0
        if not is_late:
            self._socket.settimeout(left)
            try:
                chunk = self._socket.recv(_CHUNK)
            except TimeoutError:
                is_late = True
        self._received += chunk
        if chunk or not self._received:
            return bool(chunk)
        if is_late:
            raise _refused(HTTPStatus.REQUEST_TIMEOUT, f"no whole request in {REQUEST_SECONDS:g} s")
        if self._is_given_up:
            raise _refused(HTTPStatus.SERVICE_UNAVAILABLE, _NO_PLACE)
        raise _refused(HTTPStatus.BAD_REQUEST, "the request has no end")

    def _send(self, data: bytes) -> None:
        self._waits_since, self._is_sending = time.monotonic(), True
        self._socket.settimeout(REQUEST_SECONDS)
        self._socket.sendall(data)
        self._waits_since, self._is_sending = None, False

    def _send_stream(self, response: StreamedResponse, method: str) -> None:
        """Send *response* until it ends, or this is given up.

        Raises:
            OSError: The client is gone, or does not take a part of it in time.
        """
        self._send(encode_head(response, method))
        with closing(response.chunks) as chunks:
            if method == "GET":
                for chunk in chunks:
                    if self._is_given_up:
                        return
                    self._send(chunk)

    def _linger(self) -> None:
        """Take what the client still sends, for a while.

        A socket that is closed with unread bytes is reset, and the client may lose the response.
        """
        self._socket.shutdown(socket.SHUT_WR)
        self._received.clear()
        self._waits_since = time.monotonic()
        until, most = time.monotonic() + _LINGER_SECONDS, _LINGER_BYTES
        while most > 0 and (left := until - time.monotonic()) > 0:
            self._socket.settimeout(left)
            chunk = self._socket.recv(_CHUNK)
            if not chunk:
                return
            most -= len(chunk)


class HttpServer(Closeable):
    """Answers requests on a listening socket until it is closed. Thread-safe."""

    def __init__(self, listener: socket.socket, answer: Answer, hosts: OwnHosts) -> None:
        """Take ownership of *listener*, and answer with *answer* what is for *hosts*.

        Raises:
            UnavailableError: The system has no thread to spare. *listener* is closed.
        """
        self._listener = listener
        self._answer = answer
        self._hosts = hosts
        self._wake, self._waker = socket.socketpair()
        self._room = threading.Semaphore(MOST_CONNECTIONS)
        # Held while a request is answered. If all threads were busy at once, the rest of the
        # program would often wait for each of them until it may run again.
        self._answering = threading.Lock()
        self._closing = threading.Event()
        # Written under the lock.
        self._connections: set[ServedConnection] = set()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._accept_all, name="kip30-http", daemon=True)
        listener.settimeout(0)
        if not started(self._thread):
            self._close_sockets()
            raise UnavailableError("the system has no thread to spare for a server")
        fork_safety.register(self)

    @override
    def close(self) -> None:
        """Stop listening, and end all connections, within a few seconds. Idempotent.

        What is being answered is answered, unless that takes too long.
        """
        if self._closing.is_set():
            return
        self._closing.set()
        self._waker.send(b"\0")
        until = time.monotonic() + _CLOSE_SECONDS
        _join(self._thread, until)
        for end in (ServedConnection.give_up, ServedConnection.break_off):
            for connection in self._present():
                end(connection)
            for connection in self._present():
                _join(connection.thread, until)
            until += _CLOSE_SECONDS / 2
        self._close_sockets()

    def abandon(self) -> None:
        """In a forked child: close its copies of the sockets."""
        self._closing = threading.Event()  # a thread of the parent may hold the lock of the former
        self._closing.set()
        for connection in self._connections:
            connection.close()
        self._close_sockets()

    def _accept_all(self) -> None:
        poll = select.poll()
        for one in (self._listener, self._wake):
            poll.register(one, select.POLLIN)
        while not self._closing.is_set():
            poll.poll()
            try:
                self._accept()
            except Exception:  # or no later client would be answered
                log.exception("a connection was not accepted")
                self._closing.wait(_SHORTAGE_SECONDS)

    def _accept(self) -> None:
        try:
            connected, _ = self._listener.accept()
        except (BlockingIOError, ConnectionError):  # the client is gone
            return
        except OSError:  # the system has no descriptor or no memory left
            self._make_room()
            self._closing.wait(_SHORTAGE_SECONDS)
            return
        if self._has_room():
            self._begin(connected)
        else:
            _refuse_at_once(connected)

    def _has_room(self) -> bool:
        """Take a place for a connection, that of another one if all are taken."""
        if self._room.acquire(blocking=False):
            return True
        self._make_room()
        return self._room.acquire(timeout=_ROOM_SECONDS)

    def _make_room(self) -> None:
        """End the connection that has waited longest for its client."""
        waiting = [(rank, one) for one in self._present() if (rank := one.patience) is not None]
        if waiting:
            min(waiting, key=lambda pair: pair[0])[1].make_room()

    def _begin(self, connected: socket.socket) -> None:
        connection = ServedConnection(connected, self._answer, self._hosts, self._answering)
        connection.thread = threading.Thread(
            target=self._serve, args=[connection], name="kip30-http", daemon=True
        )
        with self._lock:
            self._connections.add(connection)
        if not started(connection.thread):
            self._forget(connection)
            _refuse_at_once(connected)

    def _serve(self, connection: ServedConnection) -> None:
        try:
            connection.serve()
        except OSError:
            pass  # the client is gone
        except Exception:  # one connection must not end as an error of the program
            log.exception("a connection has failed")
        finally:
            connection.close()
            self._forget(connection)

    def _forget(self, connection: ServedConnection) -> None:
        with self._lock:
            self._connections.discard(connection)
        self._room.release()

    def _present(self) -> list[ServedConnection]:
        with self._lock:
            return list(self._connections)

    def _close_sockets(self) -> None:
        for one in (self._listener, self._wake, self._waker):
            one.close()


def _join(thread: threading.Thread | None, until: float) -> None:
    """Wait for *thread* by *until*, unless this is it, or it has not been started."""
    if thread is not None and thread.is_alive() and thread is not threading.current_thread():
        thread.join(max(0.0, until - time.monotonic()))


def _response(answer: Callable[[], T]) -> T | HttpResponse:
    """Return what *answer* returns, or the response to its error."""
    try:
        return answer()
    except RefusedRequestError as error:
        return refusal(error)
    except Exception:
        log.exception("a request was not answered")
        return refusal(_refused(HTTPStatus.INTERNAL_SERVER_ERROR, "the answer has failed"))


def _refuse_at_once(connected: socket.socket) -> None:
    """Answer without reading or waiting, for want of a thread; then close."""
    error = _refused(HTTPStatus.SERVICE_UNAVAILABLE, _NO_PLACE)
    with connected, suppress(OSError):
        connected.settimeout(0)
        connected.send(encode_response(refusal(error), "", closes=True))


def _refused(status: HTTPStatus, reason: str) -> RefusedRequestError:
    return RefusedRequestError(status, reason)
