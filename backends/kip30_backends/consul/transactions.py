"""Keys and transactions: reading records, and checking and writing them at once."""

import json
import re
from base64 import b64encode
from binascii import a2b_base64
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from typing import Any, NamedTuple, TypeVar

from kip30.driver.kit import refusals
from kip30.driver.record_format import EnvelopeContent, unseal
from kip30.driver.records import Entry, Version
from kip30_backends.consul.client.http import Answer
from kip30_backends.consul.client.operation_requests import (
    OK_OR_ABSENT,
    OK_OR_CONFLICT,
    TypedRequest,
)
from kip30_backends.consul.errors import Failure, RequestFailedError

FILTERED = Failure(HTTPStatus.FORBIDDEN, "Permission denied: not all keys were in the answer")

UNREADABLE = "\udcff"
"""Stands for a byte of a key that is not UTF-8: its answers do not say which byte."""

_REPLACEMENT = rb"\ufffd"
# After an even number of backslashes: an odd one would escape the first character of the text.
_REPLACED = re.compile(rb"(?<!\\)((?:\\\\)*)\\ufffd")
_MARK = rb"\1\\udcff"


class KVPair(NamedTuple):
    """A key as it was found: its contents, the session that holds it, and when it was written.

    The flags are a number that its writer chose; kip30 writes 0.
    """

    key: str
    sealed: bytes = b""
    session: str = ""
    created: int = 0
    modified: int = 0
    flags: int = 0

    def unsealed(self) -> EnvelopeContent:
        """Return its content; raises `StoreError` if another program wrote it."""
        return unseal(self.sealed, self.key)

    def claimed(self) -> EnvelopeContent:
        """Return the same of a claim; raises `StoreError` also if no session holds it."""
        content = self.unsealed()
        if not self.session:
            raise refusals.unowned(self.key)
        return content


class KVColumns(NamedTuple):
    """Many records in columns: creating an object for each would take longer than all the rest."""

    keys: Sequence[str]
    sealed: Sequence[bytes]
    sessions: Sequence[str]
    created: Sequence[int]
    modified: Sequence[int]

    @classmethod
    def of(cls, pairs: Sequence[Any]) -> "KVColumns":
        """Return the records in Consul's JSON."""
        return cls(
            [one["Key"] for one in pairs],
            [a2b_base64(one["Value"] or "") for one in pairs],
            [one.get("Session", "") for one in pairs],
            [one["CreateIndex"] for one in pairs],
            [one["ModifyIndex"] for one in pairs],
        )

    def part(self, start: int, end: int) -> "KVColumns":
        """Return those from number *start* up to before number *end*."""
        columns: Any = (column[start:end] for column in self)
        return KVColumns._make(columns)

    def each(self) -> Iterator[KVPair]:
        """Return them one by one, without their flags."""
        return map(KVPair, *self)


class PairsAtIndex(NamedTuple):
    """The records of a place, and the index that the answer covers."""

    at: int
    records: list[KVPair]


def key_of(path: str) -> str:
    """Return the key at *path* of `kip30.driver.key_layout`: without the leading slash."""
    return path[1:]


def target(key: str, options: str = "") -> str:
    """Return the target of a request about *key*: escaped names are safe as they are."""
    return f"/v1/kv/{key}?consistent{options}"


def at_key(key: str) -> TypedRequest[PairsAtIndex]:
    """Return the request for the record at *key*."""
    return TypedRequest("GET", target(key), found, answers=OK_OR_ABSENT)


def found(answer: Answer) -> PairsAtIndex:
    """Return the records in the answer to a read.

    Raises:
        RequestFailedError: Some of them may not be read, or it is not Consul that says
            there are none.
    """
    return PairsAtIndex(index_of(answer), [record(one) for one in listed(answer)])


def names_found(answer: Answer) -> list[str]:
    """Return the keys in the answer to a read of keys alone, as `marked` has them.

    Raises:
        RequestFailedError: As for `found`.
    """
    return listed(answer._replace(body=marked(answer.body)))


def marked(body: bytes) -> bytes:
    """Return JSON in which `UNREADABLE` stands for each byte of a text that is not UTF-8.

    Consul writes the replacement character for it, as six characters of ASCII. Where that is part
    of a text it is three bytes of UTF-8, so the two differ.
    """
    return _REPLACED.sub(_MARK, body) if _REPLACEMENT in body else body


def check_whole(answer: Answer) -> None:
    """Raise unless the answer to a read is complete.

    Raises:
        RequestFailedError: As for `found`.
    """
    if answer.status == HTTPStatus.NOT_FOUND and "x-consul-index" not in answer.headers:
        raise RequestFailedError(
            Failure(answer.status, answer.body.decode("utf-8", "backslashreplace"))
        )
    if is_filtered(answer):
        raise RequestFailedError(FILTERED)


def is_filtered(answer: Answer) -> bool:
    """Return whether an answer leaves out what the token may not read."""
    return answer.headers.get("x-consul-results-filtered-by-acls") == "true"


def says_nothing_is_there(answer: Answer) -> bool:
    """Return whether the answer to a read says that no key matches."""
    is_of_consul = "x-consul-index" in answer.headers
    return answer.status == HTTPStatus.NOT_FOUND and is_of_consul and not is_filtered(answer)


def listed(answer: Answer) -> list[Any]:
    """Return the JSON of the records or names in the answer to a read.

    Raises:
        RequestFailedError: As for `found`.
    """
    check_whole(answer)
    items: list[Any] = json.loads(answer.body) if answer.status == HTTPStatus.OK else []
    return items


def index_of(answer: Answer) -> int:
    """Return the index of a read; never 0, with which the next one would not wait."""
    return max(1, int(answer.headers.get("x-consul-index", "1")))


def record(pair: Any) -> KVPair:
    """Return the record in Consul's JSON: complete, or its key alone."""
    if isinstance(pair, str):
        return KVPair(pair)
    return KVPair(
        pair["Key"],
        a2b_base64(pair["Value"] or ""),
        pair.get("Session", ""),
        pair["CreateIndex"],
        pair["ModifyIndex"],
        pair["Flags"],
    )


def entry_of(found_there: KVPair | None) -> Entry | None:
    """Return the value that a record holds; raises `StoreError` if another program wrote it."""
    if found_there is None:
        return None
    nonce, _, data = found_there.unsealed()
    return Entry(Version(found_there.modified), nonce, data)


MAX_OPS = 64
"""Number of operations that every version of Consul takes in one transaction."""

MAX_BYTES = 480 * 1024
"""Most bytes of a transaction, as base64: Consul takes 512 KiB, all its text included."""

T = TypeVar("T")

Operation = dict[str, Any]

_NO_ACCESS = ("Permission denied", "ACL not found")


class Refusal(NamedTuple):
    """Reason why an operation of a transaction was refused; nothing was done."""

    number: int
    said: str


class TransactionOutcome(NamedTuple):
    """The outcome of a transaction: the keys' records in it, or why it was refused.

    It is *filtered* if it leaves out records that may not be read.
    """

    records: Sequence[KVPair]
    refusals: Sequence[Refusal]
    filtered: bool = False

    def says(self, part: str) -> bool:
        """Return whether a refusal has *part* in its message."""
        return any(part in refusal.said for refusal in self.refusals)


def get(key: str) -> Operation:
    """Return *key*, which must exist."""
    return _operation("get", key)


def get_or_empty(key: str) -> Operation:
    """Return *key*; if it does not exist, a record that was never modified."""
    return _operation("get-or-empty", key)


def tree(prefix: str) -> Operation:
    """Return all keys that begin with *prefix*, which is not empty, if there are any."""
    return _operation("get-tree", prefix)


def put(key: str, sealed: bytes) -> Operation:
    """Write *key*; the session that holds it still does."""
    return _operation("set", key, Value=_base64(sealed))


def put_over(key: str, sealed: bytes, modified: int) -> Operation:
    """Write *key* if *modified* is the index of its last write; 0 if it must not exist."""
    return _operation("cas", key, Value=_base64(sealed), Index=modified)


def lock(key: str, sealed: bytes, session: str) -> Operation:
    """Write *key* and let *session* hold it, unless another one does."""
    return _operation("lock", key, Value=_base64(sealed), Session=session)


def delete(key: str) -> Operation:
    """Delete *key*."""
    return _operation("delete", key)


def is_absent(key: str) -> Operation:
    """Refuse if *key* exists."""
    return _operation("check-not-exists", key)


def was_modified(key: str, modified: int) -> Operation:
    """Refuse unless *key* exists and *modified* is the index of its last write."""
    return _operation("check-index", key, Index=modified)


def is_held(key: str, session: str) -> Operation:
    """Refuse unless *session* holds *key*."""
    return _operation("check-session", key, Session=session)


def node(name: str, address: str, meta: Mapping[str, str]) -> Operation:
    """Register a node in the catalog, or update its registration."""
    return {"Node": {"Verb": "set", "Node": {"Node": name, "Address": address, "Meta": meta}}}


def write(operations: Sequence[Operation]) -> TypedRequest[TransactionOutcome]:
    """Return the request that does *operations*, once."""
    body = json.dumps(operations).encode()
    return TypedRequest("PUT", "/v1/txn", _outcome, body, writes=True, answers=OK_OR_CONFLICT)


def clear(operations: Sequence[Operation]) -> TypedRequest[TransactionOutcome]:
    """Return the same request, for obstacles: it may be retried if there is no answer.

    So *operations* must be idempotent.
    """
    return write(operations)._replace(writes=False)


def read(keys: Sequence[str]) -> TypedRequest[list[KVPair | None]]:
    """Return the request for the records at *keys*, all of them as of one moment."""
    return _reading(map(get_or_empty, keys), partial(_records, keys))


def read_granted(keys: Sequence[str]) -> TypedRequest[dict[str, KVPair | None]]:
    """Return the request for those records at *keys* that may be read, as of one moment.

    A key that the token may not read is not in the result.
    """
    return _reading(map(get_or_empty, keys), _granted_records)


def read_all(operations: Iterable[Operation]) -> TypedRequest[KVColumns]:
    """Return the request for the result of *operations*, all of it as of one moment.

    They are of `get_or_empty` and `tree`. Absent keys are not in the answer.
    """
    return _reading(operations, _all_records)


def _reading(operations: Iterable[Operation], meaning: Callable[[Answer], T]) -> TypedRequest[T]:
    body = json.dumps(list(operations)).encode()
    return TypedRequest("PUT", "/v1/txn?consistent", meaning, body, answers=OK_OR_CONFLICT)


def _operation(verb: str, key: str, **more: Any) -> Operation:
    return {"KV": {"Verb": verb, "Key": key, **more}}


def _base64(sealed: bytes) -> str:
    return b64encode(sealed).decode()


def _outcome(answer: Answer) -> TransactionOutcome:
    body = json.loads(marked(answer.body))
    return _allowed(body)._replace(records=[record(one) for one in _keys(body)])


def _allowed(body: Any) -> TransactionOutcome:
    """Return the outcome of a transaction, without its records."""
    refusals = [Refusal(one["OpIndex"], one["What"]) for one in body.get("Errors") or ()]
    outcome = TransactionOutcome((), refusals, body.get("ResultsFilteredByACLs", False))
    if any(map(outcome.says, _NO_ACCESS)):
        raise RequestFailedError(Failure(HTTPStatus.FORBIDDEN, refusals[0].said))
    return outcome


def _keys(body: Any) -> list[Any]:
    return [one["KV"] for one in body.get("Results") or () if "Node" not in one]


def _records(keys: Sequence[str], answer: Answer) -> list[KVPair | None]:
    """Return the record at each of *keys*; Consul leaves out those that may not be read."""
    outcome = _outcome(answer)
    if len(outcome.records) < len(keys):
        raise RequestFailedError(FILTERED)
    # `get-or-empty` answers with an index of 0 for an absent key.
    return [one if one.modified else None for one in outcome.records]


def _granted_records(answer: Answer) -> dict[str, KVPair | None]:
    return {one.key: one if one.modified else None for one in _outcome(answer).records}


def _all_records(answer: Answer) -> KVColumns:
    """Return the records; Consul leaves out keys that may not be read, and says so."""
    body = json.loads(marked(answer.body))
    outcome = _allowed(body)
    if outcome.refusals:
        raise RequestFailedError(Failure(answer.status, outcome.refusals[0].said))
    if outcome.filtered:
        raise RequestFailedError(FILTERED)
    return KVColumns.of([one for one in _keys(body) if one["ModifyIndex"]])
