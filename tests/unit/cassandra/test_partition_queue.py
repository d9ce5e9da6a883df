"""Work that waits for its turn at a partition."""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TypeVar

import pytest
from typing_extensions import override

from kip30 import ClosedError, OutcomeUnknownError, UnavailableError
from kip30.driver.kit.futures import Completed, failed
from kip30.driver.kit.operation import Steps
from kip30.driver.kit.timer import Timer
from kip30_backends.cassandra.partition_queue import ClaimQueues, PartitionQueues

SECONDS = 5.0
A_MOMENT = 0.05


@pytest.fixture
def timer() -> Iterator[Timer]:
    one = Timer("test-lines")
    yield one
    one.stop()


@pytest.fixture
def turns(timer: Timer) -> ClaimQueues:
    return ClaimQueues(timer)


def soon() -> float:
    return time.monotonic() + SECONDS


T = TypeVar("T")


def once(answer: Future[T]) -> Steps[T]:
    """Return the work that makes one request, with that *answer*."""
    result: T = yield answer
    return result


def test_one_after_the_other(turns: ClaimQueues) -> None:
    begun, first = list[str](), Future[str]()

    def work(name: str, answer: Future[str]) -> Steps[str]:
        begun.append(name)
        return once(answer)

    one = turns.take("here", lambda _: work("one", first), soon())
    two = turns.take("here", lambda _: work("two", Completed("2")), soon())
    elsewhere = turns.take("there", lambda _: work("there", Completed("3")), soon())
    assert begun == ["one", "there"]
    first.set_result("1")
    assert [one.result(1), two.result(1), elsewhere.result(1)] == ["1", "2", "3"]
    assert begun == ["one", "there", "two"]


def test_work_that_lets_a_few_go_first_overtakes_the_others(turns: ClaimQueues) -> None:
    begun, first = list[object](), Future[None]()

    def work(name: object) -> Callable[[float], Steps[None]]:
        def begin(_: float) -> Steps[None]:
            begun.append(name)
            return once(Completed(None))

        return begin

    turns.take("here", lambda _: once(first), soon())
    for number in range(5):
        turns.take("here", work(number), soon())
    turns.take("here", work("renewal"), soon(), behind=2)
    turns.take("here", work("last"), soon(), behind=20)
    first.set_result(None)
    assert begun == [0, 1, "renewal", 2, 3, 4, "last"]


def test_a_failed_request_does_not_affect_the_next_request(turns: ClaimQueues) -> None:
    assert type(turns.take("here", lambda _: once(failed(ClosedError())), soon()).exception()) is (
        ClosedError
    )
    assert turns.take("here", lambda _: once(Completed(1)), soon()).result(1) == 1
    assert isinstance(turns.take("here", _raise, soon()).exception(), ZeroDivisionError)


def test_a_request_past_its_deadline_is_not_started(turns: ClaimQueues) -> None:
    first, begun = Future[int](), threading.Event()

    def begin(_: float) -> Steps[int]:
        begun.set()
        return once(Completed(1))

    turns.take("here", lambda _: once(first), soon())
    late = turns.take("here", begin, 0.0)
    first.set_result(0)
    with pytest.raises(UnavailableError):
        late.result(1)
    assert not begun.is_set()


def test_a_queued_request_ends_at_its_own_deadline(turns: ClaimQueues) -> None:
    first = turns.take("here", lambda _: once(Future[int]()), soon())
    late = turns.take("here", lambda _: once(Completed(1)), time.monotonic() + A_MOMENT)
    with pytest.raises(UnavailableError):
        late.result(SECONDS)
    assert not first.done()


def test_requests_with_short_deadlines_are_batched_separately(timer: Timer) -> None:
    done, first = list[list[Job]](), Future[Sequence[Job]]()

    def do(_place: object, jobs: Sequence[Job], until: float) -> Future[Sequence[Job]]:
        assert until == min(job.until for job in jobs)
        done.append(list(jobs))
        return first if len(done) == 1 else Completed(())

    lines: PartitionQueues[Job] = PartitionQueues(timer, _all, do)
    jobs = [Job(time.monotonic() + SECONDS * part) for part in (1, 0.1, 0.9, 0.12, 1)]
    for job in jobs:
        lines.join("here", job)
    first.set_result(())
    assert done == [[jobs[0]], [jobs[1], jobs[3]], [jobs[2], jobs[4]]]


def test_a_long_line_takes_no_deep_stack(turns: ClaimQueues) -> None:
    first = Future[int]()
    turns.take("here", lambda _: once(first), soon())
    waiting = [turns.take("here", lambda _: once(Completed(1)), soon()) for _ in range(5000)]
    first.set_result(0)
    assert sum(one.result(1) for one in waiting) == 5000


def test_an_interrupt_of_a_caller_stops_no_later_request(turns: ClaimQueues) -> None:
    interrupted = list[Future[int]]()

    def interrupt(_: float) -> Steps[int]:
        interrupted.append(turns.take("here", lambda _: once(Completed(1)), soon()))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        turns.take("here", interrupt, soon())
    assert interrupted[0].result(0) == 1
    assert turns.take("here", lambda _: once(Completed(2)), soon()).result(0) == 2


def test_an_interrupt_right_after_a_request_was_sent_ends_it_once(timer: Timer) -> None:
    sent: list[Future[Sequence[Job]]] = [_Interrupted(), Future(), Future()]
    answers = iter(sent)
    lines: PartitionQueues[Job] = PartitionQueues(timer, _all, lambda *_: next(answers))
    first, second, third = (Job(soon()) for _ in range(3))
    with pytest.raises(KeyboardInterrupt):
        lines.join("here", first)
    with pytest.raises(OutcomeUnknownError):
        first.answer.result(0)
    lines.join("here", second)
    sent[0].set_result([first])
    lines.join("here", third)
    assert next(answers) is sent[2], "the late answer has let the third request pass the second"


@dataclass(eq=False)
class Job:
    until: float
    answer: Future[int] = field(default_factory=Future[int])


class _Interrupted(Future[Sequence[Job]]):
    """Interrupts the caller that adds a callback to it."""

    @override
    def add_done_callback(self, fn: Callable[[Future[Sequence[Job]]], object]) -> None:
        super().add_done_callback(fn)
        raise KeyboardInterrupt


def _all(line: deque[Job]) -> list[Job]:
    return [line.popleft() for _ in range(len(line))]


def _raise(_: float) -> Steps[int]:
    raise ZeroDivisionError
