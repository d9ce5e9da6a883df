"""Hundreds of requests for one answer, of which the first is answered last."""

import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from kip30 import UnavailableError
from kip30.driver.kit.operation import begun
from kip30.driver.kit.timer import Timer
from kip30.driver.records import Fence
from kip30.names import Key
from kip30_backends.cassandra.calls import Answer, Calls, TypedRequest
from kip30_backends.cassandra.election import Fences
from kip30_backends.cassandra.storage import CassandraStorage
from kip30_backends.cassandra.tombstone_folding import FoldingQueue

MANY = 1000
NAMES = [f"n{number:04d}" for number in range(MANY)]
SOON = 10.0


class Unanswered:
    """Stands for `Calls`: notes what is to be answered, and how the answers are read."""

    seconds = SOON
    root = ""
    timer = Timer("test-many")

    def __init__(self) -> None:
        self.asked = list[Future[Any]]()
        self.reads = list[Callable[[Answer], Any]]()
        self.statements = self.gate = self

    def bind(self, name: str, *_: object) -> str:
        return name

    def check(self) -> None:
        pass

    def until(self) -> float:
        return SOON + time.monotonic()

    def send(self, ask: TypedRequest[Any], _until: float) -> Future[Any]:
        self.reads.append(ask.read)
        self.asked.append(Future())
        return self.asked[-1]

    write = Calls.write


def test_many_namespaces_are_read() -> None:
    calls: Any = Unanswered()
    read = CassandraStorage(calls, Fences(calls), FoldingQueue(calls, calls, "ks")).read(
        [Key(name, "k") for name in NAMES]
    )
    for number, one in reversed([*enumerate(calls.asked)]):
        row = {"name": "k", "version": number, "nonce": "nonce", "data": b""}
        one.set_result(calls.reads[number](Answer([row], is_sure=True)))
    assert [entry and entry.version.major for entry in read.result(SOON)] == [*range(MANY)]


def test_many_fences_are_raised() -> None:
    calls: Any = Unanswered()
    raised = begun(Fences(calls).raise_all(NAMES, Fence("s", 2), calls.until()))
    for one in reversed(calls.asked):
        one.set_result(Answer([{"[applied]": True}], is_sure=True))
    assert raised.result(SOON) is None


def test_the_failure_of_all_requests_is_raised() -> None:
    calls: Any = Unanswered()
    raised = begun(Fences(calls).raise_all(NAMES, Fence("s", 2), calls.until()))
    for one in reversed(calls.asked):
        one.set_exception(UnavailableError("no answer"))
    with pytest.raises(UnavailableError):
        raised.result(SOON)
