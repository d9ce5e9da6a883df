"""The next leader begins when the work of the former one has let go: round after round."""

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from kip30 import Leadership, PluginLocator
from kip30.kafka_elector import LeaderElectorAdapter
from kip30_conformance.clients.default_signals import heeded
from kip30_conformance.polling import eventually, time_scale

_END_SECONDS = 60
_EXITING = 0x4
"""The flag of a thread that runs no code of its process any longer: PF_EXITING in Linux."""

_BY_STATUS = 128 + signal.SIGTERM

# A call of a C library: no signal ends the wait for a mutex, and Python's handler does not run.
_LEADER = """
import ctypes, sys, time
from kip30 import PluginLocator, close_on_signals

mutex, clock = ctypes.create_string_buffer(128), (ctypes.c_long * 2)()
libc = ctypes.CDLL(None)
libc.pthread_mutex_lock(mutex)
with PluginLocator().startup(sys.argv[1]) as locator, close_on_signals(locator):
    with locator.leader_election("s").lead("a", "") as term:
        until = time.time() + float(sys.argv[2])
        clock[:] = int(until), int(until % 1 * 1e9)
        print(until, flush=True)
        libc.pthread_mutex_timedlock(mutex, clock)
        while term.is_valid():
            time.sleep(0.01)
"""

_ROUNDS = pytest.mark.parametrize(
    "rounds", [2, pytest.param(100, marks=pytest.mark.large)], ids=["few", "many"]
)
pytestmark = pytest.mark.medium


@pytest.fixture(autouse=True)
def heeded_signals() -> Iterator[None]:
    with heeded():
        yield


@pytest.fixture
def properties(tmp_path: Path) -> Path:
    session = round(1500 * time_scale())  # less, and a busy machine ends it
    path = tmp_path / "kip30.properties"
    path.write_text(
        f"plugin.backend = embedded\nplugin.embedded.directory = {tmp_path / 'store'}\n"
        f"plugin.session.timeout.ms = {session}\n"
    )
    return path


class _Successor:
    """A candidate that notes when it begins to lead, and whether the leader before worked yet."""

    def __init__(self, locator: PluginLocator, process: "subprocess.Popen[str]") -> None:
        self._election = locator.leader_election("s")
        self._process = process
        self._until = 0.0
        self._pid = 0
        self._began = threading.Event()
        self.overlapped: bool | None = None

    def wait_led(self, *, is_child: bool) -> int:
        """Wait until the process leads, and stand behind it; return the pid of the leader."""
        assert self._process.stdout is not None
        self._until = float(self._process.stdout.readline())
        self._pid = _child_of(self._process.pid) if is_child else self._process.pid
        self._election.nominate("b", "", on_elected=self._begin)
        return self._pid

    def finish(self) -> None:
        assert self._began.wait(_END_SECONDS * time_scale())
        self._election.resign("b")

    def _begin(self, _term: Leadership) -> None:
        self.overlapped = time.time() < self._until and not _is_exiting(self._pid)
        self._began.set()


def _child_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


def _is_exiting(pid: int) -> bool:
    """Return whether the main thread of *pid* runs no longer."""
    try:
        stat = Path(f"/proc/{pid}/task/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return True
    return stat[0] in "ZX" or bool(int(stat[6]) & _EXITING)


def _handed_over(properties: Path, seconds: float, *, prefix: Sequence[str] = ()) -> int:
    """End a leader that works for *seconds* by SIGTERM; return its status."""
    command = [*prefix, sys.executable, "-c", _LEADER, str(properties), str(seconds)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with (
        PluginLocator().startup(properties) as locator,
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process,
    ):
        try:
            successor = _Successor(locator, process)
            leader = successor.wait_led(is_child=bool(prefix))
            os.kill(leader, signal.SIGTERM)
            status = process.wait(_END_SECONDS * time_scale())
            successor.finish()
        finally:
            process.kill()
    assert successor.overlapped is False
    return status


@_ROUNDS
def test_a_signal_in_a_call_of_a_library(properties: Path, rounds: int) -> None:
    """The process ends when the call does; if that lasts longer than the lease, before it."""
    for number in range(rounds):
        if number % 10 == 1:
            assert _handed_over(properties, 100 * _END_SECONDS) == _BY_STATUS
        else:
            assert _handed_over(properties, 20 * _a_moment()) == -signal.SIGTERM


def _has_namespaces() -> bool:
    unshare = shutil.which("unshare")
    command = [str(unshare), "--pid", "--fork", "true"]
    return unshare is not None and not subprocess.run(command, check=False).returncode


@_ROUNDS
def test_a_signal_to_the_first_process_of_a_container(properties: Path, rounds: int) -> None:
    """The system drops a default action there: the process ends with a status."""
    if not _has_namespaces():
        pytest.skip("no right to make a pid namespace")
    for _ in range(rounds):
        seconds = 10 * _a_moment()
        unshare = ("unshare", "--pid", "--fork")
        assert _handed_over(properties, seconds, prefix=unshare) == _BY_STATUS


_ENDS: dict[str, Callable[[PluginLocator, LeaderElectorAdapter], object]] = {
    "resign": lambda _, adapter: adapter.resign(),
    "close": lambda _, adapter: adapter.close(),
    "locator": lambda locator, _: locator.close(),
}


@_ROUNDS
@pytest.mark.parametrize("end", _ENDS.values(), ids=_ENDS)
def test_an_elector_gives_up_first(
    properties: Path, rounds: int, end: Callable[[PluginLocator, LeaderElectorAdapter], object]
) -> None:
    with PluginLocator().startup(properties) as other:
        for _ in range(rounds):
            _give_up_first(properties, other, end)


def _give_up_first(
    properties: Path,
    other: PluginLocator,
    end: Callable[[PluginLocator, LeaderElectorAdapter], object],
) -> None:
    log: list[str] = []
    announced = threading.Event()

    def give_up() -> None:
        time.sleep(_a_moment())
        log.append("given up")

    with PluginLocator().startup(properties) as locator, _succeeding(other, log) as successor:
        election = locator.leader_election("s")
        adapter = LeaderElectorAdapter(announced.set, give_up, 1, election)
        adapter.startup()
        assert announced.wait(_END_SECONDS * time_scale())
        successor()
        end(locator, adapter)
        eventually(lambda: len(log) == 2)
    assert log == ["given up", "leads"]


@_ROUNDS
@pytest.mark.parametrize("end", ["resign", "close", "locator"])
def test_a_step_ends_first(properties: Path, rounds: int, end: str) -> None:
    with PluginLocator().startup(properties) as other:
        for _ in range(rounds):
            _end_step_first(properties, other, end)


def _end_step_first(properties: Path, other: PluginLocator, end: str) -> None:
    log: list[str] = []
    begun = threading.Event()

    def work(term: Leadership) -> None:
        begun.set()
        while term.is_valid():
            time.sleep(_a_moment())
        log.append("worked")

    with PluginLocator().startup(properties) as locator, _succeeding(other, log) as successor:
        election = locator.leader_election("s")
        election.nominate("a", "", on_elected=work)
        assert begun.wait(_END_SECONDS * time_scale())
        successor()
        ends = {"resign": lambda: election.resign("a"), "close": election.close}
        ends.get(end, locator.close)()
        eventually(lambda: len(log) == 2)
    assert log == ["worked", "leads"]


@contextmanager
def _succeeding(other: PluginLocator, log: list[str]) -> Generator[Callable[[], object]]:
    """Yield a call that nominates a candidate of *other*, which notes in *log* that it leads."""
    with other.leader_election("s") as election:
        yield lambda: election.nominate("b", "", on_elected=lambda _: log.append("leads"))


def _a_moment() -> float:
    return random.uniform(0, 0.05)  # noqa: S311  no secret
