"""The work of a guard: wait for the order, start the command, end it in time, report, exit.

It decides by the shared memory and the clock alone, so that it needs no other process: not the
runner, which may be stopped, nor the store. If it is stopped itself the kernel kills it before the
lease ends, and the command's process group with it.
"""

import errno
import fcntl
import os
import select
import socket
import sys
import time
from contextlib import suppress
from functools import partial

from . import deadlines, messages, orders, processes
from .command import Command, Dispositions, start
from .kernel import DeadMansSwitch, set_subreaper
from .orders import StartOrder
from .processes import ChildEnds
from .shared_memory import SharedMemory, now
from .shutdown import Shutdown
from .socket_activation import activated

_MILLISECOND = 1_000_000


class GuardProcess:
    """One guard, good for one term."""

    def __init__(
        self,
        control: socket.socket,
        tether: tuple[socket.socket, socket.socket],
        memory: SharedMemory,
    ) -> None:
        """Guard a command, yet to be started, for the runner behind *control*."""
        self._control = control
        self._tether = tether
        self._memory = memory
        self._switch = DeadMansSwitch()
        self._dispositions = Dispositions()
        self._poll = select.poll()
        self._poll.register(control, select.POLLIN)
        self._child_ends = ChildEnds()
        self._poll.register(self._child_ends, select.POLLIN)

    def serve(self, runner: int) -> None:
        """Wait for the order to start a command, see it through, and report.

        Args:
            runner: The process id of the runner.
        """
        try:
            order = self._await_start() if self._watch_runner(runner) else None
        except OSError as error:
            self._report(messages.FAILED, error.errno or 0)
            return
        if order is None:
            return
        if now() >= deadlines.term_at(self._memory) or self._poll.poll(0):
            self._report(messages.UNSTARTED)
            return
        try:
            command = self._start(order, runner)
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

    def _await_start(self) -> StartOrder | None:
        """Return the order to start; None if the runner does not need this guard.

        Raises:
            OSError: This process has no descriptor left for what comes with the order.
        """
        packet, kept, flags, _address = socket.recv_fds(self._control, messages.MAX_BYTES, 2)
        if not packet or messages.decode(packet)[0] != messages.START:
            return None
        # Without the second one the lease would end with the runner, before the command does.
        if flags & socket.MSG_CTRUNC:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        order, *shared = kept
        # The shared descriptor is held until this process ends, and by no other process.
        _close_on_exec(shared)
        try:
            return orders.read(order)
        finally:
            os.close(order)

    def _start(self, order: StartOrder, runner: int) -> Command:
        self._beat()
        environment = partial(activated, order.changed(os.environ), runner)
        lender = os.getpgid(runner) if order.uses_terminal else None
        command = start(order.command, environment, self._dispositions, self._tether, lender)
        self._memory.command = command.pid
        return command

    def _supervise(self, command: Command) -> str:
        """Wait until no process is left, or the rest must be killed; return the outcome."""
        shutdown = Shutdown(command, self._memory)
        while not (command.reap() or shutdown.advance()):
            self._memory.stops = command.stops
            self._beat()
            for descriptor, _event in self._poll.poll(self._patience(shutdown)):
                self._hear(descriptor, command, shutdown)
        return shutdown.outcome

    def _hear(self, descriptor: int, command: Command, shutdown: Shutdown) -> None:
        if descriptor == self._child_ends.fileno():
            self._child_ends.clear()
        elif descriptor == self._control.fileno() and (packet := self._receive()):
            _obey(*messages.decode(packet), command, shutdown)
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
        """Return how long to wait for the next event, in milliseconds."""
        moment = now()
        due = [moment + deadlines.beat_period(self._memory), shutdown.kill_at()]
        if not shutdown.has_begun():
            due.append(deadlines.term_at(self._memory))
        return max(0, min(due) - moment) // _MILLISECOND + 1

    def _kill_rest(self, command: Command) -> None:
        if command.reap():
            return
        command.kill()
        # SIGKILL was sent to every process. The guard must outlive the last of them.
        self._switch.release()
        pauses = processes.pauses()
        while not command.reap():
            self._memory.beat = now()
            command.kill()
            time.sleep(next(pauses))

    def _beat(self) -> None:
        self._memory.beat = now()
        self._switch.set(deadlines.switch_at(self._memory))

    def _report(self, outcome: str, number: int = 0) -> None:
        with suppress(OSError):
            self._control.send(messages.encode(outcome, number))


def _obey(word: str, number: int, command: Command, shutdown: Shutdown) -> None:
    if word == messages.FORWARD:
        command.forward(number)
    elif word == messages.STOP:
        shutdown.ask(number, messages.STOPPED)
    else:
        shutdown.force(messages.STOPPED)


def main() -> None:
    """Run a guard.

    Arguments: the descriptors of the control socket, of the tether's two ends (ours, the
    runner's) and of the shared memory; the runner's process id.
    """
    control, ours, runners, memory, runner = (int(word) for word in sys.argv[1:])
    _close_on_exec([control, ours, runners, memory])
    set_subreaper(on=True)
    tether = socket.socket(fileno=ours), socket.socket(fileno=runners)
    guard = GuardProcess(socket.socket(fileno=control), tether, SharedMemory(memory))
    guard.serve(runner)
    os._exit(0)  # The successor waits, and there is nothing an interpreter's end could add.


def _close_on_exec(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        fcntl.fcntl(descriptor, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
