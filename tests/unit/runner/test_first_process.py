"""A runner that is the first process of a container, and gets the orphans of all others."""

import os
import shutil
import signal
import subprocess
from collections.abc import Generator
from pathlib import Path

import pytest

from kip30_conformance.polling import time_scale

from .field import TIMEOUT, Field, Started, children, eventually, is_running, stat
from .share_field import ShareField

LONG = 100 * TIMEOUT * time_scale()
CONTAINER = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
NAME = "foreign"

pytestmark = pytest.mark.skipif(
    shutil.which("unshare") is None
    or subprocess.run([*CONTAINER, "true"], capture_output=True, check=False).returncode != 0,
    reason="this system permits no pid namespace here",
)


@pytest.fixture
def field(tmp_path: Path) -> Generator[Field]:
    field = Field(tmp_path)
    yield field
    field.close()


@pytest.fixture
def share_field(tmp_path: Path) -> Generator[ShareField]:
    field = ShareField(tmp_path)
    yield field
    field.close()


def first_process(runner: Started) -> int:
    return eventually(lambda: next(iter(children(runner.pid)), None))


def foreign_orphan(first: int, folder: Path) -> int:
    """Return an orphan that was started beside the command, as by ``kubectl exec``."""
    program = folder / NAME
    if not program.exists():
        program.symlink_to(str(shutil.which("sleep")))
    before = orphans(first)
    enter = ["nsenter", "-t", str(first), "-p", "-m"]
    script = f"(setsid {program} 1000 > /dev/null 2>&1 &)"
    subprocess.run([*enter, "sh", "-c", script], check=True)
    return eventually(lambda: next(iter(orphans(first) - before), None))


def orphans(first: int) -> set[int]:
    named = {one for one in children(first) if NAME in Path(f"/proc/{one}/cmdline").read_text()}
    return {one for one in named if is_running(one)}


def is_reaped(pid: int) -> bool:
    return stat(pid)[0] == "gone"


def check_reaped(orphan: int) -> None:
    os.kill(orphan, signal.SIGKILL)
    eventually(lambda: is_reaped(orphan))


def test_foreign_orphans_are_reaped_while_a_runner_leads(field: Field) -> None:
    runner = field.start(timeout=LONG, through=CONTAINER)
    field.await_epoch(1)
    check_reaped(foreign_orphan(first_process(runner), field.folder))
    field.depose()
    field.await_epoch(2)


def test_foreign_orphans_are_reaped_while_a_runner_waits(field: Field) -> None:
    with field.down():
        runner = field.start(timeout=LONG, through=CONTAINER)
        runner.await_line("waiting for the store")
        check_reaped(foreign_orphan(first_process(runner), field.folder))


def test_a_foreign_orphan_outlives_a_term(field: Field) -> None:
    runner = field.start(timeout=LONG, through=CONTAINER)
    field.await_epoch(1)
    orphan = foreign_orphan(first_process(runner), field.folder)
    field.depose()
    field.await_epoch(2)
    assert is_running(orphan)


@pytest.mark.parametrize("options", [(), ("--each",)])
@pytest.mark.parametrize("is_working", [False, True])
def test_foreign_orphans_are_reaped_by_runners_of_shares_and_items(
    share_field: ShareField, options: tuple[str, ...], *, is_working: bool
) -> None:
    runner = share_field.start(options=options, timeout=LONG, through=CONTAINER)
    if is_working and options:
        share_field.give_each(a=1)
    elif is_working:
        share_field.give(1, "a")
    if is_working:
        share_field.await_work(1)
    else:
        runner.await_line("waiting for")
    check_reaped(foreign_orphan(first_process(runner), share_field.folder))
