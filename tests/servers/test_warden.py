import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from kip30_conformance.polling import eventually
from kip30_conformance.servers.needing import needed
from kip30_conformance.servers.supervisor_client import SupervisorError

from .conftest import EACH_STORE

_PARENT = """
import os, sys
from kip30_conformance.servers import start
ensemble = start(sys.argv[1])
print(ensemble.warden_pid, ensemble.nodes[0].pid, flush=True)
if os.fork():
    sys.stdin.read()
else:
    # Keeps the pipe to the supervisor open for longer than its parent lives.
    import time
    time.sleep(3)
    os._exit(0)
"""


@contextmanager
def parent_of(name: str) -> Iterator[tuple[subprocess.Popen[str], int, int]]:
    needed(name).close()
    with subprocess.Popen(
        [sys.executable, "-c", _PARENT, name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        assert parent.stdout
        supervisor, server = map(int, parent.stdout.readline().split())
        yield parent, supervisor, server


def expect_gone(*pids: int) -> None:
    eventually(lambda: not any(map(_runs, pids)), within=2, what=f"{pids} are gone")


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize("name", EACH_STORE)
def test_a_killed_parent_leaves_nothing(name: str) -> None:
    with parent_of(name) as (parent, supervisor, server):
        assert _runs(server)
        parent.kill()
        parent.wait()
        expect_gone(server, supervisor)


@pytest.mark.parametrize("name", EACH_STORE)
def test_a_killed_warden_leaves_no_server(name: str) -> None:
    with needed(name) as ensemble:
        server = ensemble.nodes[0].pid
        os.kill(ensemble.warden_pid, signal.SIGKILL)
        expect_gone(server)
        with pytest.raises(SupervisorError, match="gone"):
            ensemble.link()


def test_a_stopped_server_is_ended_as_well(tmp_path: Path) -> None:
    with needed("etcd", folder=tmp_path) as ensemble:
        server = ensemble.nodes[0].stop()
    expect_gone(server, ensemble.warden_pid)
    assert (tmp_path / "node0" / "log").exists()


def test_a_temporary_folder_is_removed() -> None:
    with needed("etcd") as ensemble:
        folder = Path(psutil.Process(ensemble.nodes[0].pid).cwd()).parent
    assert not folder.exists()


def test_a_refused_request_is_an_error() -> None:
    with needed("etcd") as ensemble, ensemble.link() as link:
        with pytest.raises(SupervisorError, match="IndexError"):
            link.cut(nodes=[7])
        link.cut(nodes=[0])
