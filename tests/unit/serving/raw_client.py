"""A client that sends bytes as they are given, and reads responses strictly."""

import json
import socket
import time
from collections.abc import Mapping
from typing import Any, NamedTuple, Self

from kip30_conformance.polling import time_scale

PATIENCE_SECONDS = 20


class Got(NamedTuple):
    """A response."""

    status: int
    fields: Mapping[str, str]
    body: bytes

    @property
    def records(self) -> list[Any]:
        return [json.loads(line) for line in self.body.splitlines()]


class RawClient:
    """One connection; *received* are bytes that came and belong to no response that was read."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self.socket = socket.create_connection((host, port), PATIENCE_SECONDS * time_scale())
        self.received = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def ask(self, path: str, method: str = "GET", **fields: str) -> Got:
        named = {"Host": "127.0.0.1", **fields}
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {named[name]}" for name in named)]
        self.send("\r\n".join([*lines, "", ""]).encode())
        return self.read(has_body=method == "GET")

    def read(self, *, has_body: bool = True) -> Got:
        """Return the next response, and fail if there is none."""
        while b"\r\n\r\n" not in self.received:
            self._receive()
        head, _, self.received = self.received.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        version, status, _ = first.split(" ", 2)
        assert version == "HTTP/1.1"
        fields = dict(line.split(": ", 1) for line in lines)
        assert len(fields) == len(lines)
        length = int(fields["Content-Length"]) if has_body else 0
        while len(self.received) < length:
            self._receive()
        body, self.received = self.received[:length], self.received[length:]
        return Got(int(status), fields, body)

    def is_at_end(self) -> bool:
        """Wait for the server to close, and return whether it has sent nothing more."""
        return not self.received and not self.socket.recv(1)

    def _receive(self) -> None:
        chunk = self.socket.recv(65_536)
        assert chunk, f"closed without a whole response: {self.received!r}"
        self.received += chunk


def eventually_refused(port: int) -> None:
    """Wait until nothing listens at *port*."""
    until = time.monotonic() + PATIENCE_SECONDS * time_scale()
    while time.monotonic() < until:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except ConnectionRefusedError:
            return
        time.sleep(0.01)
    raise AssertionError("it still listens")
