"""Keys of Consul's store: what they are called, how they are read, and what is told of them."""

import json
import re
from binascii import a2b_base64
from collections.abc import Iterator, Sequence
from http import HTTPStatus
from typing import Any, NamedTuple

from kip30.driver.record_format import Unsealed, unseal
from kip30.driver.records import Entry, Version
from kip30_backends.consul.errors import Failure, TroubleError
from kip30_backends.consul.talk import OK_OR_ABSENT, Ask
from kip30_backends.consul.wire import Answer

FILTERED = Failure(HTTPStatus.FORBIDDEN, "Permission denied: not all keys were in the answer")

UNREADABLE = "\udcff"
"""Stands for a byte of a key that is not UTF-8: its answers do not say which byte."""

_REPLACEMENT = rb"\ufffd"
_REPLACED = re.compile(rb"(?<!\\)((?:\\\\)*)\\ufffd")
_MARK = rb"\1\\udcff"


class Record(NamedTuple):
    """A key as it was found: its contents, the session that holds it, and when it was written.

    The flags are a number that its writer chose; kip30 writes 0.
    """

    key: str
    sealed: bytes = b""
    session: str = ""
    created: int = 0
    modified: int = 0
    flags: int = 0

    def unsealed(self) -> Unsealed:
        """Return what is in it; raises `StoreError` if somebody else wrote it."""
        return unseal(self.sealed, self.key)


class Records(NamedTuple):
    """Many records in columns: making an object of each would take longer than all the rest."""

    keys: Sequence[str]
    sealed: Sequence[bytes]
    sessions: Sequence[str]
    created: Sequence[int]
    modified: Sequence[int]

    @classmethod
    def of(cls, told: Sequence[Any]) -> "Records":
        """Return the records that Consul's JSON tells of."""
        return cls(
            [one["Key"] for one in told],
            [a2b_base64(one["Value"] or "") for one in told],
            [one.get("Session", "") for one in told],
            [one["CreateIndex"] for one in told],
            [one["ModifyIndex"] for one in told],
        )

    def part(self, start: int, end: int) -> "Records":
        """Return those from number *start* on that are before number *end*."""
        columns: Any = (column[start:end] for column in self)
        return Records._make(columns)

    def each(self) -> Iterator[Record]:
        """Return them one by one, without their flags."""
        return map(Record, *self)


class Found(NamedTuple):
    """The records of a place, and up to which write the answer speaks for it."""

    at: int
    records: list[Record]


def key_of(path: str) -> str:
    """Return the key at *path* of `kip30.driver.key_layout`: without the leading slash."""
    return path[1:]


def target(key: str, options: str = "") -> str:
    """Return the target of a request about *key*: escaped names are safe as they are."""
    return f"/v1/kv/{key}?consistent{options}"


def at_key(key: str) -> Ask[Found]:
    """Return the request for the record at *key*."""
    return Ask("GET", target(key), found, answers=OK_OR_ABSENT)


def found(answer: Answer) -> Found:
    """Return the records that a read answered.

    Raises:
        TroubleError: Not all of them may be seen, or it is not Consul that says there are none.
    """
    return Found(index_of(answer), [record(one) for one in listed(answer)])


def names_found(answer: Answer) -> list[str]:
    """Return the keys that a read of keys alone answered, as `marked` has them.

    Raises:
        TroubleError: As for `found`.
    """
    return listed(answer._replace(body=marked(answer.body)))


def marked(body: bytes) -> bytes:
    """Return JSON in which `UNREADABLE` stands for each byte of a text that is not UTF-8.

    Consul writes the replacement character for it, as six characters of ASCII. Where that is part
    of a text it is three bytes of UTF-8, so the two can be told apart.
    """
    return _REPLACED.sub(_MARK, body) if _REPLACEMENT in body else body


def check_whole(answer: Answer) -> None:
    """Raise unless a read answered all that there is.

    Raises:
        TroubleError: As for `found`.
    """
    if answer.status == HTTPStatus.NOT_FOUND and "x-consul-index" not in answer.headers:
        raise TroubleError(Failure(answer.status, answer.body.decode("utf-8", "backslashreplace")))
    if is_filtered(answer):
        raise TroubleError(FILTERED)


def is_filtered(answer: Answer) -> bool:
    """Say whether an answer leaves out what the token may not read."""
    return answer.headers.get("x-consul-results-filtered-by-acls") == "true"


def says_nothing_is_there(answer: Answer) -> bool:
    """Say whether a read answered that no key is what it asked for."""
    is_of_consul = "x-consul-index" in answer.headers
    return answer.status == HTTPStatus.NOT_FOUND and is_of_consul and not is_filtered(answer)


def listed(answer: Answer) -> list[Any]:
    """Return the JSON of the records or names that a read answered.

    Raises:
        TroubleError: As for `found`.
    """
    check_whole(answer)
    told: list[Any] = json.loads(answer.body) if answer.status == HTTPStatus.OK else []
    return told


def index_of(answer: Answer) -> int:
    """Return up to which write a read speaks; never 0, which would not wait for the next one."""
    return max(1, int(answer.headers.get("x-consul-index", "1")))


def record(told: Any) -> Record:
    """Return the record that Consul's JSON tells of: all there is to know, or its key alone."""
    if isinstance(told, str):
        return Record(told)
    return Record(
        told["Key"],
        a2b_base64(told["Value"] or ""),
        told.get("Session", ""),
        told["CreateIndex"],
        told["ModifyIndex"],
        told["Flags"],
    )


def entry_of(found_there: Record | None) -> Entry | None:
    """Return the value that a record holds; raises `StoreError` if somebody else wrote it."""
    if found_there is None:
        return None
    nonce, _, data = found_there.unsealed()
    return Entry(Version(found_there.modified), nonce, data)
