"""The signals to a runner: those that ask it to end, and those that are for its command."""

import os
import select
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import Enum, auto
from types import FrameType
from typing import NamedTuple, Self

Handler = Callable[[int, FrameType | None], object] | int | None
"""Value that `signal.signal` takes and returns."""

_CAUGHT = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
_FORWARDED = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH, signal.SIGCONT)
_ECHO_SECONDS = 0.5


class Interrupt(NamedTuple):
    """A signal that was received, and its time by `time.monotonic`."""

    number: int
    at: float


class Response(Enum):
    """Response of a runner to a signal while its command runs."""

    PASS_ON = auto()
    KILL = auto()
    NOTHING = auto()


def response(earlier: Sequence[Interrupt], latest: Interrupt) -> Response:
    """Return the response to *latest*, given all signals before it.

    The first request to end is passed on, the second one kills. Not every signal is a request of
    its own: a terminal that closes sends SIGHUP from the kernel and again from the shell, systemd
    may send it after SIGTERM, and `timeout` sends its signal to the process and then to the group.
    """
    if not earlier:
        return Response.PASS_ON
    if latest.number == signal.SIGHUP:
        return Response.NOTHING
    requests = [one for one in earlier if one.number != signal.SIGHUP]
    if not requests:
        return Response.PASS_ON
    alike = [one.at for one in requests if one.number == latest.number]
    is_echo = bool(alike) and latest.at - alike[0] < _ECHO_SECONDS
    return Response.NOTHING if is_echo else Response.KILL


class Interrupts:
    """Catches the signals to a runner in a with-block. Main thread only.

    SIGTERM, SIGINT, SIGHUP and SIGQUIT ask it to end. SIGUSR1, SIGUSR2, SIGWINCH and SIGCONT are
    for the command, if there is one, and mean nothing to the runner; one that this program has a
    handler for is left to that.

    A signal that is ignored at the start stays ignored: `nohup` ignores SIGHUP, and a shell
    without job control ignores SIGINT and SIGQUIT in what it runs in the background. A signal that
    is blocked at the start is unblocked: a parent that keeps signals for one of its threads blocks
    them in its child processes, without intent.

    Attributes:
        received: The signals caught so far that ask to end, in order.
        forwarded: How often each signal for the command was caught. The system merges signals that
            come in quick succession, so this may be too few.
    """

    def __init__(self, *, owns_process: bool = False) -> None:
        """Catch nothing yet.

        Args:
            owns_process: The process ends after the block, with a status that is known by then. The
                signals are ignored from the end of the block on, so that none of them replaces it.
                Also those for the command are caught if they had a handler.
        """
        self._owns_process = owns_process
        self.received: list[Interrupt] = []
        self.forwarded: Counter[int] = Counter()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._before: dict[signal.Signals, Handler] = {}
        self._mask: set[signal.Signals | int] = set()

    def __enter__(self) -> Self:
        """Begin to catch."""
        for number in _CAUGHT:
            if signal.getsignal(number) != signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._catch)
        for number in _FORWARDED:
            if self._is_ours(signal.getsignal(number)):
                self._before[number] = signal.signal(number, self._count)
        self._mask = signal.pthread_sigmask(signal.SIG_UNBLOCK, self._before)
        return self

    def __exit__(self, *_error: object) -> None:
        """Restore the former signal mask, and the handlers unless the process ends now."""
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_IGN if self._owns_process else handler)
        os.close(self._wake)

    def fileno(self) -> int:
        """Return a descriptor that is readable after a signal or `wake`, until `acknowledge`."""
        return self._wake

    def acknowledge(self) -> None:
        """Make it unreadable until the next signal or `wake`."""
        with suppress(BlockingIOError):
            os.eventfd_read(self._wake)

    def wake(self) -> None:
        """End the present or the next wait for a signal. Any thread may call it in the block."""
        os.eventfd_write(self._wake, 1)

    def wait(self, timeout: float) -> None:
        """Wait for a signal or `wake`, for *timeout* seconds at most."""
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        poll.poll(timeout * 1000)
        self.acknowledge()  # or each later wait would return at once; `received` keeps the signal

    def _is_ours(self, handler: Handler) -> bool:
        if self._owns_process:
            return handler != signal.SIG_IGN
        return handler == signal.SIG_DFL

    def _catch(self, number: int, _frame: FrameType | None) -> None:
        self.received.append(Interrupt(number, time.monotonic()))
        self.wake()

    def _count(self, number: int, _frame: FrameType | None) -> None:
        self.forwarded[number] += 1
        self.wake()
