import base64
import http.client
import json
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from kip30_conformance.polling import time_scale
from kip30_conformance.servers import Ensemble, Link, Node

PATIENCE = 5.0
SILENCE = 0.3
QUESTION = b"GET /version HTTP/1.1\r\nHost: etcd\r\n\r\n"


class Talk:
    """One connection to etcd, held over several questions."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), PATIENCE * time_scale())

    def ask(self) -> None:
        self._socket.sendall(QUESTION)

    def hear(self, seconds: float | None = None) -> bytes:
        self._socket.settimeout(PATIENCE * time_scale() if seconds is None else seconds)
        return self._socket.recv(65_536)

    def is_answered(self) -> bool:
        self.ask()
        return b"etcdserver" in self.hear()

    def is_silent(self, seconds: float = SILENCE) -> bool:
        try:
            self.hear(seconds)
        except TimeoutError:
            return True
        return False

    def close(self) -> None:
        self._socket.close()


@contextmanager
def talk(link: Link, node: int = 0) -> Iterator[Talk]:
    with closing(Talk(link.ports[node])) as opened:
        yield opened


def _posted(port: int, path: str, **content: Any) -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE * time_scale())
    with closing(connection):
        connection.request("POST", path, json.dumps(content))
        return json.loads(connection.getresponse().read())


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def put(node: Node, key: str, value: str) -> None:
    answer = _posted(node.port, "/v3/kv/put", key=_encoded(key), value=_encoded(value))
    assert "header" in answer, answer


def get(node: Node, key: str) -> str | None:
    rows = _posted(node.port, "/v3/kv/range", key=_encoded(key)).get("kvs", [])
    return base64.b64decode(rows[0]["value"]).decode() if rows else None


def others(ensemble: Ensemble, node: Node) -> list[Node]:
    return [one for one in ensemble.nodes if one is not node]
