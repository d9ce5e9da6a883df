"""The stall detector: the time in which its process was stopped does not count."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from kip30_conformance.fault_suites.timed_calls import make
from kip30_conformance.polling import eventually
from kip30_conformance.stall_detector import GAP_SECONDS, StallDetector

STOPPED_SECONDS = 1.0

# Waits for a line, then prints for how long it ran, was stalled, and was there.
WORKER = """
import sys, time
from kip30_conformance.stall_detector import StallDetector
with StallDetector() as stalls:
    started = time.monotonic()
    print("started", flush=True)
    sys.stdin.readline()
    ran, stalled = stalls.running_seconds(started), stalls.stalled_seconds(started)
    print(ran, stalled, time.monotonic() - started, flush=True)
"""


def _is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def test_time_in_which_the_process_was_stopped_does_not_count() -> None:
    command = [sys.executable, "-c", WORKER]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        worker.stdout.readline()
        os.kill(worker.pid, signal.SIGSTOP)
        try:
            eventually(lambda: _is_stopped(worker.pid))
            stopped_at = time.monotonic()
            eventually(lambda: time.monotonic() - stopped_at > STOPPED_SECONDS)
        finally:
            os.kill(worker.pid, signal.SIGCONT)
        worker.stdin.write("\n")
        worker.stdin.flush()
        ran, stalled, whole = map(float, worker.stdout.readline().split())
    assert stalled > STOPPED_SECONDS - GAP_SECONDS
    assert ran <= whole - stalled


def test_a_call_that_waits_counts_in_full() -> None:
    with StallDetector() as stalls:
        started = time.monotonic()
        eventually(lambda: time.monotonic() - started > STOPPED_SECONDS)
        assert stalls.running_seconds(started) + stalls.stalled_seconds(started) > STOPPED_SECONDS


def test_calls_made_together_leave_no_thread_behind() -> None:
    ended = make({"one": lambda: 1, "two": lambda: 2})
    assert [one.outcome for one in ended.values()] == [1, 2]
