"""A standalone cluster of Spark's own, from the wheel, on the loopback interface."""

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyspark

from kip30_conformance.patience import eventually

HOME = Path(pyspark.__file__).parent
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
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
