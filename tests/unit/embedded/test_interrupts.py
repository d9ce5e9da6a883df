"""A signal handler that raises, anywhere in a call, leaves nothing locked and nothing half done.

KeyboardInterrupt is one of these; so is a program's own time limit by SIGALRM.
"""

import gc
import os
import random
import sqlite3
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kip30.driver.records import Claim, Condition, HeldByOther, Kind, Target, Write
from kip30.errors import ClosedError, StoreError, UnavailableError
from kip30.names import Key
from kip30_backends.embedded import EmbeddedBackend, database_file, fork_safety
from kip30_backends.embedded.database import QueueTurn, WriteQueue
from kip30_backends.embedded.liveness_locks import held_off
from kip30_conformance.polling import time_scale

from .interrupting import Interrupted, interrupted_for, points, time_limit

KEY = Key("", "key")
OTHER = Key("", "other")
# The interpreter reports what is raised in a finaliser or a weak reference's callback, and goes on.
pytestmark = [
    pytest.mark.large,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

CHANCE = random.Random(1)  # noqa: S311  when alarms ring
SHORT = 1.0
"""Far below the operation timeout, and far above the time of a call that meets no lock."""


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """Collect objects whose creation was interrupted, so that no later test is warned of them."""
    yield
    gc.collect()


def put(backend: EmbeddedBackend, key: Key = KEY, data: bytes = b"v") -> None:
    backend.storage.write(Write(key, "n", data, Condition.ANY)).result()


def in_thread(work: Callable[[], object]) -> None:
    """Do *work* on another thread, which must not take long."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001  raised below
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    begun = time.monotonic()
    thread.start()
    thread.join(SHORT * time_scale())
    assert not thread.is_alive(), "it waits for a lock"
    assert not errors, errors
    assert time.monotonic() - begun < SHORT * time_scale()


@contextmanager
def having_the_turn(queue: WriteQueue) -> Generator[None]:
    """Wait for the turn and keep it for the block; not for a thread that is interrupted."""
    turn = QueueTurn()
    try:
        assert queue.enter(turn, 60)
        yield
    finally:
        turn.over = True
        queue.leave(turn)


@pytest.fixture
def unlocked(directory: Path) -> Callable[[EmbeddedBackend], None]:
    """Return a check that *backend* keeps no thread and no other program from writing."""

    def check(backend: EmbeddedBackend) -> None:
        connection = backend._resources.connections.slot().connection
        assert connection is None or not connection.in_transaction
        with closing(sqlite3.connect(directory / "kip30.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            other.execute("ROLLBACK")
        in_thread(lambda: put(backend, OTHER))

    return check


def test_a_write_interrupted_anywhere_leaves_nothing_locked(
    open_backend: Any, unlocked: Any
) -> None:
    backend = open_backend(operation=20)
    put(backend, data=b"0")
    number = 0

    def write() -> None:
        put(backend, data=str(number).encode())

    for _ in points(write):
        unlocked(backend)
        (entry,) = backend.storage.read([KEY]).result()
        assert int(entry.data) in {number, number - 1}, "it happened or not"
        number = int(entry.data) + 1
    assert number > 1


def test_a_read_interrupted_anywhere_sees_what_is_written_after(
    open_backend: Any, unlocked: Any
) -> None:
    backend = open_backend(operation=20)
    target = Target(Kind.VALUE, "", "other")
    number = 0
    for _ in points(lambda: backend.observe.snapshot(target).result()):
        unlocked(backend)
        number += 1
        data = str(number).encode()
        in_thread(partial(put, backend, OTHER, data))
        snapshot = backend.observe.snapshot(target).result()
        assert snapshot.entries["other"].data == data
    assert number > 10


def test_a_checkpoint_interrupted_anywhere_leaves_nothing_locked(
    open_backend: Any, unlocked: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = open_backend(operation=20)
    put(backend)
    monkeypatch.setattr("kip30_backends.embedded.database.LOG_BYTES", 0)
    monkeypatch.setattr("kip30_backends.embedded.database._LOOK_AT_LOG_EVERY", 1)
    for _ in points(lambda: put(backend)):
        unlocked(backend)


def test_a_new_thread_slot_interrupted_anywhere_is_known_to_forks(
    open_backend: Any, unlocked: Any, in_child: Any
) -> None:
    backend = open_backend(operation=20)
    connections = backend._resources.connections

    def read() -> None:
        backend.storage.list_names("", "", 1).result()

    def forget() -> None:
        read()
        del connections._local.slot

    for _ in points(read, prepare=forget):
        unlocked(backend)
        assert connections.slot() in connections._slots
        assert connections._local.binding.slot is connections.slot()
    # A connection that was interrupted while `sqlite3.connect` returned is part of a cycle.
    gc.collect()
    assert in_child(lambda: open_backend() is not None) == 0


def test_a_claim_interrupted_anywhere_keeps_no_thread_from_claiming(
    open_backend: Any, unlocked: Any, eventually: Any, in_child: Any
) -> None:
    """In a child, because Python's list of threads keeps one whose start was interrupted."""

    def work() -> bool:
        died: list[object] = []
        threading.excepthook = died.append
        backend = open_backend(session=60, operation=20)
        claim_under_interrupts(backend, unlocked, eventually)
        backend.close()
        eventually(lambda: not running_threads())
        return not died

    assert in_child(work) == 0


def claim_under_interrupts(backend: EmbeddedBackend, unlocked: Any, eventually: Any) -> None:
    sessions, renewal = backend._resources.sessions, backend._resources.renewal
    number = 0

    def claim(service: str) -> None:
        claimed = backend.election.claim(service, "me", service, b"").result()
        assert isinstance(claimed, Claim)

    def end_session() -> None:
        nonlocal number
        number += 1
        if sessions.session is not None:
            sessions.end(sessions.session, "for the next round")
        eventually(no_renewal)

    def no_renewal() -> bool:
        with renewal._lock:
            renewal._changed.notify_all()  # so that the thread looks, and ends
        return renewal._thread is None

    def enter_and_leave() -> None:
        with held_off.lock:
            pass

    def claim_mine() -> None:
        # `Thread.start` may raise RuntimeError in place of what the handler raised.
        with suppress(UnavailableError):
            claim(f"mine{number}")

    for point in points(claim_mine, prepare=end_session):
        unlocked(backend)
        in_thread(enter_and_leave)
        assert sessions.session is None or renewal._thread is not None
        in_thread(partial(claim, f"theirs{point}"))
    assert number > 100
    assert int(backend.describe()["sessions"]) <= 2  # this one, and one that was interrupted


def test_an_end_of_a_session_interrupted_anywhere_lets_no_other_lead_beside_it(
    open_backend: Any,
) -> None:
    backend, other = (open_backend(session=60, operation=20) for _ in range(2))
    sessions = backend._resources.sessions
    claims = list[Claim]()

    def claim() -> None:
        claims.append(backend.election.claim(str(len(claims)), "me", "n", b"").result())

    def end() -> None:
        sessions.end(sessions.session, "for the next round")

    for _ in points(end, prepare=claim):
        led = other.election.claim(str(len(claims) - 1), "other", "n", b"").result()
        assert isinstance(led, HeldByOther) or not claims[-1].lease.is_valid()
    assert len(claims) > 50


def test_a_close_that_is_interrupted_while_it_waits_gives_everything_back(
    open_backend: Any, locked: Any, eventually: Any
) -> None:
    other, backend = (open_backend(session=60, operation=20) for _ in range(2))
    claim = backend.election.claim("s", "me", "n", b"").result()
    with locked(), pytest.raises(Interrupted), time_limit(0.1):
        backend.close()  # which waits for the other program for longer
    assert not claim.lease.is_valid()
    with pytest.raises(ClosedError):
        backend.storage.read([KEY]).result()
    assert isinstance(other.election.claim("s", "other", "n", b"").result(), Claim)
    eventually(lambda: backend._resources.renewal._thread is None)


def running_threads() -> list[threading.Thread]:
    threads = [thread for thread in threading.enumerate() if thread.is_alive()]
    return [thread for thread in threads if thread.name.startswith("kip30")]


def test_a_wait_interrupted_anywhere_passes_the_turn_on() -> None:
    queue = WriteQueue()
    inside, gone = threading.Event(), threading.Event()
    holders: list[threading.Thread] = []

    def hold() -> None:
        with having_the_turn(queue):
            inside.set()
            while len(queue._line) < 2 and not gone.is_set():
                time.sleep(0.0001)

    def start_holder() -> None:
        inside.clear()
        gone.clear()
        holders.append(threading.Thread(target=hold))
        holders[-1].start()
        inside.wait()

    def wait() -> None:
        turn = QueueTurn()
        try:
            assert queue.enter(turn, 60)
        finally:
            turn.over = True
            queue.leave(turn)

    for _ in points(wait, prepare=start_holder):
        gone.set()
        in_thread(holders[-1].join)
        in_thread(wait)
    holders[-1].join()
    assert len(holders) > 10
    assert queue.try_enter(QueueTurn())


def test_threads_that_wait_go_on_after_an_interrupted_leave() -> None:
    queue = WriteQueue()
    lost, ended = QueueTurn(), list[int]()
    assert queue.try_enter(lost)

    def wait(number: int) -> None:
        with having_the_turn(queue):
            ended.append(number)

    threads = [threading.Thread(target=wait, args=(number,), daemon=True) for number in range(30)]
    for thread in threads:
        thread.start()
        while thread.is_alive() and len(queue._line) < threads.index(thread) + 2:
            time.sleep(0.0001)
    lost.over = True  # and no `leave`
    begun = time.monotonic()
    for thread in threads:
        thread.join(max(0.0, begun + SHORT * time_scale() - time.monotonic()))
    assert ended == list(range(30))


def test_a_fork_interrupted_anywhere_gives_all_its_locks_back() -> None:
    locks: list[Any] = [threading.Lock(), threading.RLock(), threading.Lock()]
    pauses: list[fork_safety.Pause] = []

    def pause_and_release() -> None:
        pauses.append(fork_safety.Pause())
        for lock in locks:
            assert pauses[-1].hold(lock)
        pauses[-1].release()

    for _ in points(pause_and_release):
        for pause in pauses:
            pause.release()
            pause.release()

        def all_free() -> None:
            for lock in locks:
                assert lock.acquire(blocking=False)
                lock.release()

        in_thread(all_free)
        pauses.clear()


def test_real_alarms_leave_leadership_and_writers_alone(open_backend: Any, unlocked: Any) -> None:
    backend = open_backend(session=2)
    claim = backend.election.claim("s", "me", "n", b"").result()
    put(backend)
    alarms = interrupted_for(
        2.5 * time_scale(), lambda: put(backend), lambda: CHANCE.uniform(0.00005, 0.0006)
    )
    assert alarms > 100
    unlocked(backend)
    assert claim.lease.is_valid()


@pytest.mark.parametrize("call", ["get", "put"])
def test_a_time_limit_of_the_program_is_no_error_of_the_store(open_backend: Any, call: str) -> None:
    """TimeoutError is an OSError, which would say that the file cannot be used."""
    backend = open_backend()
    calls: dict[str, Callable[[], object]] = {
        "get": lambda: backend.storage.read([KEY]).result(),
        "put": lambda: put(backend),
    }

    def repeat_within(seconds: float) -> None:
        with time_limit(seconds, TimeoutError):
            for _ in range(1000):
                calls[call]()

    raised = 0
    for _ in range(100):
        try:
            repeat_within(CHANCE.uniform(0.0001, 0.001))
        except TimeoutError:
            raised += 1
    assert raised > 90


@pytest.fixture
def log_to_check(tmp_path: Path) -> Iterator[Path]:
    """Return a database with a log, whose check takes some milliseconds and finds damage late."""
    file = tmp_path / "kip30.db"
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("PRAGMA journal_mode = WAL")
        other.execute("CREATE TABLE rows (data)")
        other.execute("BEGIN")
        other.executemany("INSERT INTO rows VALUES (randomblob(200))", [()] * 20_000)
        other.execute("COMMIT")
        yield file


def test_an_interrupt_during_the_check_of_a_log_is_raised(log_to_check: Path) -> None:
    def check() -> None:
        for _ in range(50):
            database_file._check_log(log_to_check, 60)

    for _ in range(20):
        with pytest.raises(Interrupted), time_limit(CHANCE.uniform(0.001, 0.02)):
            check()


def test_the_check_of_a_log_ends_in_time(log_to_check: Path, eventually: Any) -> None:
    with log_to_check.open("r+b") as file:
        file.truncate(log_to_check.stat().st_size - 4096)
    with pytest.raises(StoreError, match="do not belong together, or are damaged"):
        database_file._check_log(log_to_check, 60)

    def has_ended_before_the_damage() -> bool:
        with suppress(StoreError):
            database_file._check_log(log_to_check, 0.0001)
            return True
        return False

    eventually(has_ended_before_the_damage)


def test_a_transaction_that_could_not_be_ended_is_ended_by_the_next_write(
    open_backend: Any, unlocked: Any
) -> None:
    backend = open_backend(operation=1)
    put(backend)
    connection = backend._resources.connections.slot().connection
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("UPDATE kv SET data = x'00'")
    put(backend, OTHER)
    assert backend.storage.read([KEY]).result()[0].data == b"v"
    unlocked(backend)


def test_interrupts_leave_no_descriptor_open(open_backend: Any) -> None:
    backend = open_backend()
    put(backend)
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208  a count
    with pytest.raises(Interrupted):
        backend._resources.database.write(_interrupted)
    for _ in points(lambda: put(backend)):
        pass
    assert len(os.listdir("/proc/self/fd")) <= before  # noqa: PTH208  a count


def _interrupted(_: object) -> None:
    raise Interrupted
