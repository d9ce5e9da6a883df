"""A command for `kip30 run` and `kip30 coordinate`: writes every two milliseconds that it runs.

Called with the log's path and any of the words ``tree`` (breed children in the same process
group, in another session, and a daemon), ``slow-tick`` (twenty times a second), ``polite`` (end
with status 7 at a signal), ``slow`` (the same after a while, and note "clean" at last) and
``stubborn`` (do not end).
"""

import math
import os
import signal
import sys
import time
from types import FrameType

POLITE_STATUS = 7

CLEANING_SECONDS = 0.3
"""Seconds that a ``slow`` one continues after the signal."""

_PAUSE = 0.002
_LONG_PAUSE = 0.05
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Ticker:
    """One process that ticks."""

    def __init__(self, log: str) -> None:
        """Append to *log*."""
        self._log = os.open(log, os.O_WRONLY | os.O_APPEND)
        known = os.environ
        self._term = (
            f"{known['KIP30_EPOCH']} {known['KIP30_CANDIDATE']}"
            if "KIP30_EPOCH" in known
            else f"{known['KIP30_GENERATION']} {known['KIP30_MEMBER']}"
        )
        # Its descendants write the same, so that the runs of a command can be distinguished.
        self._run = time.monotonic_ns()

    def note(self, what: str) -> None:
        """Write one line.

        A kill may cut it short, so it begins on a line of its own.
        """
        line = f"\n{time.monotonic()} {self._term} {os.getpid()} {self._run} {what}\n"
        os.write(self._log, line.encode())

    def tick(self, until: float = math.inf) -> None:
        """Write line after line, forever or until that time of `time.monotonic`."""
        while time.monotonic() < until:
            self.note("tick")
            time.sleep(_LONG_PAUSE if "slow-tick" in sys.argv[2:] else _PAUSE)

    def end(self, number: int, _frame: FrameType | None) -> None:
        """Note the signal and do as it says."""
        self.note(signal.Signals(number).name)
        os._exit(POLITE_STATUS)

    def clean_up(self, number: int, _frame: FrameType | None) -> None:
        """Note the signal and take some time to end."""
        self.note(signal.Signals(number).name)
        self.tick(until=time.monotonic() + CLEANING_SECONDS)
        self.note("clean")
        os._exit(POLITE_STATUS)

    def go_on(self, number: int, _frame: FrameType | None) -> None:
        """Note the signal."""
        self.note(signal.Signals(number).name)


def _breed() -> None:
    """Return in the caller and in three descendants, of which two have left its group."""
    if os.fork() == 0:
        return
    if os.fork() == 0:
        os.setsid()
        return
    child = os.fork()
    if child == 0:
        os.setsid()
        if os.fork() == 0:
            return
        os._exit(0)
    os.waitpid(child, 0)


def main() -> None:
    """Tick until a signal ends it."""
    ticker = Ticker(sys.argv[1])
    manners = {"polite": ticker.end, "slow": ticker.clean_up, "stubborn": ticker.go_on}
    for word, handler in manners.items():
        if word in sys.argv[2:]:
            for number in _SIGNALS:
                signal.signal(number, handler)
    if "KIP30_SHARE" in os.environ:
        ticker.note(f"items={os.environ['KIP30_SHARE'].replace(' ', ',')}")
    elif "KIP30_ITEM" in os.environ:
        ticker.note(f"items={os.environ['KIP30_ITEM']}")
    if "tree" in sys.argv[2:]:
        _breed()
    ticker.tick()


if __name__ == "__main__":
    main()
