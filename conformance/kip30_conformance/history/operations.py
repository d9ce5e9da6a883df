"""The rows of a recorded history: one per operation, from its call to its return."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from math import inf
from typing import Any, cast

from kip30.records import Version, parse_version

Value = Any
"""What JSON can say, with tuples for lists: values are compared and hashed, never computed with."""


class Outcome(Enum):
    """What the caller was told."""

    OK = "ok"
    FAIL = "fail"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation of one process on one key.

    Attributes:
        key: The object it worked on; operations on different keys do not see each other.
        process: Who called. Only for people to read: order comes from the times.
        op: What was called, in the words of the model that judges it.
        called_ns: The moment before it was sent, in nanoseconds of one monotonic clock.
        returned_ns: The moment after the answer came; None if and only if none came.
        outcome: Done, definitely not done, or unknown: it may happen at any later time.
        args: What it was called with, besides the key.
        result: What it returned; of a failure, the name of the error.
        version: The version it returned, where it returned one.
    """

    key: str
    process: str
    op: str
    called_ns: int
    returned_ns: int | None = None
    outcome: Outcome = Outcome.UNKNOWN
    args: tuple[Value, ...] = ()
    result: Value = None
    version: Version | None = None

    def __post_init__(self) -> None:
        """Refuse an answer without a time of return, and the other way round."""
        if self.answered != (self.returned_ns is not None):
            raise ValueError(f"{self}: an operation returns if and only if it is answered")
        if self.ends_ns < self.called_ns:
            raise ValueError(f"{self}: it returned before it was called")

    @property
    def answered(self) -> bool:
        """Whether its outcome is known."""
        return self.outcome is not Outcome.UNKNOWN

    @property
    def ends_ns(self) -> float:
        """The moment by which it has happened, if ever: infinity without an answer."""
        return inf if self.returned_ns is None else self.returned_ns

    @property
    def acknowledged(self) -> bool:
        """Whether it was certainly done."""
        return self.outcome is Outcome.OK

    @property
    def refused(self) -> bool:
        """Whether it was certainly not done."""
        return self.outcome is Outcome.FAIL


def to_fields(operation: Operation) -> dict[str, Any]:
    """Return *operation* as names and values that JSON and data frames take."""
    return {
        "key": operation.key,
        "process": operation.process,
        "op": operation.op,
        "called_ns": operation.called_ns,
        "returned_ns": operation.returned_ns,
        "outcome": operation.outcome.value,
        "args": list(operation.args),
        "result": operation.result,
        "version": None if operation.version is None else str(operation.version),
    }


def from_fields(fields: Mapping[str, Any]) -> Operation:
    """Return the operation that `to_fields` made *fields* of, also after a way through JSON.

    Raises:
        ValueError: A field holds what no operation has.
    """
    version = fields.get("version")
    return Operation(
        key=fields["key"],
        process=fields["process"],
        op=fields["op"],
        called_ns=fields["called_ns"],
        returned_ns=fields.get("returned_ns"),
        outcome=Outcome(fields.get("outcome", "unknown")),
        args=tuple(frozen(value) for value in fields.get("args", ())),
        result=frozen(fields.get("result")),
        version=None if version is None else parse_version(version),
    )


def frozen(value: Value) -> Value:
    """Return *value* with every list in it made a tuple, so that it can be hashed."""
    if not isinstance(value, list | tuple):
        return value
    items = cast("Iterable[Value]", value)
    return tuple(frozen(item) for item in items)
