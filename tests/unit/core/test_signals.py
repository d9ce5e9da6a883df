"""A signal closes locators, in real processes, also while the main thread is busy."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kip30 import PluginLocator, UsageError, close_on_signals
from kip30_conformance.clients.default_signals import heeded
from kip30_conformance.polling import eventually, time_scale

_END_SECONDS = 30
_PROGRAM = """
import asyncio, os, signal, sys, threading, time
from kip30 import ClosedError, PluginLocator, close_on_signals
from kip30.aio import AsyncPluginLocator

config = sys.argv[1]
def claim(locator):
    locator.group_membership("g").join("m", "")
    locator.leader_election("s").nominate("c", "")
    print("claimed", flush=True)
"""
_BLOCK = """
locator = PluginLocator().startup(config)
with close_on_signals(locator):
    claim(locator)
"""
_SLEEPING = "    time.sleep(1000)\n"
_WORKING = "    while True: locator.leader_election('s').wait_elected('c', 0)\n"
_WAITING = """
    election = locator.leader_election("s")
    election.nominate("second", "")
    election.wait_elected("second", None)
"""
_LEADING = """
    with locator.leader_election("t").lead("d", ""):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(1000)
"""
_JOINING = """
    def serve():
        try:
            while True: locator.storage().get("k")
        except ClosedError:
            pass
    thread = threading.Thread(target=serve)
    thread.start()
    thread.join()
"""
_LOOPING = "    asyncio.run(asyncio.sleep(1000))\n"
# As if the signal came in the middle of a call: the main thread holds what `close` needs.
_LOCKED = """
    with locator._store._lock:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.2)
    time.sleep(1000)
"""
_SIGWAITING = "    signal.sigwait({signal.SIGUSR1})\n"
# No signal ends the wait for a mutex, and Python's handler does not run in it.
_IN_C = """
    import ctypes
    mutex, lock = ctypes.create_string_buffer(128), ctypes.CDLL(None).pthread_mutex_lock
    lock(mutex)
    lock(mutex)
"""
_LEAVING = """
    os.kill(os.getpid(), signal.SIGTERM)
"""
# The thread cannot read what the signals write while the main thread does not let it run.
_FLOOD = """
    signal.signal(signal.SIGALRM, lambda number, frame: None)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    for _ in range(2000):
        os.kill(os.getpid(), signal.SIGALRM)
"""
_FLOODED = (
    _FLOOD
    + """
    os.kill(os.getpid(), signal.SIGTERM)
    sys.setswitchinterval(before)
    time.sleep(1000)
"""
)
# Nothing may end the flood before the main thread waits for the other one.
_LEAVING_FLOODED = (
    _FLOOD
    + """
sys.setswitchinterval(before)
locator.close()
print("left")
"""
)
# The child has the descriptor to which the system writes, and so fills the mailbox too.
_FLOODED_BY_CHILD = """
    import mmap
    signal.signal(signal.SIGALRM, lambda number, frame: None)
    is_full = mmap.mmap(-1, 1)
    sys.setswitchinterval(1000)
    if not os.fork():
        for _ in range(2000):
            os.kill(os.getpid(), signal.SIGALRM)
        is_full[0] = 1
        os._exit(0)
    while not is_full[0]:
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    sys.setswitchinterval(0.005)
    time.sleep(1000)
"""
_ASYNCIO = """
async def main():
    asked = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asked.set)
    async with AsyncPluginLocator(config) as locator:
        await locator.group_membership("g").join("m", "")
        await locator.leader_election("s").nominate("c", "")
        print("claimed", flush=True)
        await asked.wait()
asyncio.run(main())
"""
_FORMER_ENDS = """
def former(number, frame):
    os.write(1, b"former %d\\n" % number)  # it may interrupt a print
    sys.exit(9)
signal.signal(signal.SIGTERM, former)
"""
_FORMER_GOES_ON = """
asked = threading.Event()
def former(number, frame):
    os.write(1, b"former %d\\n" % number)  # it may interrupt a print
    asked.set()
signal.signal(signal.SIGTERM, former)
"""
_GOING_ON = """
    while not asked.wait(0.01): pass
    for _ in range(10): time.sleep(0.02)
print("went on")
"""
# The claims are there for others as long as the step lasts, although the terms have ended.
_STEP = """
    election = locator.leader_election("t")
    election.nominate("d", "")
    term = election.leadership("d")
    with PluginLocator().startup(config) as other:
        os.kill(os.getpid(), signal.SIGTERM)
        while not asked.wait(0.01): pass
        print([] if not term.is_valid() else [term], flush=True)
        print("lost" if term.lost.is_set() else "not lost", flush=True)
        time.sleep(0.2)
        leader = other.leader_election("t").get_leader()
        print([leader.id] if leader else [], flush=True)
"""
_FORKING = """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, b"1")
        time.sleep(1000)
    os.read(reading, 1)  # Python forgets a signal that arrives before the child's first line
    os.kill(child, signal.SIGTERM)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    if not os.fork():
        sys.exit(5)  # leaves the block
    print(os.waitstatus_to_exitcode(os.wait()[1]))
    print(*locator.group_membership("g").membership_list())
"""


@pytest.fixture(autouse=True)
def heeded_signals() -> Iterator[None]:
    with heeded():
        yield


_CLAIMED = b"claimed\n"


class Store:
    """An embedded store, in which a process that merely dies leaves the file of its session."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "store"
        self.properties = folder / "kip30.properties"
        session = round(2000 * time_scale())
        self.properties.write_text(
            f"plugin.backend = embedded\nplugin.embedded.directory = {self._folder}\n"
            f"plugin.session.timeout.ms = {session}\n"
        )

    def has_no_session(self) -> bool:
        """Return whether every session was closed."""
        return not list((self._folder / "sessions").iterdir())

    @contextmanager
    def running(self, *body: str, shell: str = "") -> Iterator["subprocess.Popen[str]"]:
        """Start a program, by way of a *shell* command, and wait until it holds its claims."""
        program = "".join([_PROGRAM, *body])
        with subprocess.Popen(
            [
                "sh",
                "-c",
                f'{shell} exec "$@"',
                "sh",
                sys.executable,
                "-W",
                "ignore:This process:DeprecationWarning",  # of a fork, from Python 3.12 on
                "-c",
                program,
                self.properties,
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        ) as process:
            try:
                assert process.stdout is not None
                # Unbuffered: `communicate` would miss what is in the buffer.
                said = [os.read(process.stdout.fileno(), 1) for _ in _CLAIMED]
                assert b"".join(said) == _CLAIMED
                yield process
            finally:
                process.kill()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def test_without_it_a_signal_leaves_the_session_open(store: Store) -> None:
    body = "with PluginLocator().startup(config) as locator:\n    claim(locator)\n"
    with store.running(body, _SLEEPING) as process:
        process.terminate()
        process.wait(_END_SECONDS * time_scale())
    assert not store.has_no_session()


@pytest.mark.case("W13")
@pytest.mark.parametrize(
    "work",
    [_SLEEPING, _WORKING, _WAITING, _LEADING, _JOINING, _LOOPING, _LOCKED, _LEAVING],
    ids=["sleeping", "working", "waiting", "leading", "joining", "looping", "locked", "leaving"],
)
def test_a_signal_closes_and_ends_the_process_with_its_own_status(store: Store, work: str) -> None:
    with store.running(_BLOCK, work) as process:
        process.terminate()
        output = process.communicate(timeout=_END_SECONDS * time_scale())
    assert (process.returncode, *output) == (-signal.SIGTERM, "", "")
    assert store.has_no_session()


@pytest.mark.medium
@pytest.mark.case("W13")
@pytest.mark.parametrize("work", [_IN_C, _SIGWAITING], ids=["C", "sigwait"])
def test_a_main_thread_that_runs_no_python_does_not_outlive_its_lease(
    store: Store, work: str
) -> None:
    """Its work cannot be stopped otherwise, and must not go on beside that of the next leader."""
    with store.running(_BLOCK, work) as process:
        eventually(lambda: _is_blocked(process.pid))
        process.terminate()
        output = process.communicate(timeout=_END_SECONDS * time_scale())
    assert (process.returncode, *output) == (128 + signal.SIGTERM, "", "")
    assert not store.has_no_session()


def _is_blocked(pid: int) -> bool:
    """Return whether a main thread sleeps outside of Python: there it would wake up every 5 ms."""
    before = _sleeps(pid)
    time.sleep(0.05)
    return before is not None and _sleeps(pid) == before


def _sleeps(pid: int) -> str | None:
    """Return how often the main thread has gone to sleep; None if it is awake."""
    lines = Path(f"/proc/{pid}/task/{pid}/status").read_text().splitlines()
    status = dict(line.split(":\t", 1) for line in lines)
    return status["voluntary_ctxt_switches"] if status["State"].startswith("S") else None


@pytest.mark.case("W13")
@pytest.mark.parametrize("flood", [_FLOODED, _FLOODED_BY_CHILD], ids=["own", "child"])
def test_a_signal_among_many_others_is_not_lost(store: Store, flood: str) -> None:
    with store.running(_BLOCK, flood) as process:
        output = process.communicate(timeout=_END_SECONDS * time_scale())
    assert (process.returncode, *output) == (-signal.SIGTERM, "", "")
    assert store.has_no_session()


def test_a_block_ends_among_many_signals(store: Store) -> None:
    with store.running(_BLOCK, _LEAVING_FLOODED) as process:
        output, errors = process.communicate(timeout=_END_SECONDS * time_scale())
    assert (process.returncode, output) == (0, "left\n"), errors


@pytest.mark.case("W13")
@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGHUP])
def test_a_second_signal_does_not_cut_the_close_short(store: Store, second: signal.Signals) -> None:
    with store.running(_BLOCK, _SLEEPING) as process:
        process.terminate()
        process.send_signal(second)
        assert process.wait(_END_SECONDS * time_scale()) in {-signal.SIGTERM, -second}
    assert store.has_no_session()


@pytest.mark.case("W13")
def test_a_signal_that_is_ignored_stays_ignored(store: Store) -> None:
    with store.running(_BLOCK, _SLEEPING, shell="trap '' HUP;") as process:
        process.send_signal(signal.SIGHUP)
        process.terminate()
        assert process.wait(_END_SECONDS * time_scale()) == -signal.SIGTERM
    assert store.has_no_session()


@pytest.mark.case("W13")
def test_a_former_handler_that_ends_the_program_gets_the_signal(store: Store) -> None:
    with store.running(_FORMER_ENDS, _BLOCK, _SLEEPING) as process:
        process.terminate()
        output, _ = process.communicate(timeout=_END_SECONDS * time_scale())
    assert (process.returncode, output) == (9, f"former {signal.SIGTERM:d}\n")
    assert store.has_no_session()


@pytest.mark.case("W13")
def test_a_former_handler_gets_the_signal_once(store: Store) -> None:
    with store.running(_FORMER_GOES_ON, _BLOCK, _GOING_ON) as process:
        process.terminate()
        output, errors = process.communicate(timeout=_END_SECONDS * time_scale())
    assert (process.returncode, output) == (0, f"former {signal.SIGTERM:d}\nwent on\n"), errors
    assert store.has_no_session()


@pytest.mark.case("W13")
def test_nothing_is_released_before_the_block_of_a_former_handler_is_left(store: Store) -> None:
    with store.running(_FORMER_GOES_ON, _BLOCK, _STEP) as process:
        output, errors = process.communicate(timeout=_END_SECONDS * time_scale())
    said = f"former {signal.SIGTERM:d}\n[]\nlost\n['d']\n"
    assert (process.returncode, output) == (0, said), errors
    assert store.has_no_session()


@pytest.mark.case("W13")
def test_forked_children_leave_the_locator_of_their_parent_open(store: Store) -> None:
    with store.running(_BLOCK, _FORKING) as process:
        output, errors = process.communicate(timeout=_END_SECONDS * time_scale())
    assert (process.returncode, output) == (0, f"{-signal.SIGTERM:d}\n5\nm\n"), errors


@pytest.mark.case("W13")
def test_a_loop_that_handles_the_signal_leaves_the_block(store: Store) -> None:
    with store.running(_ASYNCIO) as process:
        process.terminate()
        output = process.communicate(timeout=_END_SECONDS * time_scale())
    assert (process.returncode, *output) == (0, "", "")
    assert store.has_no_session()


def test_a_block_without_a_signal_leaves_nothing_behind() -> None:
    threads = threading.active_count()
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)]
    with close_on_signals(PluginLocator()):
        assert signal.getsignal(signal.SIGTERM) not in before
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)] == before
    assert threading.active_count() == threads


def test_a_handler_that_was_set_in_the_block_stays() -> None:
    before = signal.getsignal(signal.SIGHUP)
    try:
        with close_on_signals(PluginLocator()):
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_another_thread_than_the_main_one_is_refused() -> None:
    refused: list[UsageError] = []

    def enter() -> None:
        try:
            close_on_signals(PluginLocator()).__enter__()
        except UsageError as error:
            refused.append(error)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert len(refused) == 1
