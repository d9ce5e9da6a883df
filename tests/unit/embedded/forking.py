"""Steps of the tests of forks, in the parent and in its children."""

import ctypes
import os
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kip30.driver import Backend
from kip30.driver.records import Claim, Condition, Kind, Target, Write
from kip30.errors import Kip30Error, LifecycleError
from kip30.names import Key
from kip30_backends.embedded import fork_safety

SERVICE = Target(Kind.SERVICE, "s")
GROUP = Target(Kind.GROUP, "g")
KEY = Key("", "key")


def put(backend: Backend, key: Key = KEY) -> None:
    backend.storage.write(Write(key, "n", b"v", Condition.ANY)).result()


def leader(backend: Backend) -> list[str]:
    return list(backend.observe.snapshot(SERVICE).result().entries)


def led(backend: Backend, candidate: str) -> Claim:
    claim = backend.election.claim("s", candidate, "n", b"").result()
    assert isinstance(claim, Claim)
    return claim


def works(open_backend: Any) -> bool:
    """Return whether a backend opened here and now can read and write."""
    own = open_backend()
    put(own, Key("", f"child{os.getpid()}"))
    found: bool = own.storage.read([KEY]).result() != [None]
    own.close()
    return found


def is_unclean(open_backend: Any) -> bool:
    """Return true if no backend can be opened because of the fork; raise if one can."""
    for _ in range(2):
        with pytest.raises(LifecycleError, match="start locators after the fork only"):
            open_backend()
    return True


@contextmanager
def repeating(*works: Callable[[], object]) -> Generator[None]:
    """Keep doing each of *works* on a thread of its own."""
    done = threading.Event()

    def repeat(work: Callable[[], object]) -> None:
        while not done.is_set():
            work()

    threads = [threading.Thread(target=repeat, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        done.set()
        for thread in threads:
            thread.join()


def refused(backend: Backend) -> bool:
    errors: list[Kip30Error | BaseException | None] = [
        backend.storage.read([KEY]).exception(),
        backend.storage.write(Write(KEY, "n", b"", Condition.ANY)).exception(),
        backend.membership.claim("g", "m", "n", b"").exception(),
        backend.election.claim("s", "c", "n", b"").exception(),
        backend.observe.snapshot(GROUP).exception(),
    ]
    try:
        backend.observe.watch(GROUP, print)
    except LifecycleError as error:
        errors.append(error)
    backend.close()
    return len(errors) == 6 and all(isinstance(error, LifecycleError) for error in errors)


def database_descriptors(directory: Path) -> int:
    """Return the number of descriptors that SQLite has open; pins are not among them."""
    paths = [path for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    links = [path.readlink() for path in paths if not fork_safety.is_pin(int(path.name))]
    return sum(str(link).startswith(str(directory / "kip30.db")) for link in links)


def fork_in_c() -> int:
    """Fork as a program in C does that embeds Python: no hook runs."""
    pid: int = ctypes.PyDLL(None).fork()
    return pid


def fork_in_c_with_late_hooks() -> int:
    pid = fork_in_c()
    if pid == 0:
        ctypes.pythonapi.PyOS_AfterFork_Child()
    return pid


FORKS_IN_C = [fork_in_c]
if sys.version_info < (3, 13):
    # From then on the interpreter aborts if the hooks before the fork did not run.
    FORKS_IN_C.append(fork_in_c_with_late_hooks)
