"""The resources of this process: threads, descriptors and children, to be compared over time."""

import gc
import os
import threading
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil

from kip30_conformance.polling import eventually


class ProcessResources(NamedTuple):
    """The number of threads of each name, the descriptors with their files, and the children."""

    threads: Counter[str]
    descriptors: Mapping[int, str]
    children: frozenset[int]


def resources_held() -> ProcessResources:
    """Return the resources that this process holds now."""
    process = psutil.Process(os.getpid())
    names = Counter(thread.name for thread in threading.enumerate())
    children = frozenset(child.pid for child in process.children(recursive=True))
    return ProcessResources(names, _descriptors(), children)


def thread_names() -> str:
    """Return how many threads of each name there are, for a message."""
    names = Counter(thread.name for thread in threading.enumerate())
    return ", ".join(f"{count} of {name!r}" for name, count in sorted(names.items()))


def expect_no_more_than(before: ProcessResources, *, within: float = 10.0) -> None:
    """Wait until this process holds nothing that it did not hold *before*.

    Raises:
        AssertionError: It still does; the message names it.
    """
    with suppress(AssertionError):
        eventually(lambda: not _surplus(before), within=within)
    surplus = _surplus(before)
    assert not surplus, f"left behind: {', '.join(surplus)}"


def _surplus(before: ProcessResources) -> list[str]:
    gc.collect()
    now = resources_held()
    return [
        *(
            f"thread {name!r}: {now.threads[name]} instead of {before.threads[name]}"
            for name in now.threads - before.threads
        ),
        *(f"child {pid}" for pid in now.children - before.children),
        *_more_descriptors(before.descriptors, now.descriptors),
    ]


def _more_descriptors(before: Mapping[int, str], now: Mapping[int, str]) -> list[str]:
    """Compare counts: a library that reconnects holds another descriptor, but not one more."""
    if len(now) <= len(before):
        return []
    new = {number: file for number, file in now.items() if before.get(number) != file}
    named = ", ".join(f"{number} ({file})" for number, file in sorted(new.items()))
    return [f"{len(now)} descriptors instead of {len(before)}, among them {named}"]


def _descriptors() -> Mapping[int, str]:
    found = dict[int, str]()
    for entry in Path("/proc/self/fd").iterdir():
        # The descriptor through which the folder is read is closed by then.
        with suppress(FileNotFoundError):
            found[int(entry.name)] = str(entry.readlink())
    return found
