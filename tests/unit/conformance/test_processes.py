"""Servers whose children are in sessions of their own, as those of PostgreSQL are."""

import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from kip30_conformance.polling import eventually, throughout
from kip30_conformance.servers.processes import Processes

_SERVER = """
import os, sys, time
folder = sys.argv[1]
if not os.fork():
    os.setsid()
    if not os.fork():
        os.setpgid(0, 0)
path = os.path.join(folder, str(os.getpid()))
while True:
    with open(path, "a") as file:
        file.write(".")
    time.sleep(0.01)
"""
_NODE = 0


class Server:
    """A server, a child in a session of its own, and a grandchild in a group of its own."""

    def __init__(self, folder: Path) -> None:
        self.processes = Processes()
        self._notes = folder / "notes"
        self._notes.mkdir()
        command = [sys.executable, "-I", "-S", "-c", _SERVER, str(self._notes)]
        self.processes.launch(_NODE, command, folder, {})
        eventually(lambda: len(self.sizes()) == 3, what="server, child and grandchild run")

    def sizes(self) -> dict[int, int]:
        return {int(one.name): one.stat().st_size for one in self._notes.iterdir()}

    def all_go_on(self) -> bool:
        before = self.sizes()
        eventually(
            lambda: all(size > before[pid] for pid, size in self.sizes().items()),
            what="all three write",
        )
        return True


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path)
    pids = list(server.sizes())
    yield server
    server.processes.end()
    for pid in pids:
        with suppress(psutil.Error):
            process = psutil.Process(pid)
            if _SERVER in process.cmdline():
                process.kill()


def test_a_stop_reaches_children_in_sessions_of_their_own(server: Server) -> None:
    server.processes.stop(_NODE)
    stopped = server.sizes()
    throughout(lambda: server.sizes() == stopped, seconds=0.2, what="nothing is written")
    server.processes.resume(_NODE)
    assert server.all_go_on()


@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_kill_reaches_children_in_sessions_of_their_own(
    server: Server, *, is_stopped: bool
) -> None:
    if is_stopped:
        server.processes.stop(_NODE)
    server.processes.kill(_NODE)
    assert not any(map(_runs, server.sizes()))


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
