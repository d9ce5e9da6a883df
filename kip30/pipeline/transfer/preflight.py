"""The job ``preflight``: a check that another job would work, by reading alone."""

import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from kip30.driver.scanning import Layout, View
from kip30.errors import Kip30Error
from kip30.pipeline.run.job_errors import JobFailedError
from kip30.pipeline.run.progress import NoProgress, Progress
from kip30.pipeline.run.report import MOST_FINDINGS, JobEnding, Report
from kip30.pipeline.spark.errors import translating
from kip30.pipeline.spark.session import register, slots
from kip30.pipeline.spark.source import FORMAT, ScanOptions
from kip30.pipeline.spark.worker_config import is_shared, shipped_config
from kip30.pipeline.stores.config import StoreConfig
from kip30.pipeline.stores.endpoints import Endpoint, SnapshotEndpoint, StoreEndpoint
from kip30.pipeline.stores.same_store import is_same_store
from kip30.pipeline.transfer.snapshot_files import SnapshotFiles, rejected_rows
from kip30.runtime.resolution import scanner

JOB = "preflight"
_ANSWER = "host string, pid bigint, what string, detail string"
_CONNECTED = "connected"

Finding = dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PreflightOptions:
    """The arguments of the coming job.

    Attributes:
        source: The endpoint that it reads.
        target: The store that it writes to, if any.
        master: The master of the session, as for `open_session`.
        remote: The Spark Connect server, as for `open_session`.
        request_seconds: How long a request may take.
    """

    source: Endpoint
    target: StoreEndpoint | None = None
    master: str | None = None
    remote: str | None = None
    request_seconds: float | None = None


def run(spark: SparkSession, options: PreflightOptions, progress: Progress | None = None) -> Report:
    """Look for problems of the job, and report them as findings. Nothing is written."""
    return _Preflight(spark, options, progress or NoProgress()).run()


class _Preflight:
    """One run of the job."""

    def __init__(self, spark: SparkSession, options: PreflightOptions, progress: Progress) -> None:
        self._spark = spark
        self._options = options
        self._progress = progress
        self._findings: list[Finding] = []
        self._counts: dict[str, int] = {}
        self._facts: dict[str, Any] = {"slots": slots(spark)}

    def run(self) -> Report:
        source, target = self._options.source, self._options.target
        self._check_same(source, target)
        reachable = [self._check_store(one) for one in (source, target) if one is not None]
        if all(reachable):
            self._check_records()
        return Report(
            job=JOB,
            run="",
            ending=JobEnding.FINDINGS if self._findings else JobEnding.DONE,
            counts=self._counts,
            facts=self._facts,
            findings=self._findings[:MOST_FINDINGS],
        )

    def _note(self, key: str, outcome: str, detail: object) -> None:
        self._findings.append({"key": key, "outcome": outcome, "detail": str(detail)})

    def _check_same(self, source: Endpoint, target: StoreEndpoint | None) -> None:
        if target is None or isinstance(source, SnapshotEndpoint):
            return
        if source.layout is not Layout.RAW and is_same_store(source.config, target.config):
            self._note(target.text, "same-store", f"is the same store as {source.text}")

    def _check_store(self, endpoint: Endpoint) -> bool:
        """Return whether *endpoint* can be read from everywhere, or note why not."""
        if isinstance(endpoint, SnapshotEndpoint):
            return self._check_snapshot(endpoint)
        config = self._travelling(endpoint)
        return config is not None and self._connects(endpoint) and self._reaches(endpoint, config)

    def _check_snapshot(self, endpoint: SnapshotEndpoint) -> bool:
        try:
            SnapshotFiles(self._spark, endpoint)
        except Kip30Error as error:
            self._note(endpoint.text, "snapshot", error)
            return False
        return True

    def _travelling(self, endpoint: StoreEndpoint) -> StoreConfig | None:
        """Return the configuration as workers get it, or note why they cannot have it."""
        if is_shared(self._options.master, self._options.remote):
            return endpoint.config
        try:
            return shipped_config(endpoint.config)
        except Kip30Error as error:
            self._note(endpoint.text, "configuration", error)
            return None

    def _connects(self, endpoint: StoreEndpoint) -> bool:
        """Open the store here, and note its facts."""
        try:
            with scanner(
                endpoint.config.properties(),
                endpoint.view(),
                request_seconds=self._options.request_seconds,
            ) as store:
                # A store that must be copied first has no position without a place for the copy.
                identity = None if store.needs_scratch else store.position().store
                consistency = store.consistency.value
        except Kip30Error as error:
            self._note(endpoint.text, "driver", error)
            return False
        backend = endpoint.config.resolve().choice.backend
        known = [one.get("identity") for one in self._facts.values() if isinstance(one, dict)]
        self._facts[endpoint.text] = {
            "store": backend.name,
            "identity": identity,
            "consistency": consistency,
            "value_bytes": backend.limits.value_bytes,
        }
        if identity is not None and identity in known:
            self._progress.warn(f"{endpoint.text} is on the same servers as the source")
        return True

    def _reaches(self, endpoint: StoreEndpoint, config: StoreConfig) -> bool:
        """Open the store from every slot at the same time; note those where that fails."""
        number = slots(self._spark)
        seconds = self._options.request_seconds

        def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for _ in batches:
                pass
            yield _answer(config, endpoint.view(), seconds)

        try:
            with translating():
                # A barrier runs all tasks at once: each slot has one.
                tasks = self._spark.range(0, number, 1, number)
                answers = tasks.mapInArrow(look, _ANSWER, barrier=True).collect()
        except (Kip30Error, JobFailedError) as error:
            self._note(endpoint.text, "slot", error)
            return False
        for host, pid, what, detail in answers:
            if what != _CONNECTED:
                self._note(endpoint.text, what, f"{host}, process {pid}: {detail}")
        connected = sum(answer[2] == _CONNECTED for answer in answers)
        self._counts["slots_connected"] = self._counts.get("slots_connected", 0) + connected
        return bool(connected == len(answers))

    def _check_records(self) -> None:
        """Read the source once: count it, and note keys and values that cannot be copied."""
        try:
            with translating():
                rows = self._rows()
                rejected = f.col("rejected").isNotNull()
                (found,) = rows.agg(
                    f.count_if(~rejected).alias("rows"), f.count_if(rejected).alias("rejected")
                ).collect()
                self._counts |= found.asDict()
                if found["rejected"]:
                    self._findings += rejected_rows(self._rows())
                self._check_limits()
        except (Kip30Error, JobFailedError) as error:
            self._note(self._options.source.text, "scan", error)

    def _check_limits(self) -> None:
        if self._options.target is None:
            return
        limit = self._options.target.config.resolve().choice.backend.limits.value_bytes
        # With a DataFrame of its own: one that was read is not read once more.
        rows = self._rows()
        name = f.col("path" if "path" in rows.columns else "key")
        size = f.octet_length("value")
        large = rows.where(f.col("rejected").isNull() & (size > limit))
        found = large.select(name, size).limit(MOST_FINDINGS).collect()
        self._counts["too_large"] = len(found)
        for key, number in found:
            text = key if isinstance(key, str) else bytes(key).decode(errors="backslashreplace")
            self._note(text, "too-large", f"{number} bytes; the target takes {limit}")

    def _rows(self) -> DataFrame:
        source = self._options.source
        if isinstance(source, SnapshotEndpoint):
            return SnapshotFiles(self._spark, source).rows()
        config = self._travelling(source) or source.config
        scan = ScanOptions(config, source.view(), request_seconds=self._options.request_seconds)
        register(self._spark)
        return self._spark.read.format(FORMAT).options(**scan.texts()).load()


def _answer(config: StoreConfig, view: View, seconds: float | None) -> pa.RecordBatch:
    """Return the findings of a worker, as a row of `_ANSWER`."""
    what, detail = _looked(config, view, seconds)
    row = {"host": socket.gethostname(), "pid": os.getpid(), "what": what, "detail": detail}
    return pa.RecordBatch.from_pylist([row])


def _looked(config: StoreConfig, view: View, seconds: float | None) -> tuple[str, str]:
    try:
        missing = _unreadable(config)
        if missing is not None:
            return "file", missing
        with scanner(config.properties(), view, request_seconds=seconds) as store:
            if not store.needs_scratch:
                store.position()
    except Kip30Error as error:
        return "worker", f"{type(error).__name__}: {error}"
    return _CONNECTED, ""


def _unreadable(config: StoreConfig) -> str | None:
    """Return why a file cannot be used that the settings name, such as those of TLS."""
    settings = config.resolve().settings
    for field in fields(settings):
        value = getattr(settings, field.name)
        if isinstance(value, Path) and not value.is_dir() and not os.access(value, os.R_OK):
            return f"{value} is not there, or cannot be read ({field.name})"
    return None
