"""A process that is stopped for a check does not keep the store locked for all others."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import psutil
import pytest

from kip30 import PluginLocator
from kip30.config import Written
from kip30_conformance.clients.process_stop import ProcessStop

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


def test_a_process_that_is_stopped_in_a_write_is_stopped_again(
    properties: Mapping[str, Written], tmp_path: Path
) -> None:
    stop = ProcessStop(properties)
    with PluginLocator().startup(properties) as client:
        words = [sys.executable, "-c", _WRITER, str(tmp_path / "state" / "kip30.db")]
        with subprocess.Popen(words, stdout=subprocess.PIPE) as writer:
            try:
                assert writer.stdout is not None
                assert writer.stdout.readline() == b"writing\n"
                stop.stop(writer.pid)
                assert psutil.Process(writer.pid).status() == psutil.STATUS_STOPPED
                client.storage().set("k", "v")
            finally:
                writer.kill()


def test_a_store_that_stands_still_anyway_does_not_keep_a_check_waiting(
    properties: Mapping[str, Written], tmp_path: Path
) -> None:
    stop = ProcessStop({**properties, **SHORT})
    with PluginLocator().startup(properties):
        words = [sys.executable, "-c", _WRITER, str(tmp_path / "state" / "kip30.db")]
        with subprocess.Popen(words, stdout=subprocess.PIPE) as locking:
            sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
            with subprocess.Popen(sleep) as stopped:
                try:
                    assert locking.stdout is not None
                    assert locking.stdout.readline() == b"writing\n"
                    stop.stop(stopped.pid)
                    assert psutil.Process(stopped.pid).status() == psutil.STATUS_STOPPED
                finally:
                    stopped.kill()
                    locking.kill()
