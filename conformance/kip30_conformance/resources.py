"""What this process holds: threads, descriptors and children, to be compared before and after."""

import gc
import os
import threading
from collections import Counter
from contextlib import suppress
from typing import NamedTuple

import psutil

from kip30_conformance.polling import eventually


class Resources(NamedTuple):
    """How many threads of each name, how many descriptors, and which child processes."""

    threads: Counter[str]
    descriptors: int
    children: frozenset[int]


def resources() -> Resources:
    """Return what this process holds now."""
    process = psutil.Process(os.getpid())
    names = Counter(thread.name for thread in threading.enumerate())
    children = frozenset(child.pid for child in process.children(recursive=True))
    return Resources(names, process.num_fds(), children)


def expect_no_more_than(before: Resources, *, within: float = 10.0) -> None:
    """Wait until this process holds nothing that it did not hold *before*.

    Raises:
        AssertionError: It still does; the message says what.
    """
    with suppress(AssertionError):
        eventually(lambda: not _surplus(before), within=within)
    surplus = _surplus(before)
    assert not surplus, f"left behind: {', '.join(surplus)}"


def _surplus(before: Resources) -> list[str]:
    gc.collect()
    now = resources()
    return [
        *(f"thread {name}" for name in (now.threads - before.threads).elements()),
        *(f"child {pid}" for pid in now.children - before.children),
        *["descriptor"] * (now.descriptors - before.descriptors),
    ]
