"""Serial reads: one at a time of each target, which all that wait for it share."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from typing_extensions import override

from kip30.driver.kit.futures import Completed
from kip30.driver.records import Kind, Snapshot, Target
from kip30.errors import UnavailableError
from kip30_backends.cassandra.serial_reads import SerialReads

GROUP, OTHER = Target(Kind.GROUP, "g"), Target(Kind.GROUP, "h")


class Store:
    """Reads that the test answers, each with a greater order."""

    def __init__(self) -> None:
        self.begun: list[tuple[Target, Future[Snapshot]]] = []
        self.reads = SerialReads(self._begin)

    def _begin(self, target: Target) -> Future[Snapshot]:
        done: Future[Snapshot] = Future()
        self.begun.append((target, done))
        return done

    def answer(self, number: int) -> None:
        self.begun[number][1].set_result(Snapshot(number, {}))

    def orders(self, *answers: Future[Snapshot]) -> list[int]:
        return [answer.result(0).order for answer in answers]


@pytest.fixture
def store() -> Store:
    return Store()


def test_callers_during_a_read_share_the_next_one(store: Store) -> None:
    """Not the present one: it may have been decided before they asked."""
    first = store.reads.read(GROUP)
    later = [store.reads.read(GROUP) for _ in range(3)]
    assert len(store.begun) == 1
    store.answer(0)
    assert store.orders(first) == [0]
    assert not any(answer.done() for answer in later)
    store.answer(1)
    assert store.orders(*later) == [1, 1, 1]
    assert len(store.begun) == 2


def test_other_targets_are_read_at_the_same_time(store: Store) -> None:
    answers = store.reads.read(GROUP), store.reads.read(OTHER)
    assert [target for target, _ in store.begun] == [GROUP, OTHER]
    store.answer(1)
    store.answer(0)
    assert store.orders(*answers) == [0, 1]


def test_an_error_is_for_those_that_shared_the_read(store: Store) -> None:
    first, second = store.reads.read(GROUP), store.reads.read(GROUP)
    store.begun[0][1].set_exception(UnavailableError("away"))
    with pytest.raises(UnavailableError, match="away"):
        first.result(0)
    store.answer(1)
    assert store.orders(second) == [1]


def test_a_caller_that_gives_up_changes_nothing_for_others(store: Store) -> None:
    store.reads.read(GROUP)
    second, third = store.reads.read(GROUP), store.reads.read(GROUP)
    assert second.cancel()
    store.answer(0)
    store.answer(1)
    assert store.orders(third) == [1]


def test_a_read_that_raises_is_an_answer() -> None:
    def refuse(_: Target) -> Future[Snapshot]:
        raise UnavailableError("closed")

    reads = SerialReads(refuse)
    for _ in range(2):
        with pytest.raises(UnavailableError, match="closed"):
            reads.read(GROUP).result(0)
    assert not reads._waiting


def test_nothing_is_kept_of_reads_that_are_over() -> None:
    reads = SerialReads(lambda target: Completed(Snapshot(len(target.scope), {})))
    for number in range(100):
        reads.read(Target(Kind.GROUP, str(number))).result(0)
    assert not reads._waiting


def test_a_crowd_is_answered_by_reads_that_began_after_each_call() -> None:
    """Each caller finds at least what was there when it called."""
    present, under_way, most = 0, 0, 0
    lock = threading.Lock()

    def begin(_: Target) -> Future[Snapshot]:
        nonlocal under_way, most
        done: Future[Snapshot] = Future()
        with lock:
            under_way += 1
            most = max(most, under_way)
            state = present
        threading.Timer(0.001, end, [done, state]).start()
        return done

    def end(done: Future[Snapshot], state: int) -> None:
        nonlocal under_way
        with lock:
            under_way -= 1
        done.set_result(Snapshot(state, {}))

    def call(_: int) -> bool:
        nonlocal present
        with lock:
            present += 1
            before = present
        return reads.read(GROUP).result(10).order >= before

    reads = SerialReads(begin)
    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(call, range(400)))
    assert most == 1


def test_an_interrupt_as_a_read_begins_stops_no_later_one() -> None:
    interrupts = [KeyboardInterrupt()]

    def begin(_: Target) -> Future[Snapshot]:
        if interrupts:
            raise interrupts.pop()
        return Completed(Snapshot(1, {}))

    reads = SerialReads(begin)
    with pytest.raises(KeyboardInterrupt):
        reads.read(GROUP)
    assert reads.read(GROUP).result(0).order == 1
    assert not reads._waiting


def test_an_interrupt_right_after_a_read_has_begun_ends_that_read_once(store: Store) -> None:
    class Interrupted(Future[Snapshot]):
        @override
        def add_done_callback(self, fn: Callable[[Future[Snapshot]], object]) -> None:
            super().add_done_callback(fn)
            raise KeyboardInterrupt

    interrupted = Interrupted()
    reads = iter([interrupted])
    shared = SerialReads(lambda target: next(reads, None) or store._begin(target))
    with pytest.raises(KeyboardInterrupt):
        shared.read(GROUP)
    second = shared.read(GROUP)
    interrupted.set_result(Snapshot(7, {}))
    third = shared.read(GROUP)
    assert len(store.begun) == 1, "the answer to the interrupted read has ended the second one"
    store.answer(0)
    store.answer(1)
    assert store.orders(second, third) == [0, 1]
    assert not shared._waiting
