"""The real recipes, from scratch: the servers that their receipts start answer requests."""

import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from .workshop import PATIENCE, PROGRAM, eventually

FROM_NOTHING_SECONDS = 45 * PATIENCE
ANSWER_SECONDS = 5

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(FROM_NOTHING_SECONDS)]


def needing(*programs: str) -> pytest.MarkDecorator:
    missing = [program for program in programs if not shutil.which(program)]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {missing}")


def installed(name: str, cache: Path) -> Path:
    result = subprocess.run(
        [sys.executable, str(PROGRAM), name],
        env={**os.environ, "KIP30_SERVERS": str(cache)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return Path(result.stdout.strip())


@contextmanager
def started(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    receipt = json.loads((folder / "RECEIPT.json").read_text())
    start: Sequence[str] = [word.replace("{folder}", str(folder)) for word in receipt["start"]]
    with subprocess.Popen([*start, *arguments]) as process:
        try:
            yield process
        finally:
            process.kill()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


def four_letters(port: int, word: bytes) -> bytes:
    try:
        with socket.create_connection(("127.0.0.1", port), ANSWER_SECONDS) as connection:
            connection.sendall(word)
            return b"".join(iter(lambda: connection.recv(4096), b""))
    except OSError:
        return b""


def health(port: int) -> str:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_SECONDS)) as client:
        try:
            client.request("GET", "/health")
            return str(json.loads(client.getresponse().read())["health"])
        except OSError:
            return ""


@needing("java", "mvn")
def test_zookeeper_answers(tmp_path: Path) -> None:
    port = free_port()
    configuration = tmp_path / "zoo.cfg"
    configuration.write_text(
        f"""
        tickTime=500
        dataDir={tmp_path / "data"}
        clientPort={port}
        clientPortAddress=127.0.0.1
        admin.enableServer=false
        4lw.commands.whitelist=*
        """
    )
    folder = installed("zookeeper", tmp_path)
    with started(folder, str(configuration)):
        eventually(lambda: four_letters(port, b"srvr").startswith(b"Zookeeper version: 3."))
        assert four_letters(port, b"ruok") == b"imok"


@needing("go")
def test_etcd_is_healthy(tmp_path: Path) -> None:
    client, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    arguments = [
        f"--data-dir={tmp_path / 'data'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
    ]
    port = int(client.rpartition(":")[2])
    with started(installed("etcd", tmp_path), *arguments) as process:
        eventually(lambda: health(port) == "true")
        assert process.poll() is None
