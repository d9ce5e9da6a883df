"""Making requests: ranges, and transactions of comparisons and operations."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from kip30_backends.etcd.messages import CREATE, EQUAL, GREATER, LEASE, MESSAGES, MOD

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
    """Return the operation that writes *key*, to end with *lease*."""
    return _Op(request_put=_Put(key=key, value=value, lease=lease))


def delete(key: bytes) -> Any:
    """Return the operation that deletes *key*."""
    return _Op(request_delete_range=_Delete(key=key))


def is_absent(key: bytes) -> Any:
    """Return the comparison that holds if there is no *key*."""
    return was_created(key, 0)


def is_present(key: bytes) -> Any:
    """Return the comparison that holds if there is *key*."""
    return _Compare(result=GREATER, target=CREATE, key=key, create_revision=0)


def was_created(key: bytes, revision: int) -> Any:
    """Return the comparison that holds if *key* is there since *revision*."""
    return _Compare(result=EQUAL, target=CREATE, key=key, create_revision=revision)


def was_written(key: bytes, revision: int) -> Any:
    """Return the comparison that holds if *key* was last written at *revision*."""
    return _Compare(result=EQUAL, target=MOD, key=key, mod_revision=revision)


def ends_with(key: bytes, lease: int) -> Any:
    """Return the comparison that holds if *key* ends with *lease*."""
    return _Compare(result=EQUAL, target=LEASE, key=key, lease=lease)


def txn(compare: Sequence[Any], success: Sequence[Any], failure: Sequence[Any] = ()) -> Any:
    """Return the transaction that does *success* if all of *compare* hold, else *failure*."""
    return _Txn(compare=compare, success=success, failure=failure)


def nested(transaction: Any) -> Any:
    """Return the operation that is a transaction of its own, whose comparisons bind only it."""
    return _Op(request_txn=transaction)
