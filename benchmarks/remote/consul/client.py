"""One connection of http.client that stays open, and what is asked over it."""

import http.client
import json
from base64 import b64decode
from collections.abc import Sequence
from typing import Any

from benchmarks.store_address import StoreAddress
from kip30_backends.consul.transactions import Operation

_PATIENCE_SECONDS = 60.0
_WAIT = "wait=10000ms"
_SESSION = {"TTL": "300s", "Behavior": "delete", "Checks": [], "NodeChecks": []}


class Client:
    """For one thread at a time."""

    def __init__(self, address: StoreAddress) -> None:
        self._connection = http.client.HTTPConnection(address.location, timeout=_PATIENCE_SECONDS)

    def read(self, key: str) -> bytes | None:
        return self.read_after(key, 0)[1]

    def read_after(self, key: str, index: int) -> tuple[int, bytes | None]:
        """Return an index and a value; if *index* is not 0, once there is something newer."""
        blocking = f"&index={index}&{_WAIT}" if index else ""
        answer, found = self._ask("GET", f"/v1/kv/{key}?consistent{blocking}")
        index = int(answer.headers["X-Consul-Index"])
        return index, b64decode(found[0]["Value"] or "") if found else None

    def read_all(self, prefix: str) -> dict[str, bytes]:
        _, found = self._ask("GET", f"/v1/kv/{prefix}?consistent&recurse")
        return {one["Key"]: b64decode(one["Value"]) for one in found}

    def names(self, prefix: str) -> list[str]:
        found: list[str] = self._ask("GET", f"/v1/kv/{prefix}?consistent&keys&separator=/")[1]
        return [one[len(prefix) :] for one in found]

    def write(self, operations: Sequence[Operation]) -> int | None:
        """Do *operations*; return which write of the store the last one was, None if refused."""
        _, told = self._ask("PUT", "/v1/txn", json.dumps(operations).encode())
        if told["Errors"]:
            return None
        results = told["Results"]
        number: int = results[-1]["KV"]["ModifyIndex"] if results else 0
        return number

    def transaction(self, target: str, body: bytes) -> Any:
        """Return what a transaction that is written already answers."""
        return self._ask("PUT", target, body)[1]

    def session(self) -> str:
        _, told = self._ask("PUT", "/v1/session/create", json.dumps(_SESSION).encode())
        ident: str = told["ID"]
        return ident

    def close(self) -> None:
        self._connection.close()

    def _ask(self, method: str, target: str, body: bytes | None = None) -> tuple[Any, Any]:
        self._connection.request(method, target, body)
        answer = self._connection.getresponse()
        content = answer.read()
        return answer, json.loads(content) if content else None
