"""Requests of an administrator to a server."""

import base64
import http.client
import json
from contextlib import closing
from typing import Any

_SECONDS = 30  # a busy disk delays a restored snapshot


class Admin:
    """Speaks to the server that listens on *port*, with *token*."""

    def __init__(self, port: int, token: str = "") -> None:
        self.port = port
        self._token = token

    def tell(self, method: str, path: str, content: object = None) -> Any:
        """Return the content of the server's response, unless the server refuses."""
        return json.loads(self.tell_bytes(method, path, content))

    def tell_bytes(self, method: str, path: str, content: object = None) -> bytes:
        """Return the same as bytes."""
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_SECONDS)
        with closing(connection):
            connection.request(method, f"/v1/{path}", body, {"X-Consul-Token": self._token})
            answer = connection.getresponse()
            told = answer.read()
        if answer.status != http.client.OK:
            raise AssertionError(f"{method} {path}: {answer.status} {told.decode()}")
        return told

    def put(self, key: str, value: bytes) -> None:
        assert self.tell("PUT", f"kv/{key}", value) is True

    def delete(self, key: str) -> None:
        assert self.tell("DELETE", f"kv/{key}") is True

    def put_exactly(self, key: str, value: bytes) -> None:
        """Write *key* by a transaction: its body holds the key, so no URL can alter it."""
        operation = {"Verb": "set", "Key": key, "Value": base64.b64encode(value).decode()}
        self.tell("PUT", "txn", [{"KV": operation}])

    def take(self, key: str, session: str) -> bool:
        """Return whether *session* could take *key* at once."""
        taken: bool = self.tell("PUT", f"kv/{key}?acquire={session}", b"")
        return taken

    def get(self, key: str) -> dict[str, Any]:
        """Return the record of *key*, which must exist."""
        (found,) = self.tell("GET", f"kv/{key}?consistent")
        told: dict[str, Any] = found
        return told

    def sessions(self) -> list[dict[str, Any]]:
        """Return all sessions of kip30."""
        told: list[dict[str, Any]] = self.tell("GET", "session/list?consistent")
        return [one for one in told if one["Name"] == "kip30"]

    def nodes(self) -> set[str]:
        """Return the names of all nodes in the catalog."""
        return {one["Node"] for one in self.tell("GET", "catalog/nodes?consistent")}

    def change_policy(self, name: str, rules: str) -> None:
        """Let the tokens that `make_token` made under *name* grant what *rules* allow."""
        known = self.tell("GET", f"acl/policy/name/{name}")
        self.tell("PUT", f"acl/policy/{known['ID']}", {"Name": name, "Rules": rules})

    def make_token(self, name: str, rules: str) -> str:
        """Return a new token that may do what *rules* allow."""
        self.tell("PUT", "acl/policy", {"Name": name, "Rules": rules})
        made = self.tell("PUT", "acl/token", {"Policies": [{"Name": name}]})
        secret: str = made["SecretID"]
        return secret
