"""The terminal of a runner: lent to its command as a shell lends it to a job.

The command has a process group of its own in the session of the runner, so that the kernel, not
the runner, decides who may read: the foreground group. Whenever that is the runner's own group, the
shell has given the terminal to the runner, which gives it to the command:

    runner in the foreground -- a command starts, or `fg` --> command in the foreground
    command in the foreground -- Ctrl-Z stops it --> runner in the foreground, and stops, too
    command in the background -- it reads, and is stopped --> the runner stops, too
    command in the foreground -- all its processes have ended --> runner in the foreground

The shell sees the runner stop as any job. A stopped runner renews nothing, so the guard ends the
command before the lease can end. SIGCONT, as of `bg`, is passed on.
"""

import os
import signal
import termios
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Any

from kip30.runner.guard import processes
from kip30.runner.guard_handle import GuardHandle

_STDIN = 0


class Terminal:
    """Standard input, as far as it is the terminal that controls this process. Main thread only.

    Attributes:
        is_lent: Whether the present command may use the terminal, in the foreground.
    """

    def __init__(self) -> None:
        """Lend nothing yet."""
        self.is_lent: bool = False
        # How often the command was stopped by the terminal, as far as this has been dealt with.
        self._stops = 0
        # How the terminal was set before the command.
        self._modes: list[Any] = []

    def lend(self) -> None:
        """Decide whether the next command may use the terminal."""
        self.is_lent = _is_lendable()
        self._stops = 0
        if self.is_lent:
            self._modes = termios.tcgetattr(_STDIN)

    def look(self, guard: GuardHandle) -> None:
        """Pass the terminal on if the shell has given it to this process; stop with the command."""
        command = guard.command_pid
        if not self.is_lent or not command:
            return
        foreground = _foreground()
        if foreground == os.getpgrp():
            self._stops = guard.stops
            _bring_to_foreground(command)
            guard.forward(signal.SIGCONT)
        elif guard.stops != self._stops:
            self._stops = guard.stops
            if foreground == command:
                _bring_to_foreground(os.getpgrp())
            # All of the group, as Ctrl-Z does without a runner: the shell waits for a script that
            # has started this process, or for `sudo`, and would not notice this one's stop.
            os.kill(0, signal.SIGTSTP)

    def take_back(self, *, restores: bool) -> None:
        """Take the terminal back from a command that has ended, with all its processes.

        Args:
            restores: Set the terminal as it was before: the command was killed, or may have been.
        """
        if not self.is_lent:
            return
        self.is_lent = False
        foreground = _foreground()
        # The terminal may also be at one of the command's other groups: of a shell, for instance.
        if foreground > 0 and foreground != os.getpgrp() and not _has_processes(foreground):
            _bring_to_foreground(os.getpgrp())
        if restores and _foreground() == os.getpgrp():
            with suppress(termios.error):
                termios.tcsetattr(_STDIN, termios.TCSANOW, self._modes)


def _is_lendable() -> bool:
    """Return whether the terminal controls this process, and no other process needs it.

    In a pipeline, the others would lose the terminal with it: `kip30 run … | less`. Processes that
    have started this one wait for it.
    """
    foreground = _foreground()
    if foreground < 0:
        return False
    others = {one.pid: one for one in processes.members(os.getpgrp())}
    pid = os.getpid()
    while pid in others:
        pid = others.pop(pid).parent
    # No process would resume an orphaned group in the background.
    return not others and (foreground == os.getpgrp() or _is_in_session(pid))


def _foreground() -> int:
    """Return the foreground group; -1 if standard input is not the controlling terminal."""
    try:
        return os.tcgetpgrp(_STDIN)
    except OSError:
        return -1


def _is_in_session(pid: int) -> bool:
    try:
        return pid > 0 and os.getsid(pid) == os.getsid(0)
    except OSError:
        return False


def _has_processes(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _bring_to_foreground(group: int) -> None:
    # The group may have ended, or the terminal may have hung up.
    with _allowed_from_background(), suppress(OSError):
        os.tcsetpgrp(_STDIN, group)


@contextmanager
def _allowed_from_background() -> Generator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
