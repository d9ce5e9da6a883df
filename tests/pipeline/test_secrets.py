"""P35: a secret is nowhere but where its owner keeps it."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Self

import psutil
import pytest

from kip30 import KeyExistsError, PartialWriteError
from kip30_conformance.servers import start
from tests.unit.etcd.admin import Admin

from .store import fill, write_properties

CANARY = "kanarienvogel-4711"
WRONG = "falscher-vogel-0815"
SECONDS = 300.0


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with start("etcd", folder=tmp_path_factory.mktemp("etcd")) as servers:
        admin = Admin(servers.nodes[0].address)
        admin.add_user("root", CANARY)
        admin.add_user("alice", CANARY, prefix="/mine/")
        admin.tell("auth/enable")
        yield servers.nodes[0].address


class _Seen:
    """Everything of a process and its children that other users of the machine may see."""

    def __init__(self, root: int) -> None:
        self.lines: set[str] = set()
        self._ended = threading.Event()
        self._root = psutil.Process(root)
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._ended.wait(0.05):
            with suppress(psutil.Error):
                for one in [self._root, *self._root.children(recursive=True)]:
                    with suppress(psutil.Error):
                        self.lines.add(" ".join(one.cmdline()))


@pytest.mark.case("P35")
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("password", "kept"),
    [
        pytest.param(CANARY, "env", id="works-env"),
        pytest.param(WRONG, "file", id="fails-file", marks=pytest.mark.large),
        pytest.param(CANARY, "file", id="works-file", marks=pytest.mark.heavy),
        pytest.param(WRONG, "env", id="fails-env", marks=pytest.mark.heavy),
    ],
)
def test_a_secret_is_nowhere(tmp_path: Path, etcd: str, kept: str, password: str) -> None:
    work, owners = tmp_path / "work", tmp_path / "owners"
    for folder in (work, owners, work / "events", work / "local"):
        folder.mkdir()
    (owners / "password").write_text(password)
    environment = {**os.environ, "ETCD_PASSWORD": password}
    reference = "${env:ETCD_PASSWORD}" if kept == "env" else f"${{file:{owners / 'password'}}}"
    file = write_properties(
        work / "etcd.properties",
        {
            "plugin.backend": "etcd",
            "plugin.etcd.endpoints": etcd,
            "plugin.namespace": "mine",
            "plugin.etcd.user": "alice",
            "plugin.etcd.password": reference,
        },
    )
    _fill(owners, etcd)
    output, lines = _run(work, file, environment)
    assert ("AuthenticationError" in output) == (password == WRONG), output[-4000:]
    if password == CANARY:
        assert "BatchScan" in output, output[-4000:]  # the plan
        assert (work / "run" / "report.json").exists(), output[-4000:]
    assert list((work / "events").glob("*")), "no event log"
    assert any("java" in line for line in lines)
    shown = [
        name for name, text in (("output", output), ("ps", "\n".join(lines))) if password in text
    ]
    held = [path for path in work.rglob("*") if path.is_file() and _holds(path, password)]
    assert (shown, held) == ([], [])


def _run(work: Path, file: Path, environment: dict[str, str]) -> tuple[str, set[str]]:
    script = Path(__file__).with_name("secret_run.py")
    with (work / "output").open("w+") as output:
        process = subprocess.Popen(
            [sys.executable, script, file, work / "run", work / "events"],
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=work,
        )
        with _Seen(process.pid) as seen:
            try:
                process.wait(SECONDS)
            finally:
                process.kill()
                process.wait()
    return (work / "output").read_text(errors="replace"), seen.lines


def _fill(owners: Path, etcd: str) -> None:
    settings = {
        "plugin.backend": "etcd",
        "plugin.etcd.endpoints": etcd,
        "plugin.namespace": "mine",
        "plugin.etcd.user": "alice",
        "plugin.etcd.password": CANARY,
    }
    file = write_properties(owners / "etcd.properties", settings)
    with suppress(KeyExistsError, PartialWriteError):  # the other cases have put them there
        fill(file, 10)


def _holds(path: Path, secret: str) -> bool:
    return secret.encode() in path.read_bytes()
