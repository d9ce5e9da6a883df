"""The runner's handle of its guard process."""

import errno
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from typing_extensions import override

from kip30.driver.closeable import Closeable
from kip30.driver.kit.interpreter import interpreter
from kip30.errors import UnsupportedError
from kip30.runner.guard import deadlines, kernel, messages, orders, shared_memory
from kip30.runner.guard.command import DEAF_TO
from kip30.runner.guard.kernel import DeadMansSwitch
from kip30.runner.guard.orders import StartOrder
from kip30.runner.guard.shared_memory import SharedMemory
from kip30.runner.protocols import UnderLease
from kip30.runner.sealed_file import sealed

_FOLDER = Path(__file__).parent
# The runner's package is kept out of the guard's sight, or its start would import all of kip30.
_START = "import sys; sys.path.insert(0, sys.argv.pop(1)); from guard.main import main; main()"
_COERCED = "LC_CTYPE"
_COERCED_TO = {"C.UTF-8", "C.utf8", "UTF-8"}
_SECOND = 1_000_000_000
_START_LIMIT = 5 * _SECOND
_CLOSE_SECONDS = 2.0
_NEEDED_CALLS: Mapping[str, tuple[Callable[[], object], str]] = {
    "pidfd_open": (lambda: os.close(os.pidfd_open(os.getpid())), "Linux 5.3"),
    "memfd_create": (lambda: os.close(shared_memory.create()), "Linux 3.17"),
    "prctl": (lambda: kernel.set_subreaper(on=kernel.is_subreaper()), "Linux 3.4"),
    "timer_create": (lambda: DeadMansSwitch().close(), "Linux 2.6.39"),
}
_REFUSALS = {errno.ENOSYS, errno.EPERM, errno.EACCES, errno.EINVAL}


def require_guard() -> None:
    """Raise unless a guard can run on this system.

    Raises:
        UnsupportedError: This is not Linux, or it refuses a system call, which is named; or there
            is no Python to start.
        OSError: This process has no descriptor left.
    """
    if sys.platform != "linux":
        raise UnsupportedError("a guard needs Linux")
    interpreter()
    for call, (try_out, needs) in _NEEDED_CALLS.items():
        try:
            try_out()
        except OSError as error:
            if error.errno not in _REFUSALS:
                raise
            raise UnsupportedError(
                f"a guard needs the system call {call} ({error.strerror}): it takes {needs}, and"
                " in a container a runtime whose seccomp profile allows that call"
            ) from error


class CommandSpec(Protocol):
    """A command and what belongs to it."""

    @property
    def command(self) -> Sequence[str]:
        """Program and arguments."""
        ...

    @property
    def environment(self) -> Mapping[str, str | None]:
        """Variables to set, or not to pass on if None."""
        ...

    @property
    def grace_seconds(self) -> float:
        """The time that the command may take to end after the first signal."""
        ...


class GuardHandle(Closeable):
    """One guard, good for one start of a command. Closing it ends command and guard.

    It may be started before its command is known. Not thread-safe.
    """

    def __init__(self, descriptors: Sequence[int]) -> None:
        """Start a guard that waits for its command.

        Args:
            descriptors: Open descriptors above 2 that the command gets under the same numbers.

        Raises:
            OSError: It cannot be started.
        """
        self._control, control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._tether, tether = socket.socketpair()
        memory = shared_memory.create()
        self._memory = SharedMemory(memory)
        self._was_stuck = False
        passed = [control.fileno(), tether.fileno(), self._tether.fileno(), memory]
        try:
            self._process = _spawn(passed, descriptors)
        except BaseException:
            self._control.close()
            self._tether.close()
            self._memory.close()
            raise
        finally:
            control.close()
            tether.close()
            os.close(memory)

    def fileno(self) -> int:
        """Return a descriptor that is readable once there is a report, or the guard is dead."""
        return self._control.fileno()

    @property
    def pid(self) -> int:
        """The process id of the guard; its own until it is closed."""
        return self._process.pid

    @property
    def command_pid(self) -> int:
        """The command's process id; 0 until it is started."""
        return self._memory.command

    @property
    def stops(self) -> int:
        """The number of times that the terminal has stopped the command."""
        return self._memory.stops

    def is_alive(self) -> bool:
        """Return whether the guard process is there, if only stopped; false once it was killed.

        Raises:
            ChildProcessError: It gave up by itself, and printed why on standard error.
        """
        status = self._process.poll()
        if status is not None and status > 0:
            words = f"the guard cannot work on this system: status {status}"
            raise ChildProcessError(errno.ECHILD, words)
        return status is None

    def is_standing_still(self) -> bool:
        """Return whether the guard missed its beats since `start`: it is stopped, or starved."""
        limit = deadlines.beat_limit(self._memory) if self.command_pid else _START_LIMIT
        return shared_memory.now() - self._memory.beat > limit

    def start(
        self,
        command: CommandSpec,
        leased: UnderLease,
        shared: int | None,
        *,
        uses_terminal: bool = False,
    ) -> None:
        """Let the guard start *command* for *leased*.

        Args:
            command: What to start.
            leased: The term or the share; `renew` reports its later deadlines.
            shared: A descriptor for the guard to hold until command and descendants are gone.
            uses_terminal: Whether the command shares the terminal of this process, in the
                foreground if this process is; if not, it has none, and reads nothing from one.

        Raises:
            OSError: There is no memory or no descriptor left for the order. Nothing was started.
            ValueError: The command or its environment has a NUL in it. Nothing was started.
        """
        changes = {**_locale(), **command.environment}
        order = orders.encode(StartOrder(command.command, changes, uses_terminal=uses_terminal))
        self._memory.grace = _nanoseconds(command.grace_seconds)
        self._memory.timeout = _nanoseconds(leased.timeout_seconds)
        self._memory.beat = shared_memory.now()
        self.renew(leased.deadline)
        packet = messages.encode(messages.START)
        file = sealed("kip30-order", order)
        try:
            with suppress(ConnectionError):
                passed = [file] if shared is None else [file, shared]
                socket.send_fds(self._control, [packet], passed)
        finally:
            os.close(file)

    def renew(self, deadline: float) -> None:
        """Inform the guard of the lease's deadline, in seconds of the system's clock."""
        self._memory.deadline = _nanoseconds(deadline)

    def stop(self, number: int) -> None:
        """Send a signal to the command and its descendants; the first one begins their grace."""
        self._order(messages.STOP, number)

    def forward(self, number: int) -> None:
        """Send the command a signal that does not ask it to end: see `Command.forward`."""
        self._order(messages.FORWARD, number)

    def kill(self) -> None:
        """Kill the command and its descendants without any further grace."""
        self._order(messages.KILL)

    def report(self) -> tuple[str, int] | None:
        """Return the guard's report of its command's end; None if it died without a report.

        Blocks until then.
        """
        packet = self._receive() or self._receive()
        return messages.decode(packet) if packet else None

    def destroy(self) -> None:
        """Kill the guard, stopped or not; the kernel then kills the command's process group."""
        self._was_stuck = self._was_stuck or self._process.poll() is None
        self._process.kill()

    def end(self) -> str:
        """Return in words what ended the guard, once `report` has returned None. Blocks until then.

        The kernel sends SIGKILL if memory runs out, or to a guard that has stalled.
        """
        status = self._process.wait()
        if self._was_stuck:
            return "the guard process had stalled and was killed"
        if status >= 0:
            return f"the guard process ended with status {status}"
        reason = " (out of memory? see the kernel's log)" if status == -signal.SIGKILL else ""
        return f"the guard process was killed by {signal.Signals(-status).name}{reason}"

    @override
    def close(self) -> None:
        """End the guard and its command, and wait until the guard is gone. Idempotent.

        A guard that is stopped, or cannot get rid of a process, is killed after two seconds.
        """
        if self._control.fileno() < 0:
            return
        # A guard that merely loses its runner leaves the command the rest of its grace.
        self.kill()
        self._control.close()
        is_there = self._process.poll() is None
        if is_there and not _has_ended(self._process.pid, _CLOSE_SECONDS):
            self.destroy()
        self._process.wait()
        self._tether.close()
        self._memory.close()

    def _receive(self) -> bytes:
        # If a dead guard left orders unread, the first read is an error, even if it had sent a
        # report.
        with suppress(ConnectionError):
            return self._control.recv(messages.MAX_BYTES)
        return b""

    def _order(self, word: str, number: int = 0) -> None:
        with suppress(ConnectionError):
            self._control.send(messages.encode(word, number))


def _spawn(passed: Sequence[int], descriptors: Sequence[int]) -> subprocess.Popen[bytes]:
    words = [str(_FOLDER), *map(str, passed), str(os.getpid())]
    # A guard inherits them as blocked, until it ignores them.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, DEAF_TO)
    try:
        return subprocess.Popen(  # noqa: S603  (this interpreter)
            [interpreter(), "-I", "-S", "-c", _START, *words],
            pass_fds=[*passed, *descriptors],
            process_group=0,  # no key of a terminal reaches it
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _locale() -> dict[str, str | None]:
    """Return the variable that Python sets for itself, as this process was started with it.

    In a locale that is not UTF-8 (PEP 538), in this process and again in the guard.
    """
    value = os.environ.get(_COERCED)
    return {_COERCED: _at_start(_COERCED, value) if value in _COERCED_TO else value}


def _at_start(name: str, now: str) -> str | None:
    """Return the variable as this process was started with it; *now* if that is unknown."""
    try:
        variables = Path("/proc/self/environ").read_bytes().split(b"\0")
    except OSError:
        return now
    beginning = os.fsencode(f"{name}=")
    found = (one.removeprefix(beginning) for one in variables if one.startswith(beginning))
    return next(map(os.fsdecode, found), None)


def _has_ended(child: int, timeout: float) -> bool:
    process = os.pidfd_open(child)
    poll = select.poll()
    poll.register(process, select.POLLIN)
    try:
        return bool(poll.poll(timeout * 1000))
    finally:
        os.close(process)


def _nanoseconds(seconds: float) -> int:
    return int(seconds * _SECOND)
