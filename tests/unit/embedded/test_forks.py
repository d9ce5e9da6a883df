"""Forks of a process that has a store open: the child inherits nothing, the parent goes on."""

import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kip30.driver.records import Claim, Condition, HeldByOther, Kind, Target, Write
from kip30_backends.embedded import liveness_locks
from kip30_conformance.polling import time_scale

from .forking import (
    KEY,
    SERVICE,
    database_descriptors,
    fork_in_c,
    leader,
    led,
    put,
    refused,
    repeating,
    works,
)

# Python 3.12 and newer warn of forks with threads, which is what is tried here.
pytestmark = pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")


def test_a_forked_child_is_refused_and_the_parent_goes_on(open_backend: Any, in_child: Any) -> None:
    backend = open_backend()
    claim = led(backend, "me")
    backend.observe.watch(SERVICE, lambda _: None)
    assert in_child(lambda: refused(backend)) == 0
    assert leader(backend) == ["me"]
    assert claim.lease.is_valid()
    backend.storage.write(Write(KEY, "n", b"", Condition.ANY)).result()


def test_a_forked_child_inherits_no_descriptor_of_the_database(
    open_backend: Any, directory: Path, in_child: Any
) -> None:
    backend = open_backend()
    connected, go = threading.Event(), threading.Event()

    def connect() -> None:
        backend.storage.read([KEY]).result()
        connected.set()
        go.wait(10)

    thread = threading.Thread(target=connect)
    thread.start()
    assert connected.wait(5)
    assert database_descriptors(directory) >= 4
    assert in_child(lambda: refused(backend) and not database_descriptors(directory)) == 0
    go.set()
    thread.join()


def test_a_child_opens_its_own(open_backend: Any, in_child: Any) -> None:
    backend = open_backend()
    led(backend, "me")

    def work() -> bool:
        own = open_backend()
        held = isinstance(own.election.claim("s", "child", "n2", b"").result(), HeldByOther)
        own.membership.claim("g", "child", "n", b"").result()
        own.close()
        return held

    assert in_child(work) == 0
    assert leader(backend) == ["me"]


@pytest.mark.parametrize("activity", ["reading", "writing", "leading", "opening", "closing"])
def test_children_of_a_busy_parent_open_their_own(
    open_backend: Any, in_child: Any, activity: str, tmp_path: Path
) -> None:
    backend = open_backend()
    put(backend)
    number = iter(range(10**9))

    def lead() -> None:
        claim = led(backend, "me")
        backend.election.release("s", claim).result()

    def open_a_new_one() -> None:
        open_backend(directory=tmp_path / f"new{next(number)}").close()

    jobs: dict[str, Callable[[], object]] = {
        "reading": lambda: backend.storage.read([KEY]).result(),
        "writing": lambda: put(backend),
        "leading": lead,
        "opening": open_a_new_one,
        "closing": lambda: open_backend().close(),
    }
    with repeating(jobs[activity], jobs[activity] if activity != "leading" else time.time):
        for _ in range(8):
            assert in_child(lambda: works(open_backend)) == 0
    put(backend)


def test_threads_that_fork_at_once_have_clean_children(open_backend: Any, in_child: Any) -> None:
    backend = open_backend()
    put(backend)
    statuses: list[int] = []

    def fork_often() -> None:
        for _ in range(5):
            backend.storage.read([KEY]).result()
            statuses.append(in_child(lambda: works(open_backend)))

    threads = [threading.Thread(target=fork_often) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert statuses == [0] * 20


def test_generations_of_children_open_their_own(open_backend: Any, in_child: Any) -> None:
    backend = open_backend()
    put(backend)

    def descend(generations: int) -> bool:
        own = open_backend()
        put(own)
        below = generations == 0 or in_child(lambda: descend(generations - 1)) == 0
        put(own)
        return below

    assert in_child(lambda: descend(3)) == 0
    put(backend)


def test_a_child_behind_a_pseudo_terminal_opens_its_own(open_backend: Any, in_child: Any) -> None:
    backend = open_backend()
    put(backend)
    terminals: list[int] = []

    def fork() -> int:
        pid, terminal = os.forkpty()
        terminals.append(terminal)
        return pid

    assert in_child(lambda: works(open_backend), fork) == 0
    os.close(terminals[0])


def test_a_command_with_a_function_before_it_leaves_the_store_usable(open_backend: Any) -> None:
    backend = open_backend()
    with repeating(lambda: put(backend)):
        for _ in range(10):
            done = subprocess.run([sys.executable, "-c", ""], preexec_fn=os.getpid, check=False)
            assert done.returncode == 0
    put(backend)


def test_a_fork_does_not_wait_for_a_thread_whose_database_is_locked(
    open_backend: Any, in_child: Any, directory: Path
) -> None:
    backend = open_backend(operation=20)
    put(backend)
    locker = subprocess.Popen(
        [sys.executable, "-c", LOCKER, str(directory / "kip30.db")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert locker.stdout is not None
    assert locker.stdout.readline() == b"locked\n"
    writer = threading.Thread(target=put, args=(backend,))
    writer.start()
    started = time.monotonic()
    assert in_child(lambda: open_backend() is not None or True) == 2  # locked for it as well
    assert writer.is_alive()
    locker.communicate(b"end")
    writer.join()
    assert time.monotonic() - started < 15 * time_scale()
    assert in_child(lambda: works(open_backend)) == 0


LOCKER = """
import sqlite3, sys
from kip30_conformance.polling import time_scale
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.read()
"""


def test_the_session_and_the_watches_of_the_parent_go_on(
    open_backend: Any, in_child: Any, eventually: Any
) -> None:
    backend = open_backend()
    claim = led(backend, "me")
    first = claim.lease.deadline
    seen: list[Any] = []
    backend.observe.watch(Target(Kind.VALUE, "", "key"), seen.append)
    while claim.lease.deadline < first + claim.lease.timeout_seconds / 2:
        assert in_child(lambda: True) == 0
        assert claim.lease.is_valid()
    put(backend)
    eventually(lambda: seen[-1].entries)


def session_descriptors(folder: Path) -> list[str]:
    links = [path.readlink() for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    return [str(link) for link in links if link.parent == folder]


@pytest.mark.parametrize("kind", [liveness_locks.OfdLocks(), liveness_locks.RecordLocks()])
def test_a_child_inherits_no_lock_of_a_session_that_is_opened_just_then(
    tmp_path: Path, in_child: Any, kind: liveness_locks.Locks
) -> None:
    file = tmp_path / "one.lock"
    with repeating(lambda: kind.drop(str(file), kind.hold(str(file)))):
        for _ in range(30):
            assert in_child(lambda: not session_descriptors(tmp_path)) == 0


def test_a_child_closes_no_descriptor_that_it_has_reused(tmp_path: Path, in_child: Any) -> None:
    kind = liveness_locks.OfdLocks()
    descriptor = kind.hold(str(tmp_path / "one.lock"))

    def reuse() -> bool:
        os.close(descriptor)
        os.dup2(os.open(tmp_path, os.O_RDONLY), descriptor)
        liveness_locks.close_inherited()
        return stat.S_ISDIR(os.fstat(descriptor).st_mode)

    assert in_child(reuse, fork_in_c) == 0
    kind.drop(str(tmp_path / "one.lock"), descriptor)


def test_the_parents_descriptors_stay_as_many(open_backend: Any, in_child: Any) -> None:
    backend = open_backend()
    put(backend)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(20):
        assert in_child(lambda: True) == 0
        put(backend)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_workers_forked_before_they_serve_elect_one_leader(
    open_backend: Any, in_child: Any
) -> None:
    """A server opens the store, forks its workers, and each opens its own."""
    backend = open_backend()
    put(backend)
    read_end, write_end = os.pipe()
    workers = []
    for number in range(4):
        workers.append(os.fork())
        if workers[-1] == 0:
            os.close(read_end)
            own = open_backend()
            answer = own.election.claim("s", f"w{number}", f"n{number}", b"").result()
            os.write(write_end, b"leads\n" if isinstance(answer, Claim) else b"waits\n")
            signal.pause()
    os.close(write_end)
    with os.fdopen(read_end) as lines:
        answers = sorted(lines.readline() for _ in workers)
        assert answers == ["leads\n", "waits\n", "waits\n", "waits\n"]
        for worker in workers:
            os.kill(worker, signal.SIGKILL)
            os.waitpid(worker, 0)
    assert leader(backend) == []
    assert in_child(lambda: works(open_backend)) == 0
