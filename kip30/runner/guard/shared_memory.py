"""The memory that a runner and its guard share, and the clock its times are read from.

Each cell is one aligned machine word, so it is read and written whole, also while the other
side is stopped or dead.
"""

import mmap
import os
import time

_CELL_BYTES = 8
_CELLS = 6


def now() -> int:
    """Return the time since boot, suspend included, in nanoseconds."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class _Cell:
    def __init__(self, index: int) -> None:
        self._index = index

    def __get__(self, memory: "SharedMemory", _owner: type["SharedMemory"]) -> int:
        return memory.cells[self._index]

    def __set__(self, memory: "SharedMemory", value: int) -> None:
        memory.cells[self._index] = value


class SharedMemory:
    """The values that both sides see. Times are nanoseconds since boot, spans nanoseconds."""

    deadline: _Cell = _Cell(0)
    """Time at which the lease ends unless renewed; written by the runner."""
    timeout: _Cell = _Cell(1)
    """Span for which the store keeps the lease without renewal."""
    grace: _Cell = _Cell(2)
    """Span that a command may take to end after the first signal."""
    beat: _Cell = _Cell(3)
    """Time at which the guard was last seen at work; written by the guard, first by the runner."""
    command: _Cell = _Cell(4)
    """The command's process id, 0 before it is started; written by the guard."""
    stops: _Cell = _Cell(5)
    """Number of times the terminal has stopped the command; written by the guard."""

    def __init__(self, descriptor: int) -> None:
        """Map the memory behind *descriptor*, which may be closed afterwards."""
        self._map = mmap.mmap(descriptor, _CELLS * _CELL_BYTES)
        self.cells: memoryview[int] = memoryview(self._map).cast("q")

    def close(self) -> None:
        """Unmap it."""
        self.cells.release()
        self._map.close()


def create() -> int:
    """Return the descriptor of a new page of memory filled with zeros."""
    descriptor = os.memfd_create("kip30-guard", os.MFD_CLOEXEC)
    os.ftruncate(descriptor, _CELLS * _CELL_BYTES)
    return descriptor
