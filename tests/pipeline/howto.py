"""The commands of the pages in docs/howto, and their calls as a person makes them."""

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kip30 import Storage
from kip30_conformance.polling import time_scale

from .stores import stores_in

PAGES = Path(__file__).parents[2] / "docs" / "howto"


@contextmanager
def old_and_new(folder: Path) -> Iterator[None]:
    """Serve the stores of the two properties files that the pages name, and write these files."""
    with stores_in(folder) as stores:
        for name, store in (("old", "zookeeper"), ("new", "etcd")):
            stores.config(store, "app").rename(folder / f"{name}.properties")
        yield


def commands(page: Path) -> list[list[str]]:
    """Return the calls of `kip30 pipeline` on *page*, without the name of the program."""
    lines = re.findall(r"^kip30 (pipeline .*?)(?: +# .*)?$", page.read_text(), re.MULTILINE)
    return [shlex.split(line) for line in lines]


def call(folder: Path, words: list[str]) -> None:
    """Call the program in *folder*; it must exit with 0."""
    done = subprocess.run(
        [sys.executable, "-m", "kip30", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=200 * time_scale(),
        check=False,
    )
    assert done.returncode == 0, (words, done.stdout[-2_000:], done.stderr[-4_000:])


@contextmanager
def running(folder: Path, words: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command until the block ends, and then end it as Ctrl-C does."""
    command = subprocess.Popen(
        [sys.executable, "-m", "kip30", *words], cwd=folder, start_new_session=True
    )
    try:
        yield command
        command.send_signal(signal.SIGINT)
        assert command.wait(60 * time_scale()) == 130
    finally:
        if command.poll() is None:
            os.killpg(command.pid, signal.SIGKILL)
            command.wait()


def change(storage: Storage[bytes], writer: int, turn: int) -> None:
    """Change, create and delete keys of the namespace ``app``."""
    storage.set(f"app/k{writer:03}", b"turn %d" % turn)
    storage.set(f"app/new-{writer}-{turn % 5}", b"%d" % turn)
    if turn % 3 == 0:
        storage.delete(f"app/new-{writer}-{turn % 5}")
