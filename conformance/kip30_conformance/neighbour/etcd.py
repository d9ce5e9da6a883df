"""A neighbour in etcd, through the gateway for JSON that every server has."""

import base64
import json
import urllib.request
from typing import Any

from typing_extensions import override

from kip30_conformance.neighbour.base import PathNeighbour

_SECONDS = 10


class EtcdNeighbour(PathNeighbour):
    """Writes keys; existing ones keep their lease."""

    huge_bytes = 1_400_000

    def __init__(self, addresses: str, root: str) -> None:
        """Send requests to the first of *addresses*, in kip30's form."""
        super().__init__(root)
        self._url = f"http://{addresses.split(',', maxsplit=1)[0]}/v3/kv"

    @override
    def read_path(self, path: str) -> bytes | None:
        found = self._request("range", key=_encoded(path.encode())).get("kvs", ())
        return base64.b64decode(found[0].get("value", "")) if found else None

    @override
    def write_path(self, path: str, stored: bytes) -> None:
        # A transaction for both cases would hold the record twice, which exceeds etcd's limit.
        is_there = self.read_path(path) is not None
        key, value = _encoded(path.encode()), _encoded(stored)
        self._request("put", key=key, value=value, ignore_lease=is_there)

    @override
    def remove_path(self, path: str) -> None:
        self._request("deleterange", key=_encoded(path.encode()))

    @override
    def close(self) -> None:
        """Do nothing: each request has a connection of its own."""

    def _request(self, what: str, **request: Any) -> dict[str, Any]:
        asked = urllib.request.Request(  # noqa: S310  it is http
            f"{self._url}/{what}", json.dumps(request).encode()
        )
        with urllib.request.urlopen(asked, timeout=_SECONDS) as answer:  # noqa: S310
            body: dict[str, Any] = json.load(answer)
        return body


def _encoded(raw: bytes) -> str:
    return base64.b64encode(raw).decode()
