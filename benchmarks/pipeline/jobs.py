"""The jobs end to end: ``python -m benchmarks.pipeline.jobs [--keys N] [--slots N] [--json FILE]``.

Fills an etcd of its own, takes a snapshot, restores it into an embedded store, compares the two,
and restores once more, which writes nothing. Then it takes a snapshot of the embedded store. Prints
the seconds and rows per second of each job, those of the plain loop over the scanner, the applier's
speed (see `applying`), and the most memory that the driver's Python and any worker had.
"""

import argparse
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Self

import psutil
from pyspark.sql import SparkSession

from benchmarks.dataset import fill
from benchmarks.pipeline import applying
from benchmarks.store_address import EMBEDDED, StoreAddress, scratch
from kip30 import PluginLocator
from kip30.driver.scanning import View
from kip30.pipeline.compare import diff
from kip30.pipeline.run.report import JobEnding
from kip30.pipeline.spark.session import close_session, open_session
from kip30.pipeline.stores.endpoints import (
    SnapshotEndpoint,
    parse_endpoint,
    store_endpoint,
    target_endpoint,
)
from kip30.pipeline.transfer import restore_and_migrate, snapshot
from kip30.runtime.resolution import scanner
from kip30_conformance.servers import start

_MEGABYTE = 1024 * 1024


class Memory:
    """The most memory that this process and Spark's workers were seen with, in bytes."""

    def __init__(self) -> None:
        self.driver = self.worker = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        me = psutil.Process()
        while not self._over.wait(0.2):
            self.driver = max(self.driver, me.memory_info().rss)
            for child in me.children(recursive=True):
                try:
                    if "pyspark.daemon" in child.cmdline():
                        self.worker = max(self.worker, child.memory_info().rss)
                except psutil.NoSuchProcess:
                    continue


@dataclass(slots=True, kw_only=True)
class JobResults:
    """The measured values.

    Attributes:
        keys: How many keys the stores had.
        slots: How many tasks Spark ran at a time.
        seconds: How long each job took.
        ratios: How fast a job was, as a multiple of another one.
        megabytes: The most memory of one process.
    """

    keys: int
    slots: int
    seconds: dict[str, float] = field(default_factory=dict[str, float])
    ratios: dict[str, float] = field(default_factory=dict[str, float])
    megabytes: dict[str, float] = field(default_factory=dict[str, float])

    def time(self, name: str, job: Callable[[], object]) -> None:
        """Run *job* and print its speed."""
        begun = time.monotonic()
        job()
        self.seconds[name] = seconds = time.monotonic() - begun
        print(f"{name:36} {seconds:8.1f} s {self.keys / seconds:10,.0f} rows/s", flush=True)

    def compare(self, name: str, job: str, other: str) -> None:
        """Print how fast *job* was, as a multiple of *other*."""
        self.note(name, self.seconds[other] / self.seconds[job])

    def note(self, name: str, ratio: float) -> None:
        """Print a ratio."""
        self.ratios[name] = ratio
        print(f"{name:36} {ratio:8.2f} x", flush=True)


def measure(spark: SparkSession, folder: Path, files: dict[str, Path], results: JobResults) -> None:
    """Run all jobs."""
    source, target = (target_endpoint(parse_endpoint(str(file))) for file in files.values())
    taken = SnapshotEndpoint("s", folder / "s", "")

    def restored(out: str) -> None:
        options = restore_and_migrate.RestoreOptions(source=taken, target=target, out=folder / out)
        assert restore_and_migrate.run(spark, options).ending is JobEnding.DONE

    def compared() -> None:
        options = diff.DiffOptions(left=source, right=target, out=folder / "diff")
        assert diff.run(spark, options).ending is JobEnding.DONE

    _warm_up(spark, files["etcd"], folder / "w")
    _measure_snapshot(spark, "etcd", files["etcd"], taken.folder, results)
    results.time("restore into embedded", lambda: restored("r1"))
    results.time("diff", compared)
    results.time("restore, again", lambda: restored("r2"))
    results.compare("restore, again / first", "restore, again", "restore into embedded")
    _measure_snapshot(spark, "embedded", files["embedded"], folder / "e", results)


def _warm_up(spark: SparkSession, file: Path, out: Path) -> None:
    """Take a snapshot of a small part: the first job of a session takes ten seconds more."""
    source = store_endpoint(parse_endpoint(f"{file}#team-00"))
    snapshot.run(spark, snapshot.SnapshotOptions(source=source, out=out))


def _measure_snapshot(
    spark: SparkSession, store: str, file: Path, out: Path, results: JobResults
) -> None:
    source = store_endpoint(parse_endpoint(str(file)))
    options = snapshot.SnapshotOptions(source=source, out=out)
    results.time(f"snapshot, {store}", lambda: snapshot.run(spark, options))


def measure_loops(files: dict[str, Path], results: JobResults) -> None:
    """Read both stores without Spark."""
    for store, file in files.items():
        loop = f"plain loop, {store}"
        results.time(loop, partial(_read, file))
        results.compare(f"snapshot / plain loop, {store}", f"snapshot, {store}", loop)


def measure_applier(files: dict[str, Path], results: JobResults) -> None:
    """Measure the applier on both stores, with far fewer keys: each round writes them twice."""
    for store, file in files.items():
        found = applying.measure(file, max(results.keys // 25, 1_000))
        for name, ratio in found._asdict().items():
            text = f"applier {name.replace('_', ' ')}, {store}"
            results.note(text, ratio.wall)
            results.note(f"{text}, CPU time", ratio.cpu)


def _read(file: Path) -> None:
    with scanner(file, View()) as store:
        at = store.position()
        for span in store.plan(at, 20_000):
            for _ in store.scan(span, at):
                pass


def _fill(file: Path, keys: int) -> None:
    """Fill a store from another process, because the memory of this one is measured."""
    process = get_context("spawn").Process(target=_fill_here, args=(file, keys))
    process.start()
    process.join()
    assert process.exitcode == 0


def _fill_here(file: Path, keys: int) -> None:
    with PluginLocator().startup(file) as locator:
        fill(locator, keys)


@contextmanager
def _stores(folder: Path) -> Iterator[dict[str, Path]]:
    (folder / "embedded").mkdir(mode=0o700)
    (folder / "etcd").mkdir()
    embedded = StoreAddress(EMBEDDED, str(folder / "embedded")).settings()
    with start("etcd", folder=folder / "etcd") as servers:
        files: dict[str, Path] = {}
        for name, values in (("etcd", servers.settings()), (EMBEDDED, embedded)):
            files[name] = folder / f"{name}.properties"
            files[name].write_text("".join(f"{key}={value}\n" for key, value in values.items()))
        yield files


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--slots", type=int, default=2)
    parser.add_argument("--json", type=Path, help="a file for the results, for `plot`")
    chosen = parser.parse_args()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    results = JobResults(keys=chosen.keys, slots=chosen.slots)
    with scratch() as folder, _stores(folder) as files:
        results.time("fill etcd", lambda: _fill(files["etcd"], chosen.keys))
        with Memory() as memory:
            spark = open_session(f"local[{chosen.slots}]")
            try:
                measure(spark, folder, files, results)
            finally:
                close_session(spark)
        results.megabytes = {
            "driver": memory.driver / _MEGABYTE,
            "worker": memory.worker / _MEGABYTE,
        }
        for process, size in results.megabytes.items():
            print(f"{process + ', most memory':36} {size:8.0f} MB")
        measure_loops(files, results)
        measure_applier(files, results)
    if chosen.json is not None:
        chosen.json.write_text(f"{json.dumps(asdict(results), indent=1)}\n")


if __name__ == "__main__":
    main()
