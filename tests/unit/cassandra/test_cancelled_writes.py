"""Writes whose callers give them up while they wait for their turn."""

import time
from concurrent.futures import Future
from typing import Any

from kip30.driver.kit.futures import Completed
from kip30.driver.kit.timer import Timer
from kip30.driver.records import Condition, Guard, Version, Write, new_nonce
from kip30.names import Key
from kip30_backends.cassandra.calls import Answer, Calls, TypedRequest
from kip30_backends.cassandra.election import Fences
from kip30_backends.cassandra.observation_order import Revisions
from kip30_backends.cassandra.storage import BatchedWrites
from kip30_backends.cassandra.tombstone_folding import FoldingQueue

SECONDS = 5.0
DONE = Answer([{"[applied]": True}], is_sure=True)
GUARD = Guard(Key("n", "g"), Version(1))


class Recorded:
    """Stands in for `Calls`: keeps each batch; the first one is answered by the test."""

    root = ""
    timer = Timer("test-cancelled-writes")
    read, write = Calls.read, Calls.write

    def __init__(self) -> None:
        self.revisions = Revisions()
        self.statements = self
        self.sent = list[list[tuple[Any, ...]]]()
        self.first: Future[Answer] = Future()

    def bind(self, *statement: Any) -> tuple[Any, ...]:
        return statement

    def batch(self, statements: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        return statements

    def until(self) -> float:
        return time.monotonic() + SECONDS

    def send(self, ask: TypedRequest[Any], _until: float | None = None) -> Future[Any]:
        self.sent.append(ask.statement)
        return self.first if len(self.sent) == 1 else Completed(DONE)


def test_a_cancelled_write_is_not_sent_without_its_guards() -> None:
    """Nor without the mark by which listeners learn of a new key."""
    calls: Any = Recorded()
    writes = BatchedWrites(calls, Fences(calls), FoldingQueue(calls, calls, "ks"))
    writes.add(_write("under-way"))
    given_up, kept = writes.add(_write("given-up", GUARD)), writes.add(_write("kept"))
    assert given_up.cancel()
    calls.first.set_result(DONE)
    assert kept.result(SECONDS)
    _, batch = calls.sent
    assert [statement[0] for statement in batch] == ["put_present", "sign"]
    assert "given-up" not in batch[0]


def _write(name: str, *guards: Guard) -> Write:
    condition = Condition.ANY if guards else Condition.PRESENT
    return Write(Key("n", name), new_nonce(), b"", condition, guards=guards)
