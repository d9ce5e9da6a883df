"""Simulated processes and their threads, as the scheduler has them.

A simulated thread is a greenlet.
"""

import itertools
import os
import zlib
from collections.abc import Callable
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import greenlet

_BOOT_SECONDS = 1_000.0
"""Time that the clock of a process shows when the process begins."""


class VirtualClock(Protocol):
    """Has the virtual time, in seconds."""

    now: float


class SimulatedProcess:
    """A process as the scheduler sees it: it can be paused or killed, and has a clock of its own.

    Attributes:
        name: Shown in traces and failures.
        rate: How fast its clock runs: 1 is exact.
        is_paused: Whether its threads do not run. Its clock does.
        is_dead: Whether its threads never run again.
        pid: What `os.getpid` returns there.
    """

    def __init__(
        self,
        virtual: VirtualClock,
        name: str,
        *,
        rate: float = 1.0,
        booted_at: float | None = None,
        pid: int | None = None,
    ) -> None:
        """Begin now, without threads.

        Args:
            virtual: The clock of the simulation that it runs in.
            name: See above.
            rate: See above.
            booted_at: The virtual time from which its clock counts; now, if it is not given.
                Processes of one machine have the same.
            pid: What `os.getpid` returns there; the real one, if it is not given.
        """
        self.name = name
        self.rate = rate
        self.is_paused = False
        self.is_dead = False
        self.pid: int = os.getpid() if pid is None else pid
        self._virtual = virtual
        self._booted_at = virtual.now if booted_at is None else booted_at
        self._numbers = itertools.count(1)

    def now(self) -> float:
        """Return what its clock shows, in seconds."""
        return _BOOT_SECONDS + (self._virtual.now - self._booted_at) * self.rate

    def next_ident(self) -> int:
        """Return a number for a thread, which no other thread of any process has had."""
        return zlib.crc32(self.name.encode()) << 32 | next(self._numbers)


class SimulatedThread:
    """A thread of a process: ready, running, parked or done.

    Attributes:
        process: Where it runs.
        name: Its name.
        ident: Its number.
        is_done: Whether it has returned or raised.
        stand_in: The `threading.Thread` that programs see; None before they look.
        priority: Where threads run by priority, the one with the greatest runs first.
        values: Of each `threading.local`, what this thread has set.
    """

    def __init__(
        self,
        process: SimulatedProcess,
        name: str,
        run: Callable[[], object],
        *,
        hub: greenlet.greenlet,
        ended: Callable[["SimulatedThread", BaseException | None], object],
    ) -> None:
        """Call *run* once this is switched to.

        Args:
            process: See above.
            name: See above.
            run: Its function.
            hub: The greenlet that goes on when it has ended.
            ended: Called when *run* has returned, with None, or with what it has raised.
        """
        self.process = process
        self.name = name
        self.ident = process.next_ident()
        self.is_done = False
        self.stand_in: Any = None
        self.is_parked = False
        self.has_timed_out = False
        # Counts the times that it was parked: a timer of an earlier time does nothing.
        self.parkings = 0
        self.priority = 0.0
        # Raised at its next turn.
        self.interruption: BaseException | None = None
        self.joiners: list[SimulatedThread] = []
        self.values: WeakKeyDictionary[object, dict[str, Any]] = WeakKeyDictionary()
        self._ended = ended
        self._run = run
        self.greenlet = greenlet.greenlet(self._body, parent=hub)

    def _body(self) -> None:
        error: BaseException | None = None
        try:
            self._run()
        except greenlet.GreenletExit:
            pass
        except BaseException as raised:  # noqa: BLE001  the thread ends as a real one does
            error = raised
        finally:
            self.values.clear()  # finalizers may take locks, so it is not done
            self.is_done = True
            self._ended(self, error)
