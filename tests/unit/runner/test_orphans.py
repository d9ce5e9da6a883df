"""Processes that a runner inherits, where the system has no descriptor to look for them."""

import subprocess
import sys

import pytest

from kip30_conformance.polling import time_scale

_PROGRAM = """
import os, resource, signal, subprocess, sys, threading
from kip30.runner.orphans import OrphanReaper

def used():
    return len(os.listdir("/proc/self/fd"))

def is_there(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True

soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
with OrphanReaper() as orphans:
    words = ["sh", "-c", "sleep 600 > /dev/null 2>&1 & echo $!"]
    pid = int(subprocess.run(words, stdout=subprocess.PIPE, check=True).stdout)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (used() - 1, hard))
        if sys.argv[1] == "sweep":
            assert not orphans.sweep(())
            assert is_there(pid)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            while not orphans.sweep(()):
                pass
        else:
            more = threading.Timer(0.3, resource.setrlimit, (resource.RLIMIT_NOFILE, (soft, hard)))
            more.start()
            orphans.clear()
            more.join()
        assert not is_there(pid)
    finally:
        if is_there(pid):
            os.kill(pid, signal.SIGKILL)
"""


@pytest.mark.parametrize("method", ["sweep", "clear"])
def test_without_descriptors_none_counts_as_gone(method: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _PROGRAM, method],
        capture_output=True,
        text=True,
        check=False,
        timeout=60 * time_scale(),
    )
    assert ended.returncode == 0, ended.stderr
