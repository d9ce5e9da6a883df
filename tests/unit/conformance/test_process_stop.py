"""A process that is stopped for a check does not keep the store locked for all others."""

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from kip30 import PluginLocator
from kip30.config import Written
from kip30_conformance.clients.process_stop import ProcessStop
from kip30_conformance.polling import scaled_by

pytestmark = pytest.mark.medium

_WRITER = """
import signal, sqlite3, sys
database = sqlite3.connect(sys.argv[1], isolation_level=None)
database.execute("BEGIN IMMEDIATE")
signal.signal(signal.SIGCONT, lambda *_: database.execute("COMMIT"))
print("writing", flush=True)
while True:
    signal.pause()
"""
SHORT = {"plugin.session.timeout.ms": 500, "plugin.operation.timeout.ms": 400}


@pytest.fixture
def properties(tmp_path: Path) -> Mapping[str, Written]:
    return {"plugin.backend": "embedded", "plugin.embedded.directory": tmp_path / "state"}


@contextmanager
def writing(state: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a process that is in a write of the store in *state* until it is continued."""
    words = [sys.executable, "-c", _WRITER, str(state / "kip30.db")]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"writing\n"
            yield process
        finally:
            process.kill()


@contextmanager
def idle() -> Iterator["subprocess.Popen[bytes]"]:
    """Run a process that does nothing."""
    with subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"]) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_process_that_is_stopped_in_a_write_is_stopped_again(
    properties: Mapping[str, Written], tmp_path: Path
) -> None:
    stop = ProcessStop(properties)
    with PluginLocator().startup(properties) as client, writing(tmp_path / "state") as writer:
        stop.stop(writer.pid)
        assert psutil.Process(writer.pid).status() == psutil.STATUS_STOPPED
        client.storage().set("k", "v")


def test_a_process_is_stopped_on_the_slowest_machine(properties: Mapping[str, Written]) -> None:
    stop = ProcessStop({**properties, **SHORT})
    with scaled_by(20), idle() as process:
        stop.stop(process.pid)
        assert psutil.Process(process.pid).status() == psutil.STATUS_STOPPED


def test_a_store_that_stands_still_anyway_does_not_keep_a_check_waiting(
    properties: Mapping[str, Written], tmp_path: Path
) -> None:
    stop = ProcessStop({**properties, **SHORT})
    with PluginLocator().startup(properties), writing(tmp_path / "state"), idle() as process:
        stop.stop(process.pid)
        assert psutil.Process(process.pid).status() == psutil.STATUS_STOPPED
