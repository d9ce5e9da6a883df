import threading
import time
import weakref
from collections.abc import Iterator
from functools import partial

import pytest
from typing_extensions import override

from kip30.driver.clock import ManualClock, SystemClock
from kip30.runtime.dispatcher import READERS, STORE_WORKERS, Delivery, Dispatcher, Task
from kip30_conformance.polling import eventually, throughout, time_scale

pytestmark = pytest.mark.virtual_time

LONG = 3600.0
STALL = 0.3


@pytest.fixture
def dispatcher() -> Iterator[Dispatcher]:
    made = Dispatcher(SystemClock(), name="test")
    yield made
    made.close(5)


def test_a_woken_task_runs(dispatcher: Dispatcher) -> None:
    ran = threading.Event()
    dispatcher.task(ran.set, "t").wake()
    assert ran.wait(5)


def test_a_task_never_runs_twice_at_once_and_no_wake_up_is_lost(dispatcher: Dispatcher) -> None:
    running, overlaps, seen = threading.Lock(), [], []
    wanted = [0]

    def run() -> None:
        if not running.acquire(blocking=False):
            overlaps.append(1)
            return
        seen.append(wanted[0])
        time.sleep(0.0001)
        running.release()

    task = dispatcher.task(run, "t")
    for number in range(1, 501):
        wanted[0] = number
        task.wake()
    eventually(lambda: seen and seen[-1] == 500)
    assert not overlaps


def test_blocked_tasks_delay_no_other(dispatcher: Dispatcher) -> None:
    release = threading.Event()
    blocked = [dispatcher.task(lambda: release.wait() and None, "blocked") for _ in range(20)]
    for task in blocked:
        task.wake()
    ran = threading.Event()
    dispatcher.task(ran.set, "free").wake()
    assert ran.wait(10)
    release.set()


def test_the_librarys_own_tasks_run_before_callbacks(dispatcher: Dispatcher) -> None:
    release, begun, seen = threading.Event(), list[int](), list[int]()

    def block() -> None:
        begun.append(1)
        release.wait()

    blocked = [dispatcher.task(block, "blocked", calls_back=True) for _ in range(100)]
    own = dispatcher.task(lambda: seen.append(len(begun)), "own")
    with dispatcher._lock:  # so that no worker takes one before all are queued
        for task in (*blocked, own):
            dispatcher._enqueue(task)
    eventually(lambda: seen)
    assert seen[0] < 100
    release.set()


def test_tasks_that_wait_for_the_store_share_few_threads(dispatcher: Dispatcher) -> None:
    before = threading.active_count()
    release, begun = threading.Event(), list[int]()

    def wait_for_the_store(number: int) -> None:
        begun.append(number)
        release.wait()

    for number in range(200):
        dispatcher.task(partial(wait_for_the_store, number), "asks", waits_for_store=True).wake()
    eventually(lambda: len(begun) == STORE_WORKERS)
    rang = threading.Event()
    dispatcher.task(rang.set, "timer").wake_at(dispatcher.clock.now() + 0.01)
    assert rang.wait(10)
    assert begun == list(range(STORE_WORKERS))
    assert threading.active_count() - before <= STORE_WORKERS + 5
    release.set()
    eventually(lambda: len(begun) == 200)
    assert sorted(begun) == list(range(200))


def test_callbacks_that_block_do_not_delay_tasks_that_wait_for_the_store(
    dispatcher: Dispatcher,
) -> None:
    release, asked = threading.Event(), threading.Event()
    for _ in range(2 * STORE_WORKERS):
        dispatcher.task(lambda: release.wait() and None, "callback").wake()
    dispatcher.task(asked.set, "asks", waits_for_store=True).wake()
    assert asked.wait(10)
    release.set()


def test_a_task_that_is_woken_all_the_time_leaves_others_their_turn(
    dispatcher: Dispatcher,
) -> None:
    ran: list[int] = []
    greedy: list[Task] = []

    def run_again(number: int) -> None:
        ran.append(number)
        time.sleep(0.001)
        if len(ran) < 1000:
            greedy[number].wake()

    for number in range(STORE_WORKERS):
        run = partial(run_again, number)
        greedy.append(dispatcher.task(run, "greedy", waits_for_store=True))
    for task in greedy:
        task.wake()
    eventually(lambda: len(ran) > STORE_WORKERS)
    turns: list[int] = []
    others = [
        dispatcher.task(lambda: turns.append(len(ran)), "other", waits_for_store=True)
        for _ in range(20)
    ]
    at = len(ran)
    for task in others:
        task.wake()
    eventually(lambda: len(turns) == 20)
    # Each of the others waits for one round of the greedy ones at most, not for all they want.
    assert turns[-1] - at < 500


def test_closing_forgets_tasks_that_queue_for_the_store() -> None:
    dispatcher = Dispatcher(SystemClock())
    release, begun = threading.Event(), list[int]()

    def wait_for_the_store() -> None:
        begun.append(1)
        release.wait()

    for _ in range(100):
        dispatcher.task(wait_for_the_store, "asks", waits_for_store=True).wake()
    eventually(lambda: len(begun) == STORE_WORKERS)
    dispatcher.close(0)
    release.set()
    dispatcher.close(5)
    assert len(begun) == STORE_WORKERS


def test_a_burst_of_quick_tasks_needs_few_threads(dispatcher: Dispatcher) -> None:
    before = threading.active_count()
    counts: list[int] = []
    tasks = [
        dispatcher.task(lambda: counts.append(threading.active_count()), "q") for _ in "x" * 2000
    ]
    for task in tasks:
        task.wake()
    eventually(lambda: len(counts) == 2000)
    assert max(counts) - before <= 8


def test_tasks_that_come_while_workers_take_others_start_no_thread(dispatcher: Dispatcher) -> None:
    before = threading.active_count()
    counts: list[int] = []

    def run() -> None:
        time.sleep(0.003)
        counts.append(threading.active_count())

    for _ in range(100):
        dispatcher.task(run, "short").wake()
        time.sleep(0.0001)
    eventually(lambda: len(counts) == 100)
    assert max(counts) - before <= 5  # with the timer's


class _LateClock(SystemClock):
    """The clock of a machine so busy that each wait takes four times as long."""

    @override
    def wait(self, condition: threading.Condition, timeout: float | None) -> None:
        super().wait(condition, None if timeout is None else 4 * timeout)


def test_on_a_busy_machine_a_thread_starts_later_and_in_any_case() -> None:
    dispatcher = Dispatcher(_LateClock(), name="test")
    release, ran = threading.Event(), threading.Event()
    for _ in range(4):
        dispatcher.task(lambda: release.wait() and None, "blocked").wake()
    began = time.monotonic()
    dispatcher.task(ran.set, "free").wake()
    assert ran.wait(10 * time_scale())
    assert time.monotonic() - began >= 0.2
    release.set()
    dispatcher.close(5)


def test_while_the_process_computes_a_thread_starts_later_and_in_any_case(
    dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The workers may wait for the interpreter, where another one would wait with them."""
    monkeypatch.setattr("kip30.runtime.dispatcher.time.process_time", time.monotonic)
    release, ran = threading.Event(), threading.Event()
    for _ in range(4):
        dispatcher.task(lambda: release.wait() and None, "blocked").wake()
    began = time.monotonic()
    dispatcher.task(ran.set, "free").wake()
    assert ran.wait(10 * time_scale())
    assert time.monotonic() - began >= 0.05
    release.set()


def test_an_idle_thread_keeps_no_task_alive(dispatcher: Dispatcher) -> None:
    class Big:
        def run(self) -> None:
            """Do nothing."""

    big = Big()
    gone = weakref.ref(big)
    dispatcher.task(big.run, "big").wake()
    del big
    eventually(lambda: gone() is None, within=1)


def test_idle_threads_go_away(dispatcher: Dispatcher) -> None:
    before = threading.active_count()
    ran = threading.Event()
    dispatcher.task(ran.set, "t").wake()
    assert ran.wait(5)
    eventually(lambda: threading.active_count() <= before)


def test_a_closed_task_does_not_run(dispatcher: Dispatcher) -> None:
    ran: list[int] = []
    task = dispatcher.task(lambda: ran.append(1), "closed")
    task.close()
    task.wake()
    after = threading.Event()
    dispatcher.task(after.set, "after").wake()
    assert after.wait(5)
    assert not ran


def test_a_timer_rings_by_the_clock_of_the_dispatcher() -> None:
    clock = ManualClock()
    dispatcher = Dispatcher(clock)
    rang: list[float] = []
    first = dispatcher.task(lambda: rang.append(1), "first")
    second = dispatcher.task(lambda: rang.append(2), "second")
    second.wake_at(clock.now() + 60)
    first.wake_at(clock.now() + 30)
    clock.advance(31)
    eventually(lambda: rang == [1])
    clock.advance(30)
    eventually(lambda: rang == [1, 2])
    dispatcher.close(5)


def test_a_failure_is_logged_and_the_task_goes_on(
    dispatcher: Dispatcher, caplog: pytest.LogCaptureFixture
) -> None:
    runs: list[int] = []

    def run() -> None:
        runs.append(1)
        raise ValueError("broken")

    task = dispatcher.task(run, "the name")
    task.wake()
    eventually(lambda: len(runs) == 1)
    task.wake()
    eventually(lambda: len(runs) == 2)
    eventually(lambda: "the name failed" in caplog.text)


def test_closing_ends_all_threads_and_drops_what_waits() -> None:
    before = threading.active_count()
    dispatcher = Dispatcher(SystemClock())
    task = dispatcher.task(lambda: None, "t")
    task.wake()
    task.wake_at(SystemClock().now() + 3600)
    dispatcher.close(5)
    assert threading.active_count() <= before
    task.wake()
    assert threading.active_count() <= before


def test_closing_from_a_task_does_not_wait_for_itself() -> None:
    dispatcher = Dispatcher(SystemClock())
    closed = threading.Event()

    def close() -> None:
        dispatcher.close(30)
        closed.set()

    dispatcher.task(close, "closer").wake()
    assert closed.wait(10)


def test_a_delivery_keeps_the_order_and_survives_its_callback(dispatcher: Dispatcher) -> None:
    got: list[int] = []

    def take(event: int) -> None:
        got.append(event)
        if event == 3:
            raise ValueError("broken")

    delivery = Delivery(dispatcher, take, "d")
    for event in range(100):
        delivery.send(event)
    eventually(lambda: len(got) == 100)
    assert got == sorted(got)


def test_wake_from_within_runs_once_more(dispatcher: Dispatcher) -> None:
    runs: list[int] = []
    holder: list[Task] = []

    def run() -> None:
        runs.append(1)
        if len(runs) < 10:
            holder[0].wake()

    holder.append(dispatcher.task(run, "again"))
    holder[0].wake()
    eventually(lambda: len(runs) == 10)


def test_tasks_that_wait_for_the_store_leave_callbacks_their_turn(dispatcher: Dispatcher) -> None:
    called, ran, greedy = threading.Event(), list[int](), list[Task]()

    def run_again(number: int) -> None:
        ran.append(number)
        time.sleep(0.001)
        if len(ran) < 2000 and not called.is_set():
            greedy[number].wake()

    for number in range(STORE_WORKERS):
        run = partial(run_again, number)
        greedy.append(dispatcher.task(run, "greedy", waits_for_store=True))
    for task in greedy:
        task.wake()
    eventually(lambda: len(ran) > STORE_WORKERS)
    dispatcher.task(called.set, "callback", calls_back=True).wake()
    assert called.wait(10)
    assert len(ran) < 1000


def test_for_a_loop_one_thread_serves_what_does_not_wait_for_the_store(
    dispatcher: Dispatcher,
) -> None:
    before, release, begun = threading.active_count(), threading.Event(), list[int]()
    dispatcher.serve_loop(4, LONG)

    def block() -> None:
        begun.append(1)
        release.wait()

    for _ in range(20):
        dispatcher.task(block, "asks", waits_for_store=True).wake()
    eventually(lambda: len(begun) == 4)
    counts: list[int] = []

    def call_back() -> None:
        time.sleep(0.02)  # longer than any other task may keep a thread from being started
        counts.append(threading.active_count())

    for _ in range(20):
        dispatcher.task(call_back, "calls back", calls_back=True).wake()
    eventually(lambda: len(counts) == 20)
    assert len(begun) == 4
    assert max(counts) - before <= 4 + 1 + 1  # with the timer's
    release.set()


def test_for_a_loop_a_task_that_blocks_delays_others_for_a_while(dispatcher: Dispatcher) -> None:
    release, ran, begun = threading.Event(), threading.Event(), list[int]()
    dispatcher.serve_loop(2, STALL)

    def block() -> None:
        begun.append(1)
        release.wait()

    for _ in range(4):
        dispatcher.task(block, "blocked", calls_back=True).wake()
    eventually(lambda: len(begun) == 4)
    began = time.monotonic()
    dispatcher.task(ran.set, "free").wake()
    assert ran.wait(10 * time_scale())
    assert time.monotonic() - began >= STALL
    release.set()


def test_for_a_loop_tasks_without_an_answer_delay_others_for_a_while(
    dispatcher: Dispatcher,
) -> None:
    release, begun = threading.Event(), list[float]()
    dispatcher.serve_loop(2, STALL)

    def block() -> None:
        begun.append(time.monotonic())
        release.wait()

    began = time.monotonic()
    for _ in range(20):
        dispatcher.task(block, "asks", waits_for_store=True).wake()
    eventually(lambda: len(begun) == 4)
    assert begun[2] - began >= STALL
    assert begun[3] - began >= 2 * STALL
    throughout(lambda: len(begun) == 4, seconds=3 * STALL)
    release.set()
    eventually(lambda: len(begun) == 20)


def _has(begun: list[int], number: int) -> bool:
    return len(begun) == number


def test_each_stall_and_each_starvation_is_noticed_not_the_first_alone(
    dispatcher: Dispatcher,
) -> None:
    dispatcher.serve_loop(2, STALL)
    for _ in range(2):
        release, begun, ran = threading.Event(), list[int](), threading.Event()

        def block(release: threading.Event = release, begun: list[int] = begun) -> None:
            begun.append(1)
            release.wait()

        for _ in range(3):
            dispatcher.task(block, "asks", waits_for_store=True).wake()
        eventually(partial(_has, begun, 3))
        for _ in range(5):
            dispatcher.task(block, "blocked", calls_back=True).wake()
        dispatcher.task(ran.set, "free").wake()
        assert ran.wait(10 * time_scale())
        eventually(partial(_has, begun, 8))
        release.set()
        eventually(lambda: not dispatcher._store_tasks.running)
        time.sleep(3 * STALL)  # until the timer thread waits for no moment


def test_tasks_that_starve_again_get_threads_again(dispatcher: Dispatcher) -> None:
    for _ in range(2):
        release, begun = threading.Event(), list[int]()

        def block(release: threading.Event = release, begun: list[int] = begun) -> None:
            begun.append(1)
            release.wait()

        for _ in range(20):
            dispatcher.task(block, "blocked").wake()
        eventually(partial(_has, begun, 20))
        release.set()
        eventually(lambda: not dispatcher._threads)


def test_calls_that_read_have_all_places_of_reads(dispatcher: Dispatcher) -> None:
    release, reading = threading.Event(), list[int]()

    def read() -> None:
        reading.append(1)
        release.wait()

    for _ in range(2 * READERS):
        dispatcher.call_task(read, "reads", reads=True).wake()
    eventually(lambda: len(reading) == READERS)
    release.set()


def test_calls_that_wait_for_the_librarys_own_tasks_leave_them_a_place(
    dispatcher: Dispatcher,
) -> None:
    dispatcher.serve_loop(3, LONG)
    own_ran = threading.Event()
    own = dispatcher.task(own_ran.set, "own", waits_for_store=True)
    waited: list[bool] = []

    def call() -> None:
        own.wake()
        waited.append(own_ran.wait(LONG))

    for _ in range(6):
        dispatcher.call_task(call, "call", reads=False).wake()
    eventually(lambda: len(waited) == 6)
    assert all(waited)


def test_reads_have_places_of_their_own(dispatcher: Dispatcher) -> None:
    dispatcher.serve_loop(2, LONG)
    release, read = threading.Event(), threading.Event()
    for _ in range(10):
        dispatcher.call_task(lambda: release.wait() and None, "writes", reads=False).wake()
    dispatcher.call_task(read.set, "reads", reads=True).wake()
    assert read.wait(10)
    release.set()
