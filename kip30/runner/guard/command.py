"""The command: started in a process group of its own that cannot outlive its guard."""

import os
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from . import kernel, processes
from .processes import Process

Tether = tuple[socket.socket, socket.socket]
"""The guard's end and the runner's."""

_GO = b"go"
DEAF_TO = (
    *(signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT),
    *(signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU),
    *(signal.SIGUSR1, signal.SIGUSR2),
)
"""Signals that a terminal, an operator or systemd may send to a guard, too."""
_STDIN = 0
_STOPS_OF_TERMINAL = {signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU}
_READY = b"ready"
_PYTHON_IGNORES = (signal.SIGPIPE, signal.SIGXFSZ)
_FOR_THE_GROUP = (signal.SIGWINCH, signal.SIGCONT)
_NOT_STARTED = 127


class Dispositions:
    """The signals the guard itself ignores, and what the command gets instead."""

    def __init__(self) -> None:
        """Ignore what a terminal or an operator may send; only the runner gives orders.

        Signals that the runner was started with as blocked are unblocked: SIGCHLD has to arrive
        here, and the command, which inherits the mask, has to hear of its end.
        """
        self._inherited = {n: signal.SIG_IGN for n in DEAF_TO if _is_ignored(n)}
        for number in DEAF_TO:
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())

    def restore(self) -> None:
        """Give this process the dispositions the runner was started with."""
        for number in (*DEAF_TO, *_PYTHON_IGNORES):
            signal.signal(number, self._inherited.get(number, signal.SIG_DFL))


class Command:
    """A child that was started, and its wait status once it is known.

    Attributes:
        pid: Its process id.
        status: Its wait status; None while it has not ended.
        stops: How often the terminal has stopped it.
    """

    def __init__(self, pid: int, ties: "Ties") -> None:
        """Represent the child *pid*, which leads a process group with these *ties*."""
        self.pid: int = pid
        self.status: int | None = None
        self.stops: int = 0
        self._ties = ties

    def reap(self) -> bool:
        """Take the status of all dead children; return whether none are left at all."""
        try:
            while ended := processes.reap(stopped=True):
                if ended[0] == self.pid:
                    self._note(ended[1])
        except ChildProcessError:
            return True
        return False

    def signal_first(self, number: int, family: Sequence[Process]) -> None:
        """Signal the command's process group by one call, and the rest of *family* one by one.

        No process of the group can fork and be missed. Stopped processes are resumed.
        """
        outside = [process for process in family if process.group != self.pid]
        self._signal_group(number)
        self._signal_group(signal.SIGCONT)
        processes.signal_each(number, outside)

    def forward(self, number: int) -> None:
        """Send a signal that does not ask to end, unless the first process has ended.

        SIGUSR1 and SIGUSR2 go to the first process alone: a shell, or any other process, that does
        not handle them is ended by them. A window size, and that the terminal may be used again,
        concern the whole process group. A process that may not be signalled, because it has changed
        its user, does not get it.
        """
        if number in _FOR_THE_GROUP:
            self._signal_group(number)
        elif self.status is None:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill the command and all its present descendants."""
        self._signal_group(signal.SIGKILL)
        for process in processes.descendants():
            process.send(signal.SIGKILL)

    def outlive_runner(self) -> None:
        """From now on leave the process group alone when the runner dies."""
        kernel.untether(self._ties.to_runner)

    def _note(self, status: int) -> None:
        if not os.WIFSTOPPED(status):
            self.status = status
        elif os.WSTOPSIG(status) in _STOPS_OF_TERMINAL:
            self.stops += 1

    def _signal_group(self, number: int) -> None:
        # Once the leader is reaped, its number may belong to an unrelated process.
        if self.status is None:
            processes.signal_group(self.pid, number)


class Ties:
    """Ties a process group to its guard and its runner: the kernel kills it when one dies."""

    def __init__(self, tether: Tether, group: int) -> None:
        """Tie *group*; the runner alone keeps its end of *tether* open from then on."""
        self.to_runner: socket.socket = tether[0]
        runners = tether[1]
        # Both ends belong to the guard alone: when it dies, the first one closed finds the other
        # still open. So this holds without a runner, too.
        self._to_guard: Tether = socket.socketpair()
        for end in (self.to_runner, runners, *self._to_guard):
            kernel.tether(end, group)
        runners.close()


def start(
    argv: Sequence[str],
    environment: Callable[[], Mapping[str, str]],
    dispositions: Dispositions,
    tether: Tether,
    lender: int | None,
) -> Command:
    """Start *argv*, tied to the life of this process and of the runner.

    Args:
        argv: Program and arguments.
        environment: Called in the new process for its environment.
        dispositions: What the new process does about signals.
        tether: The guard's end and the runner's.
        lender: The process group that lends the terminal, if it has it; None to start in a session
            of its own, without a terminal to read from.

    Raises:
        OSError: It cannot be executed. Nothing of it is left.
    """
    ours, childs = socket.socketpair()
    failed, failing = os.pipe()
    pid = os.fork()
    if pid == 0:
        ours.close()
        _become(argv, environment, dispositions, childs, failing, lender=lender)
    childs.close()
    os.close(failing)
    with ours:
        # Its group exists from then on. If it could not be made, the reason follows.
        ours.recv(len(_READY))
        ties = Ties(tether, pid)
        with suppress(BrokenPipeError):
            ours.send(_GO)
    _raise_failure(pid, failed)
    return Command(pid, ties)


def _become(  # noqa: PLR0913  what `start` was given, and two ways to it
    argv: Sequence[str],
    environment: Callable[[], Mapping[str, str]],
    dispositions: Dispositions,
    guards: socket.socket,
    failing: int,
    *,
    lender: int | None,
) -> None:
    try:
        kernel.die_with_parent()
        if lender is None:
            _leave_terminal()
        else:
            os.setpgid(0, 0)
        guards.send(_READY)
        if guards.recv(len(_GO)) == _GO:
            _borrow_terminal(lender)
            dispositions.restore()
            os.execvpe(argv[0], [*argv], environment())  # noqa: S606  (no shell: the point)
    except OSError as error:
        os.write(failing, str(error.errno).encode())
    finally:
        os._exit(_NOT_STARTED)


def _leave_terminal() -> None:
    """Lead a session without a terminal; what was to be read from one is empty."""
    os.setsid()
    if os.isatty(_STDIN):
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, _STDIN)
        os.close(nothing)


def _borrow_terminal(lender: int | None) -> None:
    """Take the terminal from the group *lender* if that has it, before the program begins."""
    # It may have hung up meanwhile. A group in the background may do this: SIGTTOU is ignored yet.
    with suppress(OSError):
        if lender is not None and os.tcgetpgrp(_STDIN) == lender:
            os.tcsetpgrp(_STDIN, os.getpid())


def _raise_failure(pid: int, failed: int) -> None:
    with open(failed, "rb") as pipe:
        number = pipe.read()
    if number:
        os.waitpid(pid, 0)
        raise OSError(int(number), os.strerror(int(number)))


def _is_ignored(number: signal.Signals) -> bool:
    return signal.getsignal(number) == signal.SIG_IGN
