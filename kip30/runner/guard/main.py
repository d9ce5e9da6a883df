"""What a guard does: wait for the order, start the command, end it in time, report, go.

It decides by the page and the clock alone, so that it needs no other process: not the runner, which
may be stopped, nor the store. If it is stopped itself the kernel kills it before the lease ends,
and the command's process group with it.
"""

import fcntl
import os
import select
import socket
import sys
import time
from contextlib import suppress
from functools import partial

from . import deadlines, messages, processes
from .activation import activated
from .command import Command, Dispositions, start
from .kernel import DeadMansSwitch, set_subreaper
from .processes import ChildEnds
from .shared_memory import Page, now
from .shutdown import Shutdown

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
        self._child_ends = ChildEnds()
        self._poll.register(self._child_ends, select.POLLIN)

    def serve(self, argv: list[str], runner: int) -> None:
        """Wait for the order to start *argv*, see it through, and report.

        Args:
            argv: The command.
            runner: The process id of the runner.
        """
        if not self._watch_runner(runner) or not self._await_start():
            return
        if now() >= deadlines.term_at(self._page) or self._poll.poll(0):
            self._report(messages.UNSTARTED)
            return
        try:
            command = self._start(argv, runner)
        except OSError as error:
            self._report(messages.FAILED, error.errno or 0)
            return
        outcome = self._supervise(command)
        self._kill_rest(command)
        self._report(outcome, command.status or 0)

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

    def _start(self, argv: list[str], runner: int) -> Command:
        self._beat()
        own = {**os.environ, "KIP30_EPOCH": str(self._page.epoch)}
        environment = partial(activated, own, runner)
        command = start(argv, environment, self._dispositions, self._tether)
        self._page.command = command.pid
        return command

    def _supervise(self, command: Command) -> str:
        """Wait until no process is left, or what is left must be killed; return the outcome."""
        shutdown = Shutdown(command, self._page)
        while not (command.reap() or shutdown.advance()):
            self._beat()
            for descriptor, _event in self._poll.poll(self._patience(shutdown)):
                self._hear(descriptor, shutdown)
        return shutdown.outcome

    def _hear(self, descriptor: int, shutdown: Shutdown) -> None:
        if descriptor == self._child_ends.fileno():
            self._child_ends.clear()
        elif descriptor == self._control.fileno() and (packet := self._receive()):
            _obey(*messages.decode(packet), shutdown)
        else:
            # The runner is dead: nothing renews the lease, nor can any order follow.
            self._poll.unregister(descriptor)
            if not shutdown.has_begun():
                shutdown.force(messages.STOPPED)

    def _receive(self) -> bytes:
        try:
            return self._control.recv(messages.MAX_BYTES)
        except ConnectionError:
            return b""

    def _patience(self, shutdown: Shutdown) -> int:
        """Return how long to wait for something to happen, in milliseconds."""
        moment = now()
        due = [moment + deadlines.beat_period(self._page), shutdown.kill_at()]
        if not shutdown.has_begun():
            due.append(deadlines.term_at(self._page))
        return max(0, min(due) - moment) // _MILLISECOND + 1

    def _kill_rest(self, command: Command) -> None:
        if command.reap():
            return
        command.kill()
        # All are doomed now. The guard must live until the last one has died.
        self._switch.release()
        pauses = processes.pauses()
        while not command.reap():
            self._page.beat = now()
            command.kill()
            time.sleep(next(pauses))

    def _beat(self) -> None:
        self._page.beat = now()
        self._switch.set(deadlines.switch_at(self._page))

    def _report(self, outcome: str, number: int = 0) -> None:
        with suppress(OSError):
            self._control.send(messages.encode(outcome, number))


def _obey(word: str, number: int, shutdown: Shutdown) -> None:
    if word == messages.STOP:
        shutdown.ask(number, messages.STOPPED)
    else:
        shutdown.force(messages.STOPPED)


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
