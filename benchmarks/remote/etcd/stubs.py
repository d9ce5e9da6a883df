"""The calls of etcd's API with grpcio alone, and the requests that are made of its messages."""

from collections.abc import Iterator, Sequence
from queue import SimpleQueue
from typing import Any

import grpc

from kip30_backends.etcd.client.messages import CREATE, EQUAL, GREATER, MESSAGES, MOD

_LEASE_SECONDS = 300
_CALLS = {"Range": "KV", "Txn": "KV", "LeaseGrant": "Lease"}


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
