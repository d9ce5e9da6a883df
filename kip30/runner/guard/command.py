"""The command: started in a process group of its own that cannot outlive its guard."""

import os
import signal
import socket
from collections.abc import Mapping

from . import kernel, processes

Tether = tuple[socket.socket, socket.socket]
"""The guard's end and the runner's."""

_GO = b"go"
_RESET = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PYTHON_IGNORES = (signal.SIGPIPE, signal.SIGXFSZ)
_NOT_STARTED = 127


class Dispositions:
    """The signals the guard itself ignores, and what the command gets instead."""

    def __init__(self) -> None:
        """Ignore what a terminal or an operator may send; only the runner gives orders."""
        self._inherited = {n: signal.SIG_IGN for n in _RESET if _is_ignored(n)}
        for number in _RESET:
            signal.signal(number, signal.SIG_IGN)

    def restore(self) -> None:
        """Give this process the dispositions the runner was started with."""
        for number in (*_RESET, *_PYTHON_IGNORES):
            signal.signal(number, self._inherited.get(number, signal.SIG_DFL))


class Command:
    """A child that was started, and its wait status once it is known."""

    def __init__(self, pid: int) -> None:
        """Stand for the child *pid*, which leads a process group."""
        self.pid = pid
        self.status: int | None = None
        self.descriptor: int = os.pidfd_open(pid)

    def reap(self) -> bool:
        """Take the status of whatever children are dead; say whether none are left at all."""
        try:
            while ended := processes.reap():
                if ended[0] == self.pid:
                    self.status = ended[1]
        except ChildProcessError:
            return True
        return False

    def send(self, number: int) -> None:
        """Signal the command and all its descendants, and have stopped ones take notice."""
        outside = [p for p in processes.descendants() if p.group != self.pid]
        for each in (number, signal.SIGCONT):
            self._send_group(each)
            for process in outside:
                process.send(each)

    def kill(self) -> None:
        """Kill the command and all descendants there are at this moment."""
        self._send_group(signal.SIGKILL)
        for process in processes.descendants():
            process.send(signal.SIGKILL)

    def _send_group(self, number: int) -> None:
        # Once the leader is reaped, its number may belong to a stranger.
        if self.status is None:
            processes.signal_group(self.pid, number)


def start(
    argv: list[str], environment: Mapping[str, str], dispositions: Dispositions, tether: Tether
) -> Command:
    """Start *argv*, tied to the life of this process and of the runner.

    Raises:
        OSError: It cannot be executed. Nothing of it is left.
    """
    go, let_go = os.pipe()
    failed, failing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(let_go)
        _become(argv, environment, dispositions, go, failing)
    os.close(go)
    os.close(failing)
    # Both here and in the child: whoever comes first, the group is there for the tether.
    _lead_group(pid)
    _tie(tether, pid)
    os.write(let_go, _GO)
    os.close(let_go)
    _raise_failure(pid, failed)
    return Command(pid)


def _become(
    argv: list[str],
    environment: Mapping[str, str],
    dispositions: Dispositions,
    go: int,
    failing: int,
) -> None:
    try:
        kernel.die_with_parent()
        _lead_group(0)
        if os.read(go, len(_GO)) == _GO:
            dispositions.restore()
            os.execvpe(argv[0], argv, environment)  # noqa: S606  (no shell: the point)
    except OSError as error:
        os.write(failing, str(error.errno).encode())
    finally:
        os._exit(_NOT_STARTED)


def _lead_group(pid: int) -> None:
    os.setpgid(pid, pid)


def _tie(tether: Tether, group: int) -> None:
    ours, runners = tether
    kernel.tether(ours, group)
    kernel.tether(runners, group)
    # From here on the runner alone holds its end, so its death closes it.
    runners.close()


def _raise_failure(pid: int, failed: int) -> None:
    with open(failed, "rb") as pipe:
        number = pipe.read()
    if number:
        os.waitpid(pid, 0)
        raise OSError(int(number), os.strerror(int(number)))


def _is_ignored(number: signal.Signals) -> bool:
    return signal.getsignal(number) == signal.SIG_IGN
