"""Consul by http.client alone: the requests that kip30 sends, and nothing besides."""

import http.client
import json
import threading
import time
from base64 import b64decode
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any
from uuid import uuid4

from typing_extensions import override

from benchmarks.clients.interfaces import (
    IN_FLIGHT,
    RAW_KEY,
    RAW_LEADER,
    Candidate,
    Elected,
    Heard,
    ScanReplay,
    ServerSide,
    WatchedKey,
    noting,
)
from benchmarks.clients.library import VALUE
from benchmarks.store_address import StoreAddress
from kip30.driver.record_format import seal
from kip30_backends.consul import scanning, transactions
from kip30_backends.consul.client.operation_requests import TypedRequest

_DATA = seal("0123456789abcdef", VALUE.encode())
_CONNECTIONS = 4
"""Number of connections that kip30 has for requests that no thread waits for yet."""
_PATIENCE_SECONDS = 60.0
_WAIT = "wait=10000ms"
_SESSION = {"TTL": "300s", "Behavior": "delete", "Checks": [], "NodeChecks": []}


class Client:
    """One connection that stays open, for one thread at a time."""

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

    def write(self, operations: Sequence[transactions.Operation]) -> int | None:
        """Do *operations*; return which write of the store the last one was, None if refused."""
        _, answer = self._ask("PUT", "/v1/txn", json.dumps(operations).encode())
        if answer["Errors"]:
            return None
        results = answer["Results"]
        number: int = results[-1]["KV"]["ModifyIndex"] if results else 0
        return number

    def transaction(self, target: str, body: bytes) -> Any:
        """Return what a transaction that is written already answers."""
        return self._ask("PUT", target, body)[1]

    def session(self) -> str:
        _, answer = self._ask("PUT", "/v1/session/create", json.dumps(_SESSION).encode())
        ident: str = answer["ID"]
        return ident

    def close(self) -> None:
        self._connection.close()

    def _ask(self, method: str, target: str, body: bytes | None = None) -> tuple[Any, Any]:
        self._connection.request(method, target, body)
        answer = self._connection.getresponse()
        content = answer.read()
        return answer, json.loads(content) if content else None


class RawSide(ServerSide):
    """Operations on keys of their own."""

    def __init__(self, address: StoreAddress) -> None:
        super().__init__()
        self._clients = [Client(address) for _ in range(_CONNECTIONS)]
        self._client = self._clients[0]
        self._pool = ThreadPoolExecutor(_CONNECTIONS)
        self._root = f"raw-{uuid4()}"
        self._key = f"{self._root}/kv/bench/one"
        self._leader = f"{self._root}/service/service/leader"
        self._session = self._client.session()
        self._write([transactions.put_over(self._key, _DATA, 0)])
        self._lock(self._leader)
        self._version = 0

    @override
    def get(self) -> object:
        return self._client.read(self._key)

    @override
    def put(self, name: str) -> object:
        return self._write([transactions.put_over(f"{self._root}/kv/bench/{name}", _DATA, 0)])

    @override
    def update(self) -> object:
        return self._replace(transactions.get(self._key))

    @override
    def compare_and_set(self) -> object:
        return self._replace(transactions.was_modified(self._key, self._version))

    @override
    def join(self, group: str, member: str) -> object:
        return self._lock(f"{self._root}/group/{group}/{member}")

    @override
    def leave(self, group: str, member: str) -> object:
        return self._write([transactions.delete(f"{self._root}/group/{group}/{member}")])

    @override
    def get_leader(self) -> object:
        return self._client.read(self._leader)

    @override
    def in_flight(self) -> object:
        return list(self._pool.map(self._read_share, self._clients))

    @override
    def members(self, group: str) -> object:
        return self._client.read_all(f"{self._root}/group/{group}/")

    @override
    def names(self) -> list[str]:
        return self._client.names(f"{self._root}/kv/bench/")

    @override
    def close(self) -> None:
        self._pool.shutdown()
        for client in self._clients:
            client.close()

    def _read_share(self, client: Client) -> list[bytes | None]:
        return [client.read(self._key) for _ in range(IN_FLIGHT // _CONNECTIONS)]

    def _replace(self, condition: transactions.Operation) -> int:
        self._version = self._write([condition, transactions.put(self._key, _DATA)])
        return self._version

    def _lock(self, key: str) -> int:
        absent = transactions.is_absent(key)
        return self._write([absent, transactions.lock(key, _DATA, self._session)])

    def _write(self, operations: Sequence[transactions.Operation]) -> int:
        number = self._client.write(operations)
        assert number is not None, "refused"
        return number


class RawWatchedKey(WatchedKey):
    """A blocking query after another."""

    def __init__(self, address: StoreAddress) -> None:
        self._client = Client(address)

    @override
    def create(self) -> None:
        self._client.write([transactions.put_over(RAW_KEY, b"", 0)])

    @override
    def write(self, value: str) -> None:
        self._client.write([transactions.get(RAW_KEY), transactions.put(RAW_KEY, value.encode())])

    @override
    def listen(self, heard: Heard) -> None:
        index, _ = self._client.read_after(RAW_KEY, 0)
        threading.Thread(target=self._follow, args=[index, heard], daemon=True).start()

    def _follow(self, index: int, heard: Heard) -> None:
        while True:
            index, value = self._client.read_after(RAW_KEY, index)
            heard((value or b"").decode())


class RawCandidate(Candidate):
    """Blocking queries on one key, which is locked when it is gone."""

    def __init__(self, address: StoreAddress, elected: Elected) -> None:
        self._client, self._watching = Client(address), Client(address)
        self._session = self._client.session()
        self._elected = elected
        self._wanted = False
        self._epoch: int | None = None
        self._lock = threading.Lock()
        threading.Thread(target=self._follow, daemon=True).start()

    @override
    def campaign(self) -> None:
        self._wanted = True
        self._take()

    @override
    def resign(self) -> int:
        began = time.monotonic_ns()
        self._wanted = False
        held = transactions.was_modified(RAW_LEADER, self._epoch or 0)
        with self._lock:
            self._client.write([held, transactions.delete(RAW_LEADER)])
        return began

    def _follow(self) -> None:
        index = 0
        with suppress(http.client.HTTPException):  # the server ends before the candidate
            while True:
                index, holder = self._watching.read_after(RAW_LEADER, index)
                if holder is None and self._wanted:
                    self._take()

    def _take(self) -> None:
        lock = transactions.lock(RAW_LEADER, b"", self._session)
        with self._lock:
            epoch = self._client.write([transactions.is_absent(RAW_LEADER), lock])
        if epoch is not None:
            self._epoch = epoch
            self._elected()


class RawScan(ScanReplay):
    """It does not check that the cluster is still the one that it was."""

    def __init__(self, address: StoreAddress) -> None:
        self._client = Client(address)
        self._requests: list[tuple[str, bytes]] = []

    @override
    @contextmanager
    def recording(self) -> Generator[None]:
        def note(ask: TypedRequest[Any]) -> None:
            if ask.body:
                self._requests.append((ask.target, ask.body))

        with noting(scanning.ConsulScanner, "_ask", note):
            yield

    @override
    def read(self) -> int:
        return sum(len(self._rows(*request)) for request in self._requests)

    @override
    def close(self) -> None:
        self._client.close()

    def _rows(self, target: str, body: bytes) -> list[Any]:
        answer = self._client.transaction(target, body)
        return [
            (
                one["Key"],
                b64decode(one["Value"] or ""),
                one["ModifyIndex"],
                one["CreateIndex"],
                one.get("Session"),
            )
            for one in (result["KV"] for result in answer["Results"])
        ]
