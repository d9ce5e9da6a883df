"""Server processes that do not outlive the supervisor, however it ends."""

import ctypes
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from kip30_conformance.servers import process_tree

_SET_PARENT_DEATH_SIGNAL = 1
_libc = ctypes.CDLL(None, use_errno=True)


class Processes:
    """The servers of one ensemble, by the number of their node."""

    def __init__(self) -> None:
        """Start without any."""
        self._running: dict[int, subprocess.Popen[bytes]] = {}

    def launch(
        self, node: int, command: Sequence[str], folder: Path, environment: Mapping[str, str]
    ) -> int:
        """Start the server of *node* in *folder*, its output going to ``log`` there."""
        folder.mkdir(parents=True, exist_ok=True)
        supervisor = os.getpid()
        with (folder / "log").open("ab") as log:
            process = subprocess.Popen(
                command,
                cwd=folder,
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=lambda: _die_with(supervisor),  # noqa: PLW1509  there is one thread here
            )
        self._running[node] = process
        return process.pid

    def pids(self) -> dict[int, int]:
        """Return the process ids of the servers that run."""
        return {node: one.pid for node, one in self._running.items() if one.poll() is None}

    def kill(self, node: int) -> int:
        """Kill the server with -9, with all its descendants, and wait until it is gone."""
        process = self._running[node]
        if process.poll() is None:
            # Processes that its descendants left in its group are no longer descendants.
            process_tree.kill(process.pid, lambda: os.killpg(process.pid, signal.SIGKILL))
            process.wait()
        return process.pid

    def stop(self, node: int) -> int:
        """Stop the server with all its descendants, and wait until all of them have stopped."""
        pid = self._running[node].pid
        os.killpg(pid, signal.SIGSTOP)
        process_tree.stop(pid)
        return pid

    def resume(self, node: int) -> int:
        """Continue a stopped server, with all its descendants."""
        pid = self._running[node].pid
        process_tree.resume(pid)
        os.killpg(pid, signal.SIGCONT)
        return pid

    def status(self, node: int) -> int | None:
        """Return the exit status, or None if it runs."""
        return self._running[node].poll()

    def end(self) -> None:
        """Kill all."""
        for node in self._running:
            self.kill(node)


def _die_with(supervisor: int) -> None:
    """Ask to be killed when the supervisor dies, even by -9; at once if it is dead already."""
    _libc.prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != supervisor:
        os.kill(os.getpid(), signal.SIGKILL)
