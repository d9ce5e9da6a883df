"""Threads of one process write in order, renewals first, and none waits for longer than agreed."""

import os
import signal
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from kip30.driver.records import Claim, Condition, Kind, Snapshot, Target, Write
from kip30.errors import ClosedError, Kip30Error, LifecycleError, UnavailableError
from kip30.names import Key
from kip30_backends.embedded import EmbeddedBackend
from kip30_backends.embedded.database import QueueTurn, WriteQueue
from kip30_conformance.polling import eventually, throughout, time_scale

FOREVER = 60.0


class Line:
    """Threads that wait in a queue, and the order in which their turns came."""

    def __init__(self, queue: WriteQueue) -> None:
        self.queue = queue
        self.turns: list[str] = []
        self.first = QueueTurn()
        self.threads: list[threading.Thread] = []

    def join(self, name: str, *, urgent: bool = False) -> None:
        waiting = len(self.queue._line)
        thread = threading.Thread(target=self._write, kwargs={"name": name, "urgent": urgent})
        self.threads.append(thread)
        thread.start()
        eventually(lambda: len(self.queue._line) > waiting)

    def take(self) -> None:
        assert self.queue.try_enter(self.first)

    def give_up(self, seconds: float, *, urgent: bool = False) -> None:
        turn = QueueTurn()
        assert not self.queue.enter(turn, seconds, urgent=urgent)
        self.leave(turn)

    def leave(self, turn: QueueTurn) -> None:
        turn.over = True
        self.queue.leave(turn)

    def end(self) -> list[str]:
        for thread in self.threads:
            thread.join()
        return self.turns

    def _write(self, *, name: str, urgent: bool) -> None:
        turn = QueueTurn()
        assert self.queue.enter(turn, FOREVER, urgent=urgent)
        self.turns.append(name)
        self.leave(turn)


@pytest.fixture
def line() -> Line:
    return Line(WriteQueue())


def test_turns_come_in_the_order_of_calls_and_urgent_ones_first(line: Line) -> None:
    line.take()
    for name in ("a", "b", "c"):
        line.join(name)
    line.join("renewal", urgent=True)
    line.join("d")
    assert not line.queue.try_enter(QueueTurn())
    line.leave(line.first)
    assert line.end() == ["renewal", "a", "b", "c", "d"]
    assert line.queue.try_enter(QueueTurn())


def test_a_thread_that_gave_up_leaves_no_gap(line: Line) -> None:
    line.take()
    line.join("a")
    line.give_up(0.01)
    line.give_up(-1.0, urgent=True)
    line.join("b")
    line.leave(line.first)
    assert line.end() == ["a", "b"]


def test_an_interrupted_wait_leaves_no_gap(line: Line) -> None:
    def interrupt() -> None:
        eventually(lambda: len(line.queue._line) > 1)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    line.take()
    turn = QueueTurn()
    interrupter = threading.Thread(target=interrupt)
    interrupter.start()
    with _raising_on_interrupt(), pytest.raises(KeyboardInterrupt):
        line.queue.enter(turn, FOREVER)
    interrupter.join()
    line.leave(turn)
    line.join("next")
    line.leave(line.first)
    assert line.end() == ["next"]


def test_turns_are_never_lost_or_shared(line: Line) -> None:
    """Some threads are impatient, some urgent; each turn is one thread's alone."""
    inside, overlaps, turns = threading.Lock(), list[int](), list[int]()

    def write(number: int) -> None:
        for _ in range(200):
            turn = QueueTurn()
            seconds = (0.0, 0.0001, FOREVER)[number % 3]
            if line.queue.enter(turn, seconds, urgent=number % 4 == 0):
                if inside.acquire(blocking=False):
                    turns.append(number)
                    inside.release()
                else:
                    overlaps.append(number)
            line.leave(turn)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not overlaps
    assert all(turns.count(number) == 200 for number in range(2, 12, 3))
    assert line.queue.try_enter(QueueTurn())


def test_queued_writes_end_by_their_own_deadlines(open_backend: Any, locked: Any) -> None:
    backend = open_backend(operation=1)
    ended: list[tuple[float, Kip30Error | None]] = []
    with locked():
        threads = [_writer(backend, number, ended) for number in range(50)]
        for thread in threads:
            thread.join()
    assert max(seconds for seconds, _ in ended) < 1.5 * time_scale()
    assert {type(error) for _, error in ended} == {UnavailableError}
    names = [f"k{number}" for number in range(50)]
    assert backend.storage.read([Key("", name) for name in names]).result() == [None] * 50


def test_a_turn_that_does_not_come_is_blamed_on_no_other_program(open_backend: Any) -> None:
    backend = open_backend(operation=1)
    database = backend._resources.database
    over = threading.Event()
    writer = threading.Thread(target=database.write, args=(lambda _: over.wait(FOREVER),))
    writer.start()
    try:
        eventually(lambda: database._queue._line, what="the other thread has the turn")
        write = Write(Key("", "k"), "n", b"", Condition.ANY)
        with pytest.raises(UnavailableError, match="other threads of this process were writing"):
            backend.storage.write(write).result()
        unavailable = pytest.raises(UnavailableError, match="other threads of this process")
        with unavailable, database.between_writes():
            pass
    finally:
        over.set()
        writer.join()
    assert backend.storage.read([Key("", "k")]).result() == [None]


def test_closing_ends_queued_writes_at_once(open_backend: Any, locked: Any, took: Any) -> None:
    backend = open_backend(operation=20)
    ended: list[tuple[float, Kip30Error | None]] = []
    with locked():
        threads = [_writer(backend, number, ended) for number in range(20)]
        eventually(lambda: len(backend._resources.database._queue._line) == 20)
        assert took(backend.close) < 2
        for thread in threads:
            thread.join()
    assert {type(error) for _, error in ended} == {ClosedError}


def test_a_forked_child_waits_for_no_thread_of_its_parent(open_backend: Any, locked: Any) -> None:
    backend = open_backend()
    ended: list[tuple[float, Kip30Error | None]] = []
    with locked():
        threads = [_writer(backend, number, ended) for number in range(5)]
        eventually(lambda: len(backend._resources.database._queue._line) == 5)
        child = os.fork()
        if not child:
            os._exit(_status_of_a_write(backend))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    for thread in threads:
        thread.join()
    assert {error for _, error in ended} == {None}


def test_a_session_outlives_a_short_lock_with_many_writers_waiting(
    open_backend: Any, locked: Any
) -> None:
    backend = open_backend(session=2, operation=4)
    claim = backend.membership.claim("g", "m", "n", b"").result()
    ended: list[tuple[float, Kip30Error | None]] = []
    with locked():
        threads = [_writer(backend, number, ended) for number in range(100)]
        throughout(claim.lease.is_valid, seconds=1.0 * time_scale())
    for thread in threads:
        thread.join()
    assert {error for _, error in ended} == {None}
    throughout(claim.lease.is_valid, seconds=2.0 * time_scale())


def test_a_session_outlives_writers_that_never_pause(open_backend: Any) -> None:
    backend = open_backend(session=1)
    claim = backend.membership.claim("g", "m", "n", b"").result()
    until = time.monotonic() + 3 * time_scale()
    written: list[int] = []

    def write(number: int) -> None:
        while time.monotonic() < until:
            claimed = backend.election.claim(f"s{number}", "c", str(time.monotonic()), b"").result()
            assert isinstance(claimed, Claim)
            backend.election.release(f"s{number}", claimed).result()
            written.append(number)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert claim.lease.is_valid()
    # The first threads have the store to themselves while the others are being started.
    all_wrote = max(written.index(number) for number in range(40))
    counts = [written[all_wrote:].count(number) for number in range(40)]
    assert max(counts) <= 2 * min(counts) + 3, "some threads starve"


def test_a_slow_watch_does_not_delay_renewals(open_backend: Any) -> None:
    backend = open_backend(session=1)
    claim = backend.membership.claim("g", "m", "n", b"").result()
    begun, over = threading.Event(), threading.Event()

    def slow_sink(_: Snapshot) -> None:
        begun.set()
        over.wait(20 * time_scale())

    watch = backend.observe.watch(Target(Kind.GROUP, "g"), slow_sink)
    assert begun.wait(5 * time_scale())
    throughout(claim.lease.is_valid, seconds=1.5 * time_scale())
    over.set()
    watch.close()


def test_between_writes_other_programs_find_no_lock(open_backend: Any, directory: Path) -> None:
    backend = open_backend()
    stopped = threading.Event()

    def write() -> None:
        while not stopped.is_set():
            backend.storage.write(Write(Key("", "k"), "n", b"", Condition.ANY)).result()

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        with closing(_impatient(directory / "kip30.db")) as other:
            for _ in range(100):
                with backend.faults.between_writes():
                    other.execute("BEGIN IMMEDIATE")
                    other.execute("ROLLBACK")
    finally:
        stopped.set()
        for thread in threads:
            thread.join()


def _impatient(file: Path) -> sqlite3.Connection:
    """Return a connection that raises if another one writes at that moment."""
    return sqlite3.connect(file, isolation_level=None, timeout=0)


def _writer(
    backend: EmbeddedBackend, number: int, ended: list[tuple[float, Kip30Error | None]]
) -> threading.Thread:
    """Start a thread that writes once, and notes how long that took and how it ended."""

    def write() -> None:
        begun = time.monotonic()
        answer = backend.storage.write(Write(Key("", f"k{number}"), "n", b"", Condition.ANY))
        error = answer.exception()
        assert error is None or isinstance(error, Kip30Error)
        ended.append((time.monotonic() - begun, error))

    thread = threading.Thread(target=write)
    thread.start()
    return thread


def _status_of_a_write(backend: EmbeddedBackend) -> int:
    """Write with what was inherited from the parent; return 0 if it is refused at once."""
    begun = time.monotonic()
    with suppress(BaseException):
        answer = backend.storage.write(Write(Key("", "k"), "n", b"", Condition.ANY))
        refused = isinstance(answer.exception(), LifecycleError)
        return 0 if refused and time.monotonic() - begun < time_scale() else 1
    return 2


@contextmanager
def _raising_on_interrupt() -> Iterator[None]:
    """Let SIGINT raise KeyboardInterrupt, also where the tests were started with it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
