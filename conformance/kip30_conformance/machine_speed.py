"""Current slowness of this machine: the factor for deadlines, timed on what tests do most.

A deadline that is right on an idle machine is wrong on a busy one, and a factor that was
guessed is wrong on both. So the factor is measured when a run begins and again every minute.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable

LEAST, MOST = 2.0, 20.0
"""The factor of a machine on which nothing but the tests runs, and the largest one."""

_SAMPLES = 3
_SWITCHES = 100


def _start_interpreter() -> None:
    subprocess.run([sys.executable, "-I", "-c", "pass"], check=True)


def _write_and_sync() -> None:
    with tempfile.TemporaryFile() as file:
        file.write(bytes(4096))
        file.flush()
        os.fsync(file.fileno())


def _switch_threads() -> None:
    there, back = threading.Semaphore(0), threading.Semaphore(0)

    def reply() -> None:
        for _ in range(_SWITCHES):
            there.acquire()
            back.release()

    thread = threading.Thread(target=reply)
    thread.start()
    for _ in range(_SWITCHES):
        there.release()
        back.acquire()
    thread.join()


# Seconds that stand for a factor of 1: about what an idle machine of two cores takes.
_REFERENCES: tuple[tuple[Callable[[], None], float], ...] = (
    (_start_interpreter, 0.03),
    (_write_and_sync, 0.01),
    (_switch_threads, 0.015),
)


def measured_time_scale() -> float:
    """Return the factor for deadlines that the machine needs now, from `LEAST` to `MOST`.

    Each of the three is timed a few times and its median counts, because one late response of
    a disk does not make a machine slow; the slowest of the three decides.
    """
    slowest = max(_median_seconds(work) / seconds for work, seconds in _REFERENCES)
    return min(max(slowest, LEAST), MOST)


def _median_seconds(work: Callable[[], None]) -> float:
    return statistics.median(_seconds(work) for _ in range(_SAMPLES))


def _seconds(work: Callable[[], None]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun
