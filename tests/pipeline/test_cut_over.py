"""The commands of docs/howto/change-store.md, word for word, while programs write."""

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kip30 import BYTES, PluginLocator, Storage
from kip30_conformance.polling import eventually, time_scale

from .stores import contents, fill, stores_in, writing

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "change-store.md"
VALUES = {f"app/k{number:03}": b"%d" % number for number in range(200)}
WRITERS = 4
pytestmark = [pytest.mark.large, pytest.mark.timeout(600)]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Yield a folder with the two properties files that the page names."""
    with stores_in(tmp_path) as stores:
        for name, store in (("old", "zookeeper"), ("new", "etcd")):
            stores.config(store, "app").rename(tmp_path / f"{name}.properties")
        yield tmp_path


def commands() -> list[list[str]]:
    """Return the calls of `kip30 pipeline` on the page, without the name of the program."""
    lines = re.findall(r"^kip30 (pipeline .*)$", PAGE.read_text(), re.MULTILINE)
    return [shlex.split(line) for line in lines]


def call(folder: Path, words: list[str]) -> None:
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
    """Change, create and delete keys."""
    storage.set(f"app/k{writer:03}", b"turn %d" % turn)
    storage.set(f"app/new-{writer}-{turn % 5}", b"%d" % turn)
    if turn % 3 == 0:
        storage.delete(f"app/new-{writer}-{turn % 5}")


def test_the_page_moves_a_store_while_programs_write(folder: Path) -> None:
    old, new = folder / "old.properties", folder / "new.properties"
    fill(old, VALUES)
    preflight, migrate, feed, feed_once, diff = commands()
    with writing(old, WRITERS, change):
        call(folder, preflight)
        call(folder, migrate)
        with running(folder, feed):
            fill(old, {"app/mark": b"here"})
            eventually(
                lambda: contents(new, ["app/mark"]) == {"app/mark": b"here"},
                within=120 * time_scale(),
                what="the feed has arrived at the mark",
            )
    call(folder, feed_once)
    call(folder, diff)
    with PluginLocator().startup(old) as before, PluginLocator().startup(new) as after:
        keys = sorted(before.storage(BYTES).list("app"))
        assert sorted(after.storage(BYTES).list("app")) == keys
    assert contents(new, keys) == contents(old, keys)
    assert len(keys) >= len(VALUES) + 1
