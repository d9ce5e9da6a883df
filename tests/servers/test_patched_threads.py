"""Threads replaced by gevent or eventlet: a store works, or its startup is refused."""

import subprocess
import sys
from pathlib import Path

import pytest

from kip30_conformance.polling import time_scale

_PROGRAM = """
import sys, threading, warnings
warnings.simplefilter("ignore")
{patch}
from kip30 import PluginLocator, UnsupportedError
settings = dict(line.split("=", 1) for line in sys.argv[1:])
try:
    locator = PluginLocator().startup(settings)
except UnsupportedError as error:
    print("refused:", error)
    raise SystemExit
with locator:
    heard = threading.Event()
    locator.listener_registry().add_value_change_listener("n/k", lambda change: heard.set())
    locator.group_membership("g").join("m", "")
    assert locator.leader_election("s").nominate("c", "")
    locator.storage().put("n/k", "v")
    assert heard.wait(60)
print("works")
"""
GEVENT = "from gevent import monkey; monkey.patch_all()"
EVENTLET = "import eventlet; eventlet.monkey_patch()"
ETCD = ("plugin.backend=etcd", "plugin.etcd.endpoints=127.0.0.1:1")


def _run(patch: str, *settings: str) -> str:
    program = _PROGRAM.format(patch=patch)
    pytest.importorskip(patch.split()[1].rstrip(";"))  # the full set has both
    run = subprocess.run(
        [sys.executable, "-c", program, *settings],
        capture_output=True,
        text=True,
        check=False,
        timeout=60 * time_scale(),
    )
    assert not run.returncode, run.stderr
    return run.stdout


def _embedded(tmp_path: Path) -> tuple[str, str]:
    return "plugin.backend=embedded", f"plugin.embedded.directory={tmp_path}"


@pytest.mark.large
def test_gevent_with_the_embedded_store_works(tmp_path: Path) -> None:
    assert _run(GEVENT, *_embedded(tmp_path)) == "works\n"


@pytest.mark.large
def test_gevent_with_etcd_is_refused() -> None:
    assert "refused: gevent.monkey has replaced threads" in _run(GEVENT, *ETCD)


@pytest.mark.large
def test_eventlet_is_refused(tmp_path: Path) -> None:
    assert "refused: eventlet.monkey_patch() was called" in _run(EVENTLET, *_embedded(tmp_path))
