"""Another program that writes to the server, for the suite: records that kip30 cannot read."""

import base64
import json
import socket
from typing import Any

from typing_extensions import override

from kip30_conformance.neighbour.base import PathNeighbour

_SECONDS = 10.0


class LineNeighbour(PathNeighbour):
    """Writes keys, with a connection for each request; keys that are there keep their lease."""

    huge_bytes = 700_000  # in base64 it is a third more, and the server takes 1 MiB

    def __init__(self, address: str, root: str) -> None:
        super().__init__(root)
        host, _, port = address.partition(":")
        self._address = (host, int(port))

    @override
    def read_path(self, path: str) -> bytes | None:
        found = self._record(path)
        return base64.b64decode(found["data"]) if found else None

    @override
    def write_path(self, path: str, stored: bytes) -> None:
        found = self._record(path) or {}
        put = {"data": base64.b64encode(stored).decode(), "lease": found.get("lease")}
        self._ask(op="commit", commits=[{"check": {}, "put": {path: put}, "delete": []}])

    @override
    def remove_path(self, path: str) -> None:
        self._ask(op="commit", commits=[{"check": {}, "put": {}, "delete": [path]}])

    @override
    def close(self) -> None:
        """Do nothing: each request has a connection of its own."""

    def _record(self, path: str) -> dict[str, Any] | None:
        found: dict[str, Any] | None = self._ask(op="get", keys=[path])["records"][0]
        return found

    def _ask(self, **request: Any) -> dict[str, Any]:
        with (
            socket.create_connection(self._address, _SECONDS) as connection,
            connection.makefile() as lines,
        ):
            connection.sendall(json.dumps(request).encode() + b"\n")
            answer: dict[str, Any] = json.loads(lines.readline())
        if "error" in answer:
            raise AssertionError(f"the line store refused {request['op']}: {answer['error']}")
        return answer
