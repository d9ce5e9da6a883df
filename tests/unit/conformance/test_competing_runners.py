"""Runners of the suite end with the process that has started them, however that ends."""

import subprocess
import sys
from pathlib import Path

import psutil

from kip30_conformance.clients.run_processes import Arena
from kip30_conformance.polling import eventually

_PARENT = """
import sys, time
from pathlib import Path
from kip30_conformance.clients.run_processes import TREE, Arena

folder = Path(sys.argv[1])
store = {"plugin.backend": "embedded", "plugin.embedded.directory": str(folder / "store")}
arena = Arena(folder, {**store, "plugin.namespace": "test"})
runner, waiting = (arena.start(*arena.ticker("tree")) for _ in range(2))
while "waiting" not in runner.said + waiting.said:
    time.sleep(0.01)
term = arena.await_term(processes=TREE)
print(runner.pid, waiting.pid, *{tick.pid for tick in term}, flush=True)
sys.stdin.read()
"""


def test_a_killed_parent_leaves_no_runner(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _PARENT, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        assert parent.stdout
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        started = list(filter(None, map(_process, pids)))
        assert len(pids) > 2
        parent.kill()
        parent.wait()
    try:
        eventually(lambda: not any(map(_runs, pids)), within=5, what=f"{pids} are gone")
    finally:
        for process in started:
            if process.is_running():
                process.kill()


def test_a_line_that_a_kill_has_cut_short_is_left_out(tmp_path: Path) -> None:
    """The next line of another process follows it at once."""
    arena = Arena(tmp_path, {"plugin.backend": "embedded"})
    arena.log.write_text("\n1.0 7 c0 11 100 tick\n\n1.5 7 c0 12 10\n2.0 7 c0 11 100 tick\n\n3.0 7")
    assert [tick.at for tick in arena.ticks()] == [1.0, 2.0]
    with arena.log.open("a") as log:
        log.write(" c0 12 100 SIGTERM\n")
    assert arena.noted("SIGTERM") == {12}


def _process(pid: int) -> psutil.Process | None:
    """Return a process; None if it has ended, as the processes of a command do."""
    try:
        return psutil.Process(pid)
    except psutil.NoSuchProcess:
        return None


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
