"""Engines of jobs: processes that end, clusters, and the code that is sent to them."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from kip30.cli._exit_codes import Status
from kip30.pipeline.run.directory import read_manifest
from kip30.pipeline.spark.bundle import write_bundle
from kip30_conformance.polling import eventually, time_scale
from kip30_conformance.servers import start

from .cluster import HOME, connect_server, environment, standalone
from .store import embedded, fill, write_properties

SECONDS = 120.0
KEYS = 20_000
heavy = pytest.mark.heavy
slow = pytest.mark.timeout(3 * SECONDS)


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("etcd")
    with start("etcd", folder=folder / "servers") as servers:
        settings = {
            "plugin.backend": "etcd",
            "plugin.etcd.endpoints": servers.nodes[0].address,
        }
        file = write_properties(folder / "etcd.properties", settings)
        fill(file, KEYS)
        yield file


@contextmanager
def _started(
    words: Sequence[object], log: Path, **surroundings: str
) -> Iterator["subprocess.Popen[bytes]"]:
    with log.open("wb") as output:
        process = subprocess.Popen(
            list(map(str, words)), stdout=output, stderr=output, env=environment(**surroundings)
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def _kip30(*words: object) -> list[object]:
    return [sys.executable, "-m", "kip30", "pipeline", *words]


def _finished(words: Sequence[object], log: Path, **surroundings: str) -> int:
    with _started(words, log, **surroundings) as process:
        return process.wait(SECONDS * time_scale())


def _digest(run: Path) -> Any:
    manifest = read_manifest(run)
    assert manifest.done
    return manifest.digest


def _family(process: "subprocess.Popen[bytes]") -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


@pytest.mark.case("P37")
def test_no_jar_is_resolved(spark: SparkSession) -> None:
    context = spark.sparkContext
    settings = dict(context.getConf().getAll())
    assert not [name for name in settings if name.startswith("spark.jars") and settings[name]]
    assert context._jsc.sc().listJars().isEmpty()


def test_a_local_master_has_a_jvm_for_short_jobs(spark: SparkSession) -> None:
    options = spark.sparkContext.getConf().get("spark.driver.extraJavaOptions") or ""
    assert {"-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"} <= set(options.split())
    assert "log4j2.properties" in options


def test_workers_have_the_memory_pool_that_gives_back_what_is_freed(spark: SparkSession) -> None:
    chosen = os.environ.get("ARROW_DEFAULT_MEMORY_POOL", "system")

    def pool(_: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"name": [pa.default_memory_pool().backend_name]})

    frame = spark.range(1).mapInArrow(pool, "name string")
    assert {row.name for row in frame.collect()} == {chosen}


@pytest.mark.large
@slow
def test_ctrl_c_ends_every_process_and_leaves_a_run_to_resume(tmp_path: Path) -> None:
    file, run, log = embedded(tmp_path, KEYS), tmp_path / "run", tmp_path / "log"
    words = ("snapshot", file, "--out", run, "--span-rows", 20, "--master", "local[2]")
    with _started(_kip30(*words), log) as process:
        eventually(lambda: "spans, " in log.read_text(), within=SECONDS)
        family = _family(process)
        assert any("java" in one.name() for one in family)
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS * time_scale()) == Status.INTERRUPTED, log.read_text()
        # A child of a process that has ended may stay until the system notes its end.
        eventually(lambda: not [one for one in family if one.is_running()])
    assert "the same with --resume continues" in log.read_text()
    assert "Traceback" not in log.read_text()
    manifest = read_manifest(run)
    assert not manifest.done
    assert manifest.waves
    assert _finished(_kip30(*words, "--resume"), log) == Status.OK, log.read_text()
    assert _digest(run).rows == KEYS


@slow
@heavy
@pytest.mark.case("P36")
def test_all_masters_bring_the_same(tmp_path: Path, etcd: Path) -> None:
    runs = {name: tmp_path / name for name in ("local", "local-cluster", "standalone")}
    for name, master in (("local", "local[2]"), ("local-cluster", "local-cluster[2,1,1024]")):
        words = ("snapshot", etcd, "--out", runs[name], "--master", master)
        assert _finished(_kip30(*words), tmp_path / "log") == 0, (tmp_path / "log").read_text()
    bundle = write_bundle(tmp_path / "bundle")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    # Workers have only the code of kip30 that is sent to them: they do not see its folder.
    with standalone(tmp_path / "cluster", environment(PYTHONPATH="")) as master:
        archive, job = bundle.files
        submit = (HOME / "bin" / "spark-submit", "--master", master, "--py-files", archive, job)
        call = (*submit, "pipeline", "snapshot", etcd, "--out", runs["standalone"])
        log = tmp_path / "log"
        status = _finished(call, log, PYTHONPATH="", PYSPARK_PYTHON=sys.executable)
        assert status == 0, log.read_text()
    with connect_server(tmp_path / "connect", environment(PYSPARK_PYTHON=sys.executable)) as remote:
        runs["connect"] = tmp_path / "by-connect"
        words = ("snapshot", etcd, "--out", runs["connect"], "--remote", remote)
        assert _finished(_kip30(*words), tmp_path / "log") == 0, (tmp_path / "log").read_text()
    digests = {name: _digest(run) for name, run in runs.items()}
    assert digests["local"].rows == KEYS
    assert len(set(digests.values())) == 1, digests
    (source,) = {json.dumps(read_manifest(run).arguments["source"]) for run in runs.values()}
    assert source == json.dumps(str(etcd))


@slow
@heavy
@pytest.mark.case("P07")
def test_an_executor_that_is_killed_loses_nothing(tmp_path: Path, etcd: Path) -> None:
    run, log = tmp_path / "run", tmp_path / "log"
    words = ("snapshot", etcd, "--out", run, "--span-rows", 50, "--request-seconds", 30)
    with _started(_kip30(*words, "--master", "local-cluster[2,1,1024]"), log) as process:
        eventually(lambda: "spans, " in log.read_text(), within=SECONDS)
        executor, *_ = _executors(process)
        executor.kill()
        assert process.poll() is None
        assert process.wait(SECONDS * time_scale()) == 0, log.read_text()
    assert _digest(run).rows == KEYS


def _executors(process: "subprocess.Popen[bytes]") -> list[psutil.Process]:
    name = "CoarseGrainedExecutorBackend"
    return [one for one in _family(process) if any(name in word for word in _command(one))]


def _command(process: psutil.Process) -> list[str]:
    """Return the words of its command; none if the process has ended meanwhile."""
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []
