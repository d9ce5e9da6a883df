"""One deadline for an operation, however many requests it needs."""

import time
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from kip30.driver.kit.futures import Completed
from kip30.driver.kit.timer import Timer
from kip30.driver.records import Condition, Fence, Write, new_nonce
from kip30.names import Key
from kip30_backends.cassandra.calls import Answer, Calls, TypedRequest
from kip30_backends.cassandra.election import Fences
from kip30_backends.cassandra.observation_order import Revisions
from kip30_backends.cassandra.storage import BatchedWrites
from kip30_backends.cassandra.tombstone_folding import FoldingQueue

SECONDS = 5.0


class Scripted:
    """Stands in for `Calls`: answers by a script, and records the deadline of each request."""

    seconds = SECONDS
    root = ""
    timer = Timer("test-deadlines")

    def __init__(self, *answers: Mapping[str, object], sure: bool) -> None:
        self.asked = list[float | None]()
        self.revisions = Revisions()
        self.statements = self
        self._answers = iter(answers)
        self._sure = sure

    def bind(self, name: str, *_: object) -> str:
        return name

    def batch(self, statements: list[str]) -> list[str]:
        return statements

    def until(self) -> float:
        return time.monotonic() + SECONDS

    def send(self, ask: TypedRequest[Any], until: float | None = None) -> Future[Any]:
        self.asked.append(until)
        return Completed(ask.read(Answer([next(self._answers)], self._sure)))

    read, write = Calls.read, Calls.write


def test_a_write_in_doubt() -> None:
    no, yes = {"[applied]": False, "rev": 0}, {"[applied]": True}
    calls = Scripted(no, no, {"done": None}, yes, sure=False)
    _write(calls, None)
    assert len(calls.asked) == 4
    assert len(set(calls.asked)) == 1


def test_a_write_with_a_fence() -> None:
    no, yes = {"[applied]": False, "rev": 1, "fences": None}, {"[applied]": True}
    calls = Scripted(no, yes, no, yes, yes, sure=True)
    _write(calls, Fence("s", 1))
    assert len(calls.asked) == 5
    assert len(set(calls.asked)) == 1


def _write(calls: Any, fence: Fence | None) -> None:
    write = Write(Key("n", "k"), new_nonce(), b"", Condition.ANY, fence)
    BatchedWrites(calls, Fences(calls), FoldingQueue(calls, calls, "ks")).add(write).result(1)
