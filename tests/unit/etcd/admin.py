"""Requests of an administrator to a server, through its gateway for JSON."""

import base64
import json
import urllib.request
from typing import Any


class Admin:
    """Sends requests to the server at *address*."""

    def __init__(self, address: str) -> None:
        self._url = f"http://{address}/v3"
        self._token = ""

    def tell(self, path: str, **request: Any) -> dict[str, Any]:
        headers = {"Authorization": self._token} if self._token else {}
        asked = urllib.request.Request(  # noqa: S310  it is http
            f"{self._url}/{path}", json.dumps(request).encode(), headers
        )
        with urllib.request.urlopen(asked, timeout=10) as answer:  # noqa: S310
            told: dict[str, Any] = json.load(answer)
        return told

    def log_in(self, name: str, password: str) -> None:
        self._token = self.tell("auth/authenticate", name=name, password=password)["token"]

    def add_user(
        self,
        name: str,
        password: str,
        *,
        prefix: str | None = None,
        permission: str = "READWRITE",
    ) -> None:
        """Add a user who may do all, or has *permission* below *prefix*."""
        self.tell("auth/user/add", name=name, password=password)
        if prefix is None:
            self.tell("auth/user/grant", user=name, role="root")
            return
        self.tell("auth/role/add", name=name)
        granted = {
            "permType": permission,
            "key": encoded(prefix.encode()),
            "range_end": encoded(_after(prefix)),
        }
        self.tell("auth/role/grant", name=name, perm=granted)
        self.tell("auth/user/grant", user=name, role=name)

    def put(self, key: str, value: bytes) -> None:
        self.tell("kv/put", key=encoded(key.encode()), value=encoded(value))

    def get(self, key: str) -> dict[str, Any]:
        """Return the server's record of *key*, which is there."""
        (found,) = self.tell("kv/range", key=encoded(key.encode()))["kvs"]
        told: dict[str, Any] = found
        return told

    def delete(self, key: str) -> None:
        self.tell("kv/deleterange", key=encoded(key.encode()))


def encoded(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def _after(prefix: str) -> bytes:
    raw = prefix.encode()
    return raw[:-1] + bytes([raw[-1] + 1])
