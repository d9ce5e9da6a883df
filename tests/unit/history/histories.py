"""Histories that are linearizable because they were made by a register that is."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any, NamedTuple

from kip30.driver.records import Version
from kip30.history.cas_register import MISMATCH
from kip30.history.operations import Operation, Outcome


class Asked(NamedTuple):
    """One operation to be, at the moment of its place in the list it is in.

    It runs *early* moments before and *late* ones after that; if it is *lost* it has no
    answer, and if *dropped* as well it does not happen.
    """

    op: str
    args: tuple[Any, ...] = ()
    early: int = 0
    late: int = 0
    lost: bool = False
    dropped: bool = False


Answer = dict[str, Any]


class CasStore:
    """The real thing behind a history of a `CasRegister`."""

    def __init__(self, value: Any = None) -> None:
        self.value = value

    def answer(self, asked: Asked) -> Answer:
        if asked.op == "read":
            return {"outcome": Outcome.OK, "result": self.value}
        if asked.op == "cas" and asked.args[0] != self.value:
            return {"outcome": Outcome.FAIL, "result": MISMATCH}
        self.value = asked.args[-1]
        return {"outcome": Outcome.OK}


class KeyStore:
    """The real thing behind a history of a `StorageRegister`."""

    def __init__(self) -> None:
        self.stored: tuple[Any, Version] | None = None
        self.versions = 0

    def answer(self, asked: Asked) -> Answer:
        if asked.op == "get":
            value, version = self.stored or (None, None)
            return {"outcome": Outcome.OK, "result": value, "version": version}
        if error := self._refusal(asked):
            return {"outcome": Outcome.FAIL, "result": error}
        if asked.op == "delete":
            self.stored = None
            return {"outcome": Outcome.OK}
        self.versions += 1
        self.stored = (asked.args[-1], Version(self.versions))
        return {"outcome": Outcome.OK, "version": self.stored[1]}

    def _refusal(self, asked: Asked) -> str | None:
        if asked.op == "set":
            return None
        if asked.op == "put":
            return "KeyExistsError" if self.stored else None
        if self.stored is None:
            return "KeyMissingError"
        conflict = asked.op == "compare_and_set" and asked.args[0] != self.stored[1]
        return "VersionConflictError" if conflict else None


def played(asked: Sequence[Asked], answer: Callable[[Asked], Answer]) -> list[Operation]:
    """Return the history of *asked*, in that order, answered by *answer*."""
    return [_row(place, one, answer) for place, one in enumerate(asked)]


def _row(place: int, asked: Asked, answer: Callable[[Asked], Answer]) -> Operation:
    answered = {} if asked.lost and asked.dropped else answer(asked)
    called = 10 * (place - asked.early)
    row = Operation(key="k", process=str(place), op=asked.op, args=asked.args, called_ns=called)
    returned = 10 * (place + asked.late) + 1
    return row if asked.lost else replace(row, returned_ns=returned, **answered)


def storage_history(seed: int, length: int, *, unique: bool = True) -> list[Operation]:
    """Return a linearizable history of one key of a storage with some concurrency and loss.

    It begins with a put and a read, and ends, after all else, with a new put and a read. No
    deletion is without an answer: one could explain too much.
    """
    random = Random(seed)  # noqa: S311  a history is no secret
    asked = [_some_request(random, place if unique else place % 3) for place in range(length)]
    begin = [Asked("put", ("first",)), Asked("get")]
    end = [*[Asked("get")] * 3, Asked("delete"), Asked("put", ("last",)), Asked("get")]
    return played([*begin, *asked, *end], KeyStore().answer)


def quiet_history(length: int) -> list[Operation]:
    """Return a linearizable history of *length* rows, with concurrency and without loss."""
    random = Random(length)  # noqa: S311  a history is no secret
    asked = [
        Asked("get") if place % 3 else Asked("set", (f"v{place}",), random.randint(0, 3), 2)
        for place in range(1, length - 1)
    ]
    return played([Asked("put", ("first",)), Asked("get"), *asked], KeyStore().answer)


def _some_request(random: Random, value: int) -> Asked:
    op = random.choices(["put", "update", "compare_and_set", "delete", "get"], [2, 4, 2, 1, 6])[0]
    expected = (Version(random.randint(1, 1 + value // 2)),) if op == "compare_and_set" else ()
    args = () if op in ("get", "delete") else (*expected, f"v{value}")
    lost = op not in ("get", "delete") and random.random() < 0.1
    return Asked(op, args, random.randint(0, 3), random.randint(0, 3), lost, random.random() < 0.5)
