"""A standalone cluster of Spark's own, from the wheel, on the loopback interface."""

import os
import re
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyspark

from kip30_conformance.polling import eventually

HOME = Path(pyspark.__file__).parent
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_SUBMIT = "org.apache.spark.deploy.SparkSubmit"
_CONNECT = "org.apache.spark.sql.connect.service.SparkConnectServer"
_STARTED = re.compile(r"Starting Spark master at (spark://\S+)")
_LOOPBACK = "127.0.0.1"


def environment(**more: str) -> dict[str, str]:
    """Return the environment of Spark's programs: everything on the loopback interface."""
    return {
        **os.environ,
        "SPARK_HOME": str(HOME),
        "SPARK_LOCAL_IP": _LOOPBACK,
        "SPARK_LOCAL_HOSTNAME": _LOOPBACK,
        **more,
    }


@contextmanager
def standalone(folder: Path, surroundings: Mapping[str, str]) -> Iterator[str]:
    """Yield the address of a master that has one worker with two slots."""
    folder.mkdir()
    web = ("--host", _LOOPBACK, "--webui-port", "0")
    with _program(folder, "master", surroundings, _MASTER, *web, "--port", "0") as log:
        found = eventually(lambda: _STARTED.search(log.read_text()), within=60.0)
        assert found is not None
        sizes = ("--cores", "2", "--memory", "1g", "--work-dir", str(folder / "work"))
        with _program(folder, "worker", surroundings, _WORKER, *web, *sizes, found[1]) as worker:
            eventually(
                lambda: "Successfully registered with master" in worker.read_text(), within=60.0
            )
            yield found[1]


@contextmanager
def connect_server(folder: Path, surroundings: Mapping[str, str]) -> Iterator[str]:
    """Yield the address of a Spark Connect server with two slots."""
    folder.mkdir()
    with socket.create_server((_LOOPBACK, 0)) as free:
        port: int = free.getsockname()[1]
    binding = "spark.connect.grpc.binding"
    settings = (
        f"{binding}.address={_LOOPBACK}",
        f"{binding}.port={port}",
        "spark.ui.enabled=false",
    )
    words = [word for one in settings for word in ("--conf", one)]
    call = (_SUBMIT, "--master", "local[2]", "--class", _CONNECT, *words, "spark-internal")
    with _program(folder, "connect", surroundings, *call) as log:
        eventually(lambda: "server started at" in log.read_text(), within=60.0)
        yield f"sc://{_LOOPBACK}:{port}"


@contextmanager
def _program(
    folder: Path, name: str, surroundings: Mapping[str, str], *words: str
) -> Iterator[Path]:
    log = folder / f"{name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [HOME / "bin" / "spark-class", *words],
            stdout=output,
            stderr=subprocess.STDOUT,
            env=dict(surroundings),
        )
        try:
            yield log
        finally:
            process.terminate()
            process.wait(60)
