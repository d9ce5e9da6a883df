"""A file that takes the place of the database is never taken for it, with any inode number."""

import fcntl
import os
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from kip30.driver import Backend
from kip30.driver.records import Condition, Write
from kip30.errors import StoreError
from kip30.names import Key
from kip30_backends.embedded import fork_safety
from kip30_backends.embedded.fork_safety import DirectoryLock, PinnedInode

from .forking import fork_in_c, is_unclean, works

KEY = Key("", "key")
_OFTEN = 500
"""Most files that are made until one has the number that another file had."""

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="needs O_PATH")


def write(backend: Backend, data: bytes) -> BaseException | None:
    return backend.storage.write(Write(KEY, "n", data, Condition.ANY)).exception()


def remove_database(directory: Path) -> None:
    """Remove the database, and let the next file that is made have its number if that is free.

    ext4 gives the lowest one that is free; other file systems may never give one again.
    """
    number = (directory / "kip30.db").stat().st_ino
    for suffix in ("", "-wal", "-shm"):
        (directory / f"kip30.db{suffix}").unlink(missing_ok=True)
    for other in range(_OFTEN):
        filler = directory / f"filler{other}"
        filler.touch()
        if filler.stat().st_ino == number:
            filler.unlink()
            return


@pytest.mark.parametrize("end", ["fork", "thread"])
def test_a_new_file_is_not_written_while_no_connection_is_open(
    open_backend: Any, in_child: Any, directory: Path, end: str
) -> None:
    backends: list[Backend] = []

    def open_blue() -> None:
        backends.append(open_backend(namespace="blue"))
        assert write(backends[0], b"blue") is None

    def open_green() -> bool:
        green = open_backend(namespace="green")
        written = write(green, b"green") is None
        green.close()
        return written

    if end == "thread":
        thread = threading.Thread(target=open_blue)
        thread.start()
        thread.join()
    else:
        open_blue()
        assert in_child(lambda: True) == 0  # which closes all connections
    remove_database(directory)
    assert in_child(open_green) == 0
    assert isinstance(write(backends[0], b"blue again"), StoreError)
    green = open_backend(namespace="green")
    (entry,) = green.storage.read([KEY]).result()
    assert entry is not None
    assert entry.data == b"green"


@linux_only
def test_a_number_is_kept_until_its_pin_is_closed(tmp_path: Path) -> None:
    file = tmp_path / "one"
    file.touch()
    pin = PinnedInode(str(file))
    for number in range(_OFTEN):
        file.unlink(missing_ok=True)
        other = tmp_path / f"other{number}"
        other.touch()
        assert fork_safety.inode_of(other.stat()) != pin.inode
    pin.close()
    pin.close()


@linux_only
def test_closing_a_pin_keeps_the_record_locks_of_the_file(tmp_path: Path) -> None:
    """SQLite holds such locks; closing an ordinary descriptor of the file releases them."""
    file = tmp_path / "one"
    file.touch()
    descriptor = os.open(file, os.O_RDWR)
    fcntl.lockf(descriptor, fcntl.LOCK_EX)
    PinnedInode(str(file)).close()
    assert is_locked(file)
    os.close(os.open(file, os.O_RDONLY))
    assert not is_locked(file), "or this test would show nothing"
    os.close(descriptor)


def test_a_store_that_is_closed_leaves_another_ones_locks(
    open_backend: Any, directory: Path
) -> None:
    stays, goes = open_backend(), open_backend()
    assert write(stays, b"1") is None
    assert write(goes, b"2") is None
    goes.close()
    # SQLite's "shared" byte range, which a connection in WAL mode locks for as long as it is open.
    assert is_locked(directory / "kip30.db", 510, 0x40000002)


def test_pins_are_closed_with_their_stores(open_backend: Any) -> None:
    before = set(fork_safety._held)
    backend = open_backend()
    other = open_backend(namespace="other")
    held = fork_safety._held - before
    pins = [one for one in held if not isinstance(one, DirectoryLock)]
    assert len(pins) == 2 * (sys.platform == "linux")
    assert len(held) - len(pins) == 2
    backend.close()
    other.close()
    assert fork_safety._held == before


@linux_only
def test_a_pin_does_not_make_a_child_unclean_and_is_closed_there(
    open_backend: Any, in_child: Any, directory: Path
) -> None:
    backend = open_backend()
    assert write(backend, b"1") is None
    assert pinned(directory)
    assert in_child(lambda: not pinned(directory) and works(open_backend)) == 0
    assert pinned(directory)
    assert write(backend, b"2") is None


@linux_only
def test_an_unclean_child_closes_pins_and_no_descriptor_that_it_has_reused(
    open_backend: Any, in_child: Any, directory: Path
) -> None:
    backend = open_backend()
    assert write(backend, b"1") is None
    descriptor = backend._resources.connections._pin._descriptor

    def reuse() -> bool:
        reused = os.dup2(os.open(directory, os.O_RDONLY), descriptor)
        return is_unclean(open_backend) and os.fstat(reused) is not None

    assert in_child(lambda: is_unclean(open_backend) and not pinned(directory), fork_in_c) == 0
    assert in_child(reuse, fork_in_c) == 0


def test_without_o_path_a_store_works_and_forks(
    open_backend: Any, in_child: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fork_safety, "_O_PATH", 0)
    before = set(fork_safety._held)
    backend = open_backend()
    assert write(backend, b"1") is None
    assert all(isinstance(one, DirectoryLock) for one in fork_safety._held - before)
    assert in_child(lambda: works(open_backend)) == 0
    backend.close()


def pinned(directory: Path) -> list[int]:
    """Return the descriptors of this process that pin the database of *directory*."""
    found: list[int] = []
    for entry in list(Path("/dev/fd").iterdir()):
        with suppress(OSError):
            named = entry.readlink() == directory / "kip30.db"
            if named and fork_safety.is_pin(int(entry.name)):
                found.append(int(entry.name))
    return found


def is_locked(file: Path, length: int = 0, start: int = 0) -> bool:
    """Return whether this process has a record lock on *file*, as another process sees it."""
    command = [sys.executable, "-c", _PROBE, str(file), str(length), str(start)]
    return subprocess.run(command, check=False).returncode == _LOCKED


_LOCKED = 3
_PROBE = f"""
import fcntl, sys
with open(sys.argv[1], "rb+") as file:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, int(sys.argv[2]), int(sys.argv[3]))
    except OSError:
        sys.exit({_LOCKED})
"""
