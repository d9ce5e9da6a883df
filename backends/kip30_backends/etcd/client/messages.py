"""The messages of etcd's version 3 API that kip30 uses, and the requests made of them.

The numbers are those of etcd's ``rpc.proto`` and ``kv.proto``; unlisted fields are skipped on
receipt. The messages are in a pool of their own, so they conflict with no others of the same
process, and nothing here depends on the version of a compiler.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_PACKAGE = "kip30_etcd"

_TYPES = {
    "int64": descriptor_pb2.FieldDescriptorProto.TYPE_INT64,
    "uint64": descriptor_pb2.FieldDescriptorProto.TYPE_UINT64,
    "bool": descriptor_pb2.FieldDescriptorProto.TYPE_BOOL,
    "string": descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
    "bytes": descriptor_pb2.FieldDescriptorProto.TYPE_BYTES,
    # On the wire an enumeration is its number.
    "enum": descriptor_pb2.FieldDescriptorProto.TYPE_INT32,
}

# A field is ``type name number``; ``*`` marks a repeated one and ``|`` a member of the one union.
_MESSAGES = {
    "ResponseHeader": (
        "uint64 cluster_id 1, uint64 member_id 2, int64 revision 3, uint64 raft_term 4"
    ),
    "KeyValue": (
        "bytes key 1, int64 create_revision 2, int64 mod_revision 3, bytes value 5, int64 lease 6"
    ),
    "Event": "enum type 1, KeyValue kv 2",
    "RangeRequest": (
        "bytes key 1, bytes range_end 2, int64 limit 3, int64 revision 4, bool keys_only 8"
    ),
    "RangeResponse": "ResponseHeader header 1, *KeyValue kvs 2, bool more 3, int64 count 4",
    "PutRequest": "bytes key 1, bytes value 2, int64 lease 3",
    "PutResponse": "",
    "DeleteRangeRequest": "bytes key 1",
    "DeleteRangeResponse": "",
    "Compare": (
        "enum result 1, enum target 2, bytes key 3,"
        " |int64 create_revision 5, |int64 mod_revision 6, |bytes value 7, |int64 lease 8"
    ),
    "RequestOp": (
        "|RangeRequest request_range 1, |PutRequest request_put 2,"
        " |DeleteRangeRequest request_delete_range 3, |TxnRequest request_txn 4"
    ),
    "ResponseOp": (
        "|RangeResponse response_range 1, |PutResponse response_put 2,"
        " |DeleteRangeResponse response_delete_range 3, |TxnResponse response_txn 4"
    ),
    "TxnRequest": "*Compare compare 1, *RequestOp success 2, *RequestOp failure 3",
    "TxnResponse": "ResponseHeader header 1, bool succeeded 2, *ResponseOp responses 3",
    "LeaseGrantRequest": "int64 TTL 1",
    "LeaseGrantResponse": "ResponseHeader header 1, int64 ID 2, int64 TTL 3",
    "LeaseRevokeRequest": "int64 ID 1",
    "LeaseRevokeResponse": "",
    "LeaseKeepAliveRequest": "int64 ID 1",
    "LeaseKeepAliveResponse": "ResponseHeader header 1, int64 ID 2, int64 TTL 3",
    "WatchCreateRequest": (
        "bytes key 1, bytes range_end 2, int64 start_revision 3, int64 watch_id 7, bool fragment 8"
    ),
    "WatchCancelRequest": "int64 watch_id 1",
    "WatchProgressRequest": "",
    "WatchRequest": (
        "|WatchCreateRequest create_request 1, |WatchCancelRequest cancel_request 2,"
        " |WatchProgressRequest progress_request 3"
    ),
    "WatchResponse": (
        "ResponseHeader header 1, int64 watch_id 2, bool canceled 4,"
        " int64 compact_revision 5, string cancel_reason 6, bool fragment 7, *Event events 11"
    ),
    "AuthenticateRequest": "string name 1, string password 2",
    "AuthenticateResponse": "string token 2",
    "StatusRequest": "",
    "StatusResponse": (
        "ResponseHeader header 1, string version 2, int64 dbSize 3, uint64 leader 4,"
        " bool isLearner 10"
    ),
}

EQUAL, GREATER = 0, 1
"""Relations that a `Compare` tests."""

CREATE, MOD, VALUE, LEASE = 1, 2, 3, 4
"""Fields of a key that a `Compare` tests."""

PUT = 0
"""The type of an event that is no deletion."""


class Header(Protocol):
    """The header of an answer: the cluster, the revision, and the term of its leader."""

    cluster_id: int
    member_id: int
    revision: int
    raft_term: int


class KeepAliveAnswer(Protocol):
    """The answer to a renewal of a lease; its TTL is 0 if there is no such lease.

    Its header was made before the renewal.
    """

    header: Header
    TTL: int


class KeyValue(Protocol):
    """A key as it is stored; that of a deletion has the revision of the deletion and no value."""

    key: bytes
    create_revision: int
    mod_revision: int
    value: bytes
    lease: int


class RangeAnswer(Protocol):
    """The answer to a range; *count* is that of all its keys, also of those beyond the limit."""

    header: Header
    kvs: Sequence[KeyValue]
    more: bool
    count: int


def only(answer: RangeAnswer) -> KeyValue | None:
    """Return the key that a range of one key found, or None."""
    return answer.kvs[0] if answer.kvs else None


class OpAnswer(Protocol):
    """The answer to one operation of a transaction; the others are empty."""

    response_range: RangeAnswer
    response_txn: "TxnAnswer"


class TxnAnswer(Protocol):
    """The answer to a transaction."""

    header: Header
    succeeded: bool
    responses: Sequence[OpAnswer]


class Event(Protocol):
    """A change of one key."""

    type: int
    kv: KeyValue


class StatusAnswer(Protocol):
    """The status of a server."""

    header: Header
    version: str
    dbSize: int  # noqa: N815  etcd names its fields
    leader: int
    isLearner: bool  # noqa: N815  as above


class WatchAnswer(Protocol):
    """A response of a watch stream: events of one watch, its end, or the progress of all."""

    header: Header
    watch_id: int
    canceled: bool
    compact_revision: int
    cancel_reason: str
    fragment: bool
    events: Sequence[Event]


def _described(name: str, fields: str) -> descriptor_pb2.DescriptorProto:
    message = descriptor_pb2.DescriptorProto(name=name)
    if "|" in fields:
        message.oneof_decl.add(name="union")
    for written in filter(None, fields.split(", ")):
        kind, field_name, number = written.split()
        field = message.field.add(name=field_name, number=int(number))
        field.label = field.LABEL_REPEATED if kind[0] == "*" else field.LABEL_OPTIONAL
        if kind[0] == "|":
            field.oneof_index = 0
        _set_type(field, kind.lstrip("*|"))
    return message


def _set_type(field: descriptor_pb2.FieldDescriptorProto, kind: str) -> None:
    if kind in _TYPES:
        field.type = _TYPES[kind]
    else:
        field.type = field.TYPE_MESSAGE
        field.type_name = f".{_PACKAGE}.{kind}"


def _made() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(
        name=f"{_PACKAGE}.proto", package=_PACKAGE, syntax="proto3"
    )
    file.message_type.extend(_described(*one) for one in _MESSAGES.items())
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    found = {name: pool.FindMessageTypeByName(f"{_PACKAGE}.{name}") for name in _MESSAGES}
    if hasattr(message_factory, "GetMessageClass"):
        return {name: message_factory.GetMessageClass(one) for name, one in found.items()}
    factory: Any = message_factory.MessageFactory(pool)  # as it was before protobuf 4.22
    return {name: factory.GetPrototype(one) for name, one in found.items()}


MESSAGES: dict[str, Any] = _made()
"""The classes of all messages, by name."""


_Range = MESSAGES["RangeRequest"]
_Put = MESSAGES["PutRequest"]
_Delete = MESSAGES["DeleteRangeRequest"]
_Compare = MESSAGES["Compare"]
_Op = MESSAGES["RequestOp"]
_Txn = MESSAGES["TxnRequest"]


class KeyRange(NamedTuple):
    """The keys from *start* on that are before *end*; all of them, if *end* is a NUL."""

    start: bytes
    end: bytes


def below(prefix: bytes) -> KeyRange:
    """Return the range of all keys that begin with *prefix*, itself among them.

    *prefix* is text in UTF-8, which has no byte 0xff, or empty.
    """
    end = prefix[:-1] + bytes([prefix[-1] + 1]) if prefix else b"\0"
    return KeyRange(prefix or b"\0", end)


def read(key: bytes, end: bytes = b"") -> Any:
    """Return the request for *key*, or for all from it up to *end*."""
    return _Range(key=key, range_end=end)


def page(key: bytes, end: bytes, *, limit: int, names_only: bool, revision: int = 0) -> Any:
    """Return the request for the first *limit* keys of a range, as of *revision* (0: now)."""
    return _Range(key=key, range_end=end, limit=limit, revision=revision, keys_only=names_only)


def find(key: bytes) -> Any:
    """Return the operation that reads *key*."""
    return _Op(request_range=_Range(key=key))


def look_up(key: bytes) -> Any:
    """Return the operation that reads all of *key* but its value."""
    return _Op(request_range=_Range(key=key, keys_only=True))


def put(key: bytes, value: bytes, lease: int = 0) -> Any:
    """Return the operation that writes *key*, attached to *lease*."""
    return _Op(request_put=_Put(key=key, value=value, lease=lease))


def delete(key: bytes) -> Any:
    """Return the operation that deletes *key*."""
    return _Op(request_delete_range=_Delete(key=key))


def is_absent(key: bytes) -> Any:
    """Return the comparison that holds if *key* does not exist."""
    return was_created(key, 0)


def is_present(key: bytes) -> Any:
    """Return the comparison that holds if *key* exists."""
    return _Compare(result=GREATER, target=CREATE, key=key, create_revision=0)


def was_created(key: bytes, revision: int) -> Any:
    """Return the comparison that holds if *key* was created at *revision*."""
    return _Compare(result=EQUAL, target=CREATE, key=key, create_revision=revision)


def was_written(key: bytes, revision: int) -> Any:
    """Return the comparison that holds if *key* was last written at *revision*."""
    return _Compare(result=EQUAL, target=MOD, key=key, mod_revision=revision)


def has_value(key: bytes, value: bytes) -> Any:
    """Return the comparison that holds if *key* has *value*."""
    return _Compare(result=EQUAL, target=VALUE, key=key, value=value)


def ends_with(key: bytes, lease: int) -> Any:
    """Return the comparison that holds if *key* is attached to *lease*."""
    return _Compare(result=EQUAL, target=LEASE, key=key, lease=lease)


def txn(compare: Sequence[Any], success: Sequence[Any], failure: Sequence[Any] = ()) -> Any:
    """Return the transaction that does *success* if all of *compare* hold, else *failure*."""
    return _Txn(compare=compare, success=success, failure=failure)


def nested(transaction: Any) -> Any:
    """Return the operation that is a transaction of its own, whose comparisons bind only it."""
    return _Op(request_txn=transaction)
