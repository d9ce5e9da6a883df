"""A neighbour in Consul, over its HTTP interface."""

import base64
import json
import urllib.error
import urllib.request
from http import HTTPStatus
from urllib.parse import quote

from typing_extensions import override

from kip30_conformance.neighbour.base import PathNeighbour

_SECONDS = 10
_MOST_IN_TRANSACTION = 100_000


class ConsulNeighbour(PathNeighbour):
    """Writes keys; existing ones keep their session."""

    huge_bytes = 500_000

    def __init__(self, addresses: str, root: str) -> None:
        """Send requests to the first of *addresses*, in kip30's form."""
        super().__init__(root)
        self._address = f"http://{addresses.split(',', maxsplit=1)[0]}"

    @override
    def read_path(self, path: str) -> bytes | None:
        try:
            return self._request("GET", path, "?raw&consistent")
        except urllib.error.HTTPError as error:
            if error.code == HTTPStatus.NOT_FOUND:
                return None
            raise

    @override
    def write_path(self, path: str, stored: bytes) -> None:
        if len(stored) > _MOST_IN_TRANSACTION:
            self._request("PUT", path, content=stored)
        else:
            self._change("set", path, Value=base64.b64encode(stored).decode())

    @override
    def remove_path(self, path: str) -> None:
        self._change("delete", path)

    @override
    def close(self) -> None:
        """Do nothing: each request has a connection of its own."""

    def _change(self, verb: str, path: str, **value: str) -> None:
        """Change a key in a transaction: a URL takes no key with a percent sign and two dots."""
        operation = {"KV": {"Verb": verb, "Key": path.lstrip("/"), **value}}
        url = f"{self._address}/v1/txn"
        _sent(urllib.request.Request(url, json.dumps([operation]).encode(), method="PUT"))  # noqa: S310

    def _request(
        self, method: str, path: str, query: str = "", content: bytes | None = None
    ) -> bytes:
        url = f"{self._address}/v1/kv{quote(path)}{query}"
        return _sent(urllib.request.Request(url, content, method=method))  # noqa: S310


def _sent(request: urllib.request.Request) -> bytes:
    with urllib.request.urlopen(request, timeout=_SECONDS) as answer:  # noqa: S310
        body: bytes = answer.read()
    return body
