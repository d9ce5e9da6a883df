"""States that watches receive while another read of the same value is under way."""

import time
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from kip30.driver.kit.operation import begun
from kip30.driver.kit.timer import Timer
from kip30.driver.records import Kind, Snapshot, Target
from kip30_backends.cassandra.calls import Answer, Calls, TypedRequest
from kip30_backends.cassandra.observation_order import AnswerOrder
from kip30_backends.cassandra.partition_queue import ConcurrencyLimit
from kip30_backends.cassandra.target_states import TargetStates
from kip30_backends.cassandra.tombstone_folding import FoldingQueue
from kip30_backends.cassandra.watch import CassandraWatch, NamespacePoll, PollTiming

VALUE = Target(Kind.VALUE, "n", "k")
OLD, NEW = 9, 10


class Asked:
    """Stands in for `Calls`: each request waits until the test answers it."""

    root = "r"
    timer = Timer("test-states")

    def __init__(self) -> None:
        self.statements = self
        self.orders = AnswerOrder()
        self._asked = list[tuple[TypedRequest[Any], Future[Any]]]()

    def bind(self, name: str, *_: object) -> str:
        return name

    poll = bind

    def until(self) -> float:
        return time.monotonic() + 10

    def send(self, ask: TypedRequest[Any], _until: float = 0.0) -> Future[Any]:
        done: Future[Any] = Future()
        self._asked.append((ask, done))
        return done

    read = Calls.read

    def count(self, name: str) -> int:
        """Return how many requests of that *name* wait."""
        return sum(ask.statement == name for ask, _ in self._asked)

    def answer(self, name: str, version: int) -> None:
        """Answer the oldest request of that *name*, as the store was when it had *version*."""
        index = next(at for at, (ask, _) in enumerate(self._asked) if ask.statement == name)
        ask, done = self._asked.pop(index)
        row = {
            "rev": version,
            "name": "k",
            "id": "m",
            "version": version,
            "nonce": "nonce",
            "data": b"",
        }
        result = ask.read(Answer([row], is_sure=True))
        done.set_result(result)


class World:
    """One watch of a value; the test starts its polls."""

    def __init__(self, timer: Timer) -> None:
        asked: Any = Asked()
        self.asked = asked
        self.told = list[Snapshot]()
        self.states = TargetStates(asked, FoldingQueue(asked, asked, "ks"))
        self.poll = NamespacePoll("n", self.states, PollTiming(timer, ConcurrencyLimit(1), 0.01))
        self.watch = CassandraWatch(
            VALUE, self.told.append, asked.orders, lambda _: self.poll.remove(self.watch)
        )

    def look(self) -> Future[bool]:
        return begun(self.poll.look([self.watch]))

    def versions(self, *more: Snapshot) -> list[int]:
        """Return the versions that were received and read, in the order that they claim."""
        some = sorted([*self.told, *more], key=lambda one: one.order)
        return [one.entries["k"].version.major for one in some]


@pytest.fixture
def world() -> Iterator[World]:
    timer = Timer("test-states")
    yield World(timer)
    timer.stop()


def test_a_look_that_sees_the_older_state_does_not_pass_for_a_later_one(world: World) -> None:
    baseline = world.states.read(VALUE)
    look = world.look()
    world.asked.answer("read_rev", OLD)
    world.asked.answer("read_records", NEW)
    world.asked.answer("read_records", OLD)
    assert look.result(0)  # it must poll again soon
    assert world.versions(baseline.result(0)) == [NEW]
    world.look()
    world.asked.answer("read_rev", NEW)
    world.asked.answer("read_records", NEW)
    assert world.versions(baseline.result(0)) == [NEW, NEW]


def test_a_known_state_is_not_redelivered_over_a_newer_response(world: World) -> None:
    for _ in range(2):  # the second one settles
        world.look()
        world.asked.answer("read_rev", OLD)
        world.asked.answer("read_records", OLD)
    world.asked.orders.stamp()  # an answer about something else
    baseline = world.states.read(VALUE)
    world.look()
    world.asked.answer("read_records", NEW)
    world.asked.answer("read_rev", OLD)
    assert world.versions(baseline.result(0)) == [OLD, NEW]


def test_nothing_is_kept_of_looks_that_are_over(world: World) -> None:
    for version in (OLD, OLD, NEW, NEW, NEW):
        world.look()
        world.asked.answer("read_rev", version)
        for _ in world.asked._asked:
            world.asked.answer("read_records", version)
    states: Any = world.states
    assert len(states._overlaps) == 0


def test_callers_that_read_one_group_share_a_serial_read(world: World) -> None:
    group = Target(Kind.GROUP, "g")
    reads = [world.states.read(group) for _ in range(3)]
    assert world.asked.count("read_members") == 1
    world.asked.answer("read_members", OLD)
    assert [read.done() for read in reads] == [True, False, False]
    assert world.asked.count("read_members") == 1
    world.asked.answer("read_members", NEW)
    assert all(read.done() for read in reads)
