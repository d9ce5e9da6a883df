"""What a guard does: wait for the order, start the command, end it in time, report, go.

It decides by the page and the clock alone, so that it needs nobody: not the runner, which may
be stopped, nor the store. If it is stopped itself the kernel kills it before the lease ends,
and the command's process group with it.
"""

import fcntl
import os
import select
import signal
import socket
import sys
import time
from contextlib import suppress

from . import limits, messages, processes
from .command import Command, Dispositions, start
from .kernel import DeadMansSwitch, set_subreaper
from .page import Page, now

_MILLISECOND = 1_000_000


class Guard:
    """One guard, good for one term."""

    def __init__(
        self, control: socket.socket, tether: tuple[socket.socket, socket.socket], page: Page
    ) -> None:
        """Stand between the runner behind *control* and a command yet to be started."""
        self._control = control
        self._tether = tether
        self._page = page
        self._switch = DeadMansSwitch()
        self._dispositions = Dispositions()
        self._poll = select.poll()
        self._poll.register(control, select.POLLIN)
        self._outcome = messages.ENDED
        self._kill_at: int | None = None

    def serve(self, argv: list[str], runner: int) -> None:
        """Wait for the order to start *argv*, see it through, and report.

        Args:
            argv: The command.
            runner: The process id of the runner.
        """
        if not self._watch_runner(runner) or not self._await_start():
            return
        if now() >= limits.term_at(self._page) or self._poll.poll(0):
            self._report(messages.UNSTARTED)
            return
        try:
            command = self._start(argv)
        except OSError as error:
            self._report(messages.FAILED, error.errno or 0)
            return
        self._watch(command)
        self._finish(command)
        self._report(self._outcome, command.status or 0)

    def _watch_runner(self, pid: int) -> bool:
        with suppress(ProcessLookupError):
            self._poll.register(os.pidfd_open(pid), select.POLLIN)
        # The other order would let the runner die, and its number be given away, in between.
        return os.getppid() == pid

    def _await_start(self) -> bool:
        packet, kept, _flags, _address = socket.recv_fds(self._control, messages.MAX_BYTES, 1)
        # What is shared is held until this process ends, and by no other.
        _close_on_exec(kept)
        return bool(packet) and messages.decode(packet)[0] == messages.START

    def _start(self, argv: list[str]) -> Command:
        self._beat()
        environment = {**os.environ, "KIP30_EPOCH": str(self._page.epoch)}
        command = start(argv, environment, self._dispositions, self._tether)
        self._page.command = command.pid
        self._poll.register(command.descriptor, select.POLLIN)
        return command

    def _watch(self, command: Command) -> None:
        while not self._is_over(command):
            self._beat()
            for descriptor, _event in self._poll.poll(self._patience()):
                if descriptor != command.descriptor:
                    self._obey(descriptor, command)
            command.reap()
            if self._kill_at is None and now() >= limits.term_at(self._page):
                self._stop(command, signal.SIGTERM, messages.LAPSED)

    def _is_over(self, command: Command) -> bool:
        if command.status is not None:
            return True
        moment = now()
        if moment >= limits.kill_at(self._page):
            self._kill(messages.LAPSED)
        return self._kill_at is not None and moment >= self._kill_at

    def _obey(self, descriptor: int, command: Command) -> None:
        packet = b""
        if descriptor == self._control.fileno():
            packet = self._receive()
        word, number = messages.decode(packet) if packet else (messages.KILL, 0)
        if word == messages.STOP:
            self._stop(command, number, messages.STOPPED)
        else:
            self._kill(messages.STOPPED)

    def _receive(self) -> bytes:
        try:
            return self._control.recv(messages.MAX_BYTES)
        except ConnectionError:
            return b""

    def _stop(self, command: Command, number: int, outcome: str) -> None:
        self._kill_at = now() + self._page.grace
        self._outcome = outcome
        command.send(number)

    def _kill(self, outcome: str) -> None:
        if self._kill_at is None:
            self._outcome = outcome
        self._kill_at = 0

    def _patience(self) -> int:
        """Return how long to wait for something to happen, in milliseconds."""
        moment = now()
        due = [moment + limits.beat_period(self._page), limits.kill_at(self._page)]
        if self._kill_at is None:
            due.append(limits.term_at(self._page))
        else:
            due.append(self._kill_at)
        return max(0, min(due) - moment) // _MILLISECOND + 1

    def _finish(self, command: Command) -> None:
        if command.reap():
            return
        command.kill()
        # All are doomed now, and whoever is slow to die must find a guard that waits for him.
        self._switch.release()
        pauses = processes.pauses()
        while not command.reap():
            self._page.beat = now()
            command.kill()
            time.sleep(next(pauses))

    def _beat(self) -> None:
        self._page.beat = now()
        self._switch.set(limits.switch_at(self._page))

    def _report(self, outcome: str, number: int = 0) -> None:
        with suppress(OSError):
            self._control.send(messages.encode(outcome, number))


def main() -> None:
    """Run a guard.

    Arguments: the descriptors of the control socket, of the tether's two ends (ours, the
    runner's) and of the page; the runner's process id; the command.
    """
    control, ours, runners, page = (int(word) for word in sys.argv[1:5])
    _close_on_exec([control, ours, runners, page])
    set_subreaper(on=True)
    tether = socket.socket(fileno=ours), socket.socket(fileno=runners)
    guard = Guard(socket.socket(fileno=control), tether, Page(page))
    guard.serve(sys.argv[6:], int(sys.argv[5]))
    os._exit(0)  # The successor waits, and there is nothing an interpreter's end could add.


def _close_on_exec(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        fcntl.fcntl(descriptor, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
