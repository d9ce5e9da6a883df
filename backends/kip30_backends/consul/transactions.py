"""Transactions: what is checked and what is written, in one request, all of it or nothing."""

import json
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from typing import Any, NamedTuple, TypeVar

from kip30_backends.consul.errors import Failure, TroubleError
from kip30_backends.consul.records import FILTERED, Record, Records, marked, record
from kip30_backends.consul.talk import OK_OR_CONFLICT, Ask
from kip30_backends.consul.wire import Answer

MAX_OPS = 64
"""How many operations every version of Consul takes in one transaction."""

MAX_BYTES = 480 * 1024
"""How much a transaction may hold, as base64: Consul takes 512 KiB, all its text included."""

T = TypeVar("T")

Operation = dict[str, Any]

_NO_ACCESS = ("Permission denied", "ACL not found")


class Refusal(NamedTuple):
    """Why an operation of a transaction was refused, so that nothing was done."""

    number: int
    said: str


class Outcome(NamedTuple):
    """What came of a transaction: the keys' records it tells of, or why it was refused.

    It is *filtered* if it leaves out records that may not be read.
    """

    records: Sequence[Record]
    refusals: Sequence[Refusal]
    filtered: bool = False

    def says(self, part: str) -> bool:
        """Say whether a refusal speaks of *part*."""
        return any(part in refusal.said for refusal in self.refusals)


def get(key: str) -> Operation:
    """Tell of *key*, which must be there."""
    return _operation("get", key)


def get_or_empty(key: str) -> Operation:
    """Tell of *key*; if it is not there, of a record that was never modified."""
    return _operation("get-or-empty", key)


def tree(prefix: str) -> Operation:
    """Tell of all keys that begin with *prefix*, which is not empty, if there are any."""
    return _operation("get-tree", prefix)


def put(key: str, sealed: bytes) -> Operation:
    """Write *key*; the session that holds it goes on doing so."""
    return _operation("set", key, Value=_base64(sealed))


def put_over(key: str, sealed: bytes, modified: int) -> Operation:
    """Write *key* if that was *modified* last then; if it is not there, for 0."""
    return _operation("cas", key, Value=_base64(sealed), Index=modified)


def lock(key: str, sealed: bytes, session: str) -> Operation:
    """Write *key* and have *session* hold it, unless another one does."""
    return _operation("lock", key, Value=_base64(sealed), Session=session)


def delete(key: str) -> Operation:
    """Delete *key*."""
    return _operation("delete", key)


def delete_over(key: str, modified: int) -> Operation:
    """Delete *key* if that was *modified* last then, or is not there."""
    return _operation("delete-cas", key, Index=modified)


def is_absent(key: str) -> Operation:
    """Refuse unless *key* is not there."""
    return _operation("check-not-exists", key)


def was_modified(key: str, modified: int) -> Operation:
    """Refuse unless *key* is there and was *modified* last then."""
    return _operation("check-index", key, Index=modified)


def is_held(key: str, session: str) -> Operation:
    """Refuse unless *session* holds *key*."""
    return _operation("check-session", key, Session=session)


def node(name: str, address: str, meta: Mapping[str, str]) -> Operation:
    """Register a node in the catalog, or update its registration."""
    return {"Node": {"Verb": "set", "Node": {"Node": name, "Address": address, "Meta": meta}}}


def write(operations: Sequence[Operation]) -> Ask[Outcome]:
    """Return the request that does *operations*, once."""
    body = json.dumps(operations).encode()
    return Ask("PUT", "/v1/txn", _outcome, body, writes=True, answers=OK_OR_CONFLICT)


def clear(operations: Sequence[Operation]) -> Ask[Outcome]:
    """Return the same for what is in the way: it may be asked again if nobody answers.

    So *operations* have to be harmless however often they are done.
    """
    return write(operations)._replace(writes=False)


def read(keys: Sequence[str]) -> Ask[list[Record | None]]:
    """Return the request for the records at *keys*, all of them as of one moment."""
    return _reading(map(get_or_empty, keys), partial(_records, keys))


def read_granted(keys: Sequence[str]) -> Ask[dict[str, Record | None]]:
    """Return the request for those records at *keys* that may be read, as of one moment.

    A key that the token may not read is not in the result.
    """
    return _reading(map(get_or_empty, keys), _granted_records)


def read_all(operations: Iterable[Operation]) -> Ask[Records]:
    """Return the request for what *operations* tell of, all of it as of one moment.

    They are of `get_or_empty` and `tree`. What is not there is not in the answer.
    """
    return _reading(operations, _all_records)


def _reading(operations: Iterable[Operation], meaning: Callable[[Answer], T]) -> Ask[T]:
    body = json.dumps(list(operations)).encode()
    return Ask("PUT", "/v1/txn?consistent", meaning, body, answers=OK_OR_CONFLICT)


def _operation(verb: str, key: str, **more: Any) -> Operation:
    return {"KV": {"Verb": verb, "Key": key, **more}}


def _base64(sealed: bytes) -> str:
    return b64encode(sealed).decode()


def _outcome(answer: Answer) -> Outcome:
    told = json.loads(marked(answer.body))
    return _allowed(told)._replace(records=[record(one) for one in _keys(told)])


def _allowed(told: Any) -> Outcome:
    """Return what came of a transaction, but for its records."""
    refusals = [Refusal(one["OpIndex"], one["What"]) for one in told.get("Errors") or ()]
    outcome = Outcome((), refusals, told.get("ResultsFilteredByACLs", False))
    if any(map(outcome.says, _NO_ACCESS)):
        raise TroubleError(Failure(HTTPStatus.FORBIDDEN, refusals[0].said))
    return outcome


def _keys(told: Any) -> list[Any]:
    return [one["KV"] for one in told.get("Results") or () if "Node" not in one]


def _records(keys: Sequence[str], answer: Answer) -> list[Record | None]:
    """Return what was found at each of *keys*; one that may not be read is left out by Consul."""
    outcome = _outcome(answer)
    if len(outcome.records) < len(keys):
        raise TroubleError(FILTERED)
    return [one if one.modified else None for one in outcome.records]


def _granted_records(answer: Answer) -> dict[str, Record | None]:
    return {one.key: one if one.modified else None for one in _outcome(answer).records}


def _all_records(answer: Answer) -> Records:
    """Return what was found; keys that may not be read are left out by Consul, which says so."""
    told = json.loads(marked(answer.body))
    outcome = _allowed(told)
    if outcome.refusals:
        raise TroubleError(Failure(answer.status, outcome.refusals[0].said))
    if outcome.filtered:
        raise TroubleError(FILTERED)
    return Records.of([one for one in _keys(told) if one["ModifyIndex"]])
