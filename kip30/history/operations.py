"""The rows of a recorded history: one per operation, from its call to its return."""

from collections.abc import Hashable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from enum import Enum
from math import inf
from typing import Any, Final, cast

from typing_extensions import override

from kip30.driver.records import Fence, Version, parse_version

Value = Any
"""A JSON value, as `frozen` returns it: compared and hashed, never computed with."""


class Exact:
    """A value that Python would take for another one, or cannot hash: a bool, a float or a dict.

    It equals only a value of the same type: ``True`` is not ``1``, and ``1.0`` is neither.
    """

    __slots__: Final = ("_identity", "value")

    def __init__(self, value: Value, identity: Hashable) -> None:
        """Represent *value*, which equals those with the same *identity*."""
        self.value: Value = value
        self._identity = identity

    @override
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Exact) and self._identity == other._identity

    @override
    def __hash__(self) -> int:
        return hash(self._identity)

    @override
    def __repr__(self) -> str:
        return repr(self.value)


class Outcome(Enum):
    """Outcome of a call, as far as the caller knows it."""

    OK = "ok"
    FAIL = "fail"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation of one process on one key.

    Attributes:
        key: The object it worked on; operations on different keys do not see each other.
        process: The caller. Only for people to read: order comes from the times.
        op: The operation that was called, in the words of the model that judges it.
        called_ns: The moment before it was sent, in nanoseconds of one monotonic clock.
        returned_ns: The moment after the answer came; None if and only if none came.
        outcome: Done, definitely not done, or unknown: it may happen at any later time.
        args: Its arguments, besides the key.
        result: What it returned; of a failure, the name of the error.
        version: The version it returned, where it returned one.
        fence: The service and epoch it was fenced with, if it was.
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
    fence: Fence | None = None

    def __post_init__(self) -> None:
        """Freeze the values; refuse an answer without a time of return, and vice versa."""
        object.__setattr__(self, "args", frozen(self.args))
        object.__setattr__(self, "result", frozen(self.result))
        if self.answered != (self.returned_ns is not None):
            raise ValueError(f"{self}: an operation returns if and only if it is answered")
        if self.ends_ns < self.called_ns:
            raise ValueError(f"{self}: it returned before it was called")

    @property
    def answered(self) -> bool:
        """True if its outcome is known."""
        return self.outcome is not Outcome.UNKNOWN

    @property
    def ends_ns(self) -> float:
        """The moment by which it has happened, if ever: infinity without an answer."""
        return inf if self.returned_ns is None else self.returned_ns

    @property
    def acknowledged(self) -> bool:
        """True if it was certainly done."""
        return self.outcome is Outcome.OK

    @property
    def refused(self) -> bool:
        """True if it was certainly not done."""
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
        "args": thawed(operation.args),
        "result": thawed(operation.result),
        "version": None if operation.version is None else str(operation.version),
        "fence": None if operation.fence is None else list(operation.fence),
    }


def from_fields(fields: Mapping[str, Any]) -> Operation:
    """Return the operation that `to_fields` turned into *fields*, even after a trip through JSON.

    Raises:
        ValueError: A field has a value that no operation has.
    """
    version, fence = fields.get("version"), fields.get("fence")
    return Operation(
        key=fields["key"],
        process=fields["process"],
        op=fields["op"],
        called_ns=fields["called_ns"],
        returned_ns=fields.get("returned_ns"),
        outcome=Outcome(fields.get("outcome", "unknown")),
        args=tuple(fields.get("args", ())),
        result=fields.get("result"),
        version=None if version is None else parse_version(version),
        fence=None if fence is None else Fence(*fence),
    )


def frozen(value: Value) -> Value:
    """Return *value* so that it can be hashed, and equals only what JSON would write alike.

    Lists become tuples; a bool, a float or a dict becomes an `Exact`.
    """
    if value is None or isinstance(value, str | Version):
        return value
    if isinstance(value, list | tuple):
        return tuple(map(frozen, cast("Iterable[Value]", value)))
    if isinstance(value, dict):
        fields = cast("dict[str, Value]", value)
        items = frozenset((key, frozen(item)) for key, item in fields.items())
        return Exact(deepcopy(fields), items)
    if isinstance(value, bool | float):
        return Exact(value, (type(value).__name__, repr(value)))
    return value


def thawed(value: Value) -> Value:
    """Return the JSON value that `frozen` turned into *value*, with lists for tuples."""
    if isinstance(value, Exact):
        return value.value
    if isinstance(value, tuple):
        return [thawed(item) for item in cast("Iterable[Value]", value)]
    return value
