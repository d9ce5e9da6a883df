"""etcd by grpcio alone: the requests that kip30 sends, and nothing besides."""

import threading
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from typing import Any
from uuid import uuid4

import grpc
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
from kip30_backends.etcd import scanning
from kip30_backends.etcd.client.messages import CREATE, EQUAL, GREATER, MESSAGES, MOD

_DATA = VALUE.encode()
_KEY = RAW_KEY.encode()
_LEADER = RAW_LEADER.encode()
_LEASE_SECONDS = 300
_CALLS = {"Range": "KV", "Txn": "KV", "LeaseGrant": "Lease"}
# As kip30's: the usual limit is 4 MiB, and a page may be larger.
_ANY_SIZE = (("grpc.max_receive_message_length", -1),)


class Stubs:
    """A channel with nothing on it but calls."""

    def __init__(self, address: str, options: Sequence[tuple[str, int]] = ()) -> None:
        library: Any = grpc
        self.channel: Any = library.insecure_channel(address, options=options)
        self.calls: dict[str, Any] = {
            name: self.channel.unary_unary(
                f"/etcdserverpb.{service}/{name}",
                request_serializer=MESSAGES[f"{name}Request"].SerializeToString,
                response_deserializer=MESSAGES[f"{name}Response"].FromString,
            )
            for name, service in _CALLS.items()
        }
        self._watch = self.channel.stream_stream(
            "/etcdserverpb.Watch/Watch",
            request_serializer=MESSAGES["WatchRequest"].SerializeToString,
            response_deserializer=MESSAGES["WatchResponse"].FromString,
        )

    def read(self, key: bytes, end: bytes = b"", *, keys_only: bool = False) -> Any:
        return self.calls["Range"](read_request(key, end, keys_only=keys_only))

    def put_if(self, compare: Any, value: bytes, lease: int = 0) -> Any:
        """Write the key of *compare* if that holds."""
        put = MESSAGES["PutRequest"](key=compare.key, value=value, lease=lease)
        return self._if(compare, MESSAGES["RequestOp"](request_put=put))

    def delete(self, key: bytes) -> Any:
        delete = MESSAGES["DeleteRangeRequest"](key=key)
        return self._if(present(key), MESSAGES["RequestOp"](request_delete_range=delete))

    def lease(self) -> int:
        """Return a lease that is never renewed."""
        request = MESSAGES["LeaseGrantRequest"](TTL=_LEASE_SECONDS)
        ident: int = self.calls["LeaseGrant"](request).ID
        return ident

    def watched(self, key: bytes) -> Iterator[Any]:
        """Return the changes of *key* from now on; the server watches it when this returns."""
        asked: SimpleQueue[Any] = SimpleQueue()
        asked.put(watch_request(key, self.read(key).header.revision + 1))
        answers: Iterator[Any] = self._watch(iter(asked.get, None))
        assert next(answers).watch_id == 0, "the first answer tells that it watches"
        return answers

    def close(self) -> None:
        self.channel.close()

    def _if(self, compare: Any, operation: Any) -> Any:
        look = MESSAGES["RangeRequest"](key=compare.key, keys_only=True)
        request = MESSAGES["TxnRequest"](
            compare=[compare],
            success=[operation],
            failure=[MESSAGES["RequestOp"](request_range=look)],
        )
        return self.calls["Txn"](request)


class RawSide(ServerSide):
    """Operations on keys of their own."""

    def __init__(self, address: StoreAddress) -> None:
        super().__init__()
        self._stubs = Stubs(address.location)
        self._root = f"/raw-{uuid4()}"
        self._key = self._at("kv/bench/one")
        self._leader = self._at("service/service/leader")
        self._lease = self._stubs.lease()
        self._stubs.put_if(absent(self._key), _DATA)
        self._stubs.put_if(absent(self._leader), _DATA, self._lease)
        self._version = 0

    @override
    def get(self) -> object:
        return self._read(self._key)

    @override
    def put(self, name: str) -> object:
        return self._stubs.put_if(absent(self._at(f"kv/bench/{name}")), _DATA)

    @override
    def update(self) -> object:
        return self._write(present(self._key))

    @override
    def compare_and_set(self) -> object:
        return self._write(unchanged(self._key, self._version))

    @override
    def join(self, group: str, member: str) -> object:
        key = self._at(f"group/{group}/{member}")
        return self._stubs.put_if(absent(key), _DATA, self._lease)

    @override
    def leave(self, group: str, member: str) -> object:
        return self._stubs.delete(self._at(f"group/{group}/{member}"))

    @override
    def get_leader(self) -> object:
        return self._read(self._leader)

    @override
    def in_flight(self) -> object:
        read = self._stubs.calls["Range"].future
        answers = [read(read_request(self._key)) for _ in range(IN_FLIGHT)]
        return [answer.result().kvs[0].value for answer in answers]

    @override
    def members(self, group: str) -> object:
        path = self._at(f"group/{group}")
        return {one.key: one.value for one in self._stubs.read(path + b"/", path + b"0").kvs}

    @override
    def names(self) -> list[str]:
        begin, end = self._at("kv/bench/"), self._at("kv/bench0")
        answer = self._stubs.read(begin, end, keys_only=True)
        return [one.key[len(begin) :].decode() for one in answer.kvs]

    @override
    def close(self) -> None:
        self._stubs.close()

    def _read(self, key: bytes) -> bytes:
        value: bytes = self._stubs.read(key).kvs[0].value
        return value

    def _write(self, condition: Any) -> int:
        self._version = self._stubs.put_if(condition, _DATA).header.revision
        return self._version

    def _at(self, path: str) -> bytes:
        return f"{self._root}/{path}".encode()


class RawWatchedKey(WatchedKey):
    """A watch stream from the revision at which it was opened."""

    def __init__(self, address: StoreAddress) -> None:
        self._stubs = Stubs(address.location)

    @override
    def create(self) -> None:
        self._stubs.put_if(absent(_KEY), b"")

    @override
    def write(self, value: str) -> None:
        self._stubs.put_if(present(_KEY), value.encode())

    @override
    def listen(self, heard: Heard) -> None:
        answers = self._stubs.watched(_KEY)

        def run() -> None:
            for answer in answers:
                for event in answer.events:
                    heard(event.kv.value.decode())

        threading.Thread(target=run, daemon=True).start()


class RawCandidate(Candidate):
    """A watch on one key with a lease, which is written when it is gone."""

    def __init__(self, address: StoreAddress, elected: Elected) -> None:
        self._stubs = Stubs(address.location)
        self._lease = self._stubs.lease()
        self._elected = elected
        self._wanted = False
        answers = self._stubs.watched(_LEADER)
        threading.Thread(target=self._follow, args=[answers], daemon=True).start()

    @override
    def campaign(self) -> None:
        self._wanted = True
        self._take()

    @override
    def resign(self) -> int:
        began = time.monotonic_ns()
        self._wanted = False
        self._stubs.delete(_LEADER)
        return began

    def _follow(self, answers: Any) -> None:
        with suppress(grpc.RpcError):  # the server ends before the candidate
            for answer in answers:
                if self._wanted and any(event.type for event in answer.events):
                    self._take()

    def _take(self) -> None:
        if self._stubs.put_if(absent(_LEADER), b"", self._lease).succeeded:
            self._elected()


class RawScan(ScanReplay):
    def __init__(self, address: StoreAddress) -> None:
        self._stubs = Stubs(address.location, _ANY_SIZE)
        self._requests: list[Any] = []

    @override
    @contextmanager
    def recording(self) -> Generator[None]:
        def note(request: Any, *_: Any) -> None:
            self._requests.append(request)

        with noting(scanning.EtcdScanner, "_ask", note):
            yield

    @override
    def read(self) -> int:
        ask = self._stubs.calls["Range"]
        return sum(len(_rows(ask(request))) for request in self._requests)

    @override
    def close(self) -> None:
        self._stubs.close()


def _rows(answer: Any) -> list[Any]:
    return [
        (one.key, one.value, one.mod_revision, one.create_revision, one.lease) for one in answer.kvs
    ]


def read_request(key: bytes, end: bytes = b"", *, keys_only: bool = False) -> Any:
    return MESSAGES["RangeRequest"](key=key, range_end=end, keys_only=keys_only)


def watch_request(key: bytes, revision: int) -> Any:
    create = MESSAGES["WatchCreateRequest"](key=key, start_revision=revision)
    return MESSAGES["WatchRequest"](create_request=create)


def absent(key: bytes) -> Any:
    return MESSAGES["Compare"](result=EQUAL, target=CREATE, key=key, create_revision=0)


def present(key: bytes) -> Any:
    return MESSAGES["Compare"](result=GREATER, target=CREATE, key=key, create_revision=0)


def unchanged(key: bytes, revision: int) -> Any:
    return MESSAGES["Compare"](result=EQUAL, target=MOD, key=key, mod_revision=revision)
