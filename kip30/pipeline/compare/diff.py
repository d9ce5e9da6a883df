"""The job ``diff``: the keys whose values differ between two sides, stores or snapshots."""

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from pyspark.sql import DataFrame, SparkSession

from kip30.driver import Capability
from kip30.driver.scanning import Layout
from kip30.errors import Kip30Error, UsageError
from kip30.names import check_namespace
from kip30.pipeline.compare.comparison import LEFT, RIGHT, SIDES
from kip30.pipeline.compare.difference_files import summary_of
from kip30.pipeline.compare.frame_comparison import compared
from kip30.pipeline.compare.one_task import compare_in_one_task, fit_one_task
from kip30.pipeline.compare.rechecking import settled
from kip30.pipeline.compare.sides import DiffSide, ReadOptions, layout_at, open_side
from kip30.pipeline.run.directory import RunDirectory
from kip30.pipeline.run.job_errors import IncompleteRunError, JobFailedError
from kip30.pipeline.run.manifest import DIFF_JOB, DataFile
from kip30.pipeline.run.progress import NoProgress, Progress
from kip30.pipeline.run.report import MOST_FINDINGS, JobEnding, Report, conclude
from kip30.pipeline.spark.errors import translating
from kip30.pipeline.spark.session import shuffling
from kip30.pipeline.spark.source import SPAN_ROWS
from kip30.pipeline.spark.wave_files import only_wave, write_files
from kip30.pipeline.stores.config import StoreConfig
from kip30.pipeline.stores.endpoints import Endpoint, StoreEndpoint, require
from kip30.pipeline.transfer.snapshot_files import rejected_rows

JOB = DIFF_JOB
DIFFERENCES = "differences"


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffOptions:
    """Arguments of the job ``diff``.

    Attributes:
        left: Part of a store, or of a snapshot.
        right: The same.
        out: The folder of the run.
        into: The namespace that records of other programs are mapped to, as in an import. A diff
            of such records with keys of kip30's storage needs it.
        full: Whether values are compared, and not their digests. The run then holds all values.
        allow_empty: Whether it is no finding that neither side has a key, as it is after a mistake
            in the name of a namespace.
        resume: Whether to continue the run in *out*.
        span_rows: About how many rows a span has.
        request_seconds: How long a request of a scan may take.
    """

    left: Endpoint
    right: Endpoint
    out: Path
    into: str | None = None
    full: bool = False
    allow_empty: bool = False
    resume: bool = False
    span_rows: int = SPAN_ROWS
    request_seconds: float | None = None

    job: ClassVar[str] = JOB

    def arguments(self) -> dict[str, Any]:
        """Return what decides the result."""
        return {
            "left": self.left.text,
            "right": self.right.text,
            "into": self.into,
            "full": self.full,
            "span_rows": self.span_rows,
        }

    def check(self) -> None:
        """Raise if the two cannot be compared.

        Raises:
            UsageError: They have different layouts and there is no *into*, or *into* has nothing
                to map, or a folder is none of a snapshot.
            InvalidNameError: *into* cannot be a namespace.
            UnsupportedError: A store does not offer scanning.
            StoreError: The manifest of a snapshot cannot be read.
            ConfigError: The configuration of a store is wrong.
        """
        check_layouts(layout_at(self.left), layout_at(self.right), self.into)
        for side in (self.left, self.right):
            require(side, Capability.SCANNING)

    def reading(self) -> ReadOptions:
        """Return how the sides are read."""
        return ReadOptions(
            into=self.into,
            full=self.full,
            span_rows=self.span_rows,
            request_seconds=self.request_seconds,
        )


def run(spark: SparkSession, options: DiffOptions, progress: Progress | None = None) -> Report:
    """Compare two sides key by key.

    The differences are empty if and only if both sides have the same keys with the same values,
    each side as of its reading. A key of a live store that differs is read again on both sides:
    it is reported as different only if it still differs at unchanged versions, otherwise as
    unsettled. A key that one side alone has is unsettled if something that the other side rejected
    may hide it. Raw views are not read again: where a scan is not of one moment, their keys that
    changed after the position are unsettled. Versions, times and owners are not compared.

    The ending is `JobEnding.DONE` if there is no difference, nothing that could not be read, and
    anything that could be compared.

    Raises:
        UsageError: The two have different layouts and there is no *into*, or *into* has nothing to
            map; or the folder cannot be used. Nothing was read.
        StoreError: A snapshot is not whole. Nothing was read.
        Kip30Error: A store cannot be read.
    """
    options.check()
    arguments = options.arguments()
    with RunDirectory(options.out, JOB, arguments, resume=options.resume) as directory:
        return _Diff(spark, options, directory).run(progress or NoProgress())


def check_layouts(left: Layout, right: Layout, into: str | None) -> None:
    """Return if records of the two layouts can be compared.

    Raises:
        UsageError: They need a mapping and have none, or the other way round.
        InvalidNameError: *into* cannot be a namespace.
    """
    if into is not None:
        check_namespace(into)
        if Layout.RAW not in {left, right}:
            raise UsageError("--into maps what is raw: neither of the two sides is")
    elif left is not right:
        raise UsageError(
            f"the left side is {left.value} and the right side is {right.value}:"
            " name the namespace that the raw side is mapped to with --into"
        )


class _Compared(NamedTuple):
    """The result of a comparison.

    Attributes:
        files: The files of the differences.
        counts: What `DiffSide.counts` returns, of each side.
        rejected: Each returns up to `MOST_FINDINGS` rejected rows of a side, as findings.
    """

    files: tuple[DataFile, ...]
    counts: Mapping[str, Mapping[str, int]]
    rejected: Mapping[str, Callable[[], list[dict[str, str]]]]


class _Diff:
    """One run of the job."""

    def __init__(self, spark: SparkSession, options: DiffOptions, directory: RunDirectory) -> None:
        self._spark = spark
        self._options = options
        self._run = directory
        self._sides: dict[str, DiffSide] = {}

    def run(self, progress: Progress) -> Report:
        manifest = self._run.manifest
        with ExitStack() as open_sides:
            for name, endpoint in self._endpoints().items():
                folder = self._run.path / name
                side = open_side(self._spark, self._options.reading(), endpoint, folder)
                open_sides.callback(side.close)
                self._sides[name] = side
            self._begin()
            doing = ""
            try:
                for name, side in self._sides.items():
                    doing = f"{name} side: "
                    side.read(progress)
                doing = "comparison: "
                findings = self._compare()
            except (IncompleteRunError, Kip30Error, JobFailedError) as error:
                return Report.of(manifest, JobEnding.INCOMPLETE, reason=f"{doing}{error}")
        ending = JobEnding.FINDINGS if findings else JobEnding.DONE
        return conclude(self._run, Report.of(manifest, ending, findings))

    def _endpoints(self) -> Mapping[str, Endpoint]:
        return {LEFT: self._options.left, RIGHT: self._options.right}

    def _begin(self) -> None:
        """Take both positions before anything is read, so that they are close to each other."""
        for side in self._sides.values():
            side.begin()
        self._run.manifest.source = {name: side.facts for name, side in self._sides.items()}
        self._run.save()

    def _compare(self) -> list[dict[str, str]]:
        """Find the differences, in one job of Spark, write them down, and return some."""
        begun = time.monotonic()
        rows = sum(side.rows for side in self._sides.values())
        with translating(), shuffling(self._spark, rows):
            found = self._in_one_task() or self._in_frames()
            kinds, findings = summary_of(self._run.path, found.files)
            self._run.manifest.counts = kinds | _named(found.counts)
            seconds = time.monotonic() - begun
            self._run.manifest.waves = [only_wave(found.files, sum(kinds.values()), seconds)]
            for name in SIDES:
                if found.counts[name]["rejected"]:
                    findings += found.rejected[name]()
            return [*self._nothing_compared(), *findings][:MOST_FINDINGS]

    def _in_one_task(self) -> "_Compared | None":
        """Compare by `table_comparison`; None if the sides are not small, or not as in files."""
        sides = {name: side.files for name, side in self._sides.items()}
        found = {name: files for name, files in sides.items() if files is not None}
        counts = {name: side.all_counts for name, side in self._sides.items()}
        rows = sum(one["rows"] + one["rejected"] for one in counts.values())
        if self._options.full or len(found) < len(sides) or not fit_one_task(found, rows):
            return None
        files = compare_in_one_task(self._spark, self._run, DIFFERENCES, found, self._stores())
        return _Compared(files, counts, {name: one.rejected for name, one in found.items()})

    def _in_frames(self) -> "_Compared":
        """Compare by `frame_comparison`."""
        tables = {name: side.table() for name, side in self._sides.items()}
        files = write_files(self._run, DIFFERENCES, 0, self._differences(tables))
        counts = {name: side.counts(tables[name]) for name, side in self._sides.items()}
        rejected = {name: partial(rejected_rows, table) for name, table in tables.items()}
        return _Compared(files, counts, rejected)

    def _nothing_compared(self) -> list[dict[str, str]]:
        """Return a finding if no side has a record: that proves nothing about them."""
        counts = self._run.manifest.counts
        if self._options.allow_empty or any(counts[f"{side}_rows"] for side in SIDES):
            return []
        advice = "check the namespaces, or give --allow-empty"
        return [{"key": "", "outcome": "empty", "detail": f"neither side has a key: {advice}"}]

    def _differences(self, tables: Mapping[str, DataFrame]) -> DataFrame:
        left, right = (
            tables[name].where(tables[name]["skipped"].isNull()).drop("skipped") for name in SIDES
        )
        found = compared(
            left,
            right,
            full=self._options.full,
            hidden={name: side.prefixes(tables[name]) for name, side in self._sides.items()},
            raw=self._raw(),
        )
        return settled(found, self._stores())

    def _raw(self) -> frozenset[str]:
        return frozenset(name for name, side in self._sides.items() if side.layout is Layout.RAW)

    def _stores(self) -> dict[str, StoreConfig]:
        """Return the sides whose keys can be read again."""
        return {
            name: endpoint.config
            for name, endpoint in self._endpoints().items()
            if isinstance(endpoint, StoreEndpoint) and endpoint.layout is Layout.KIP30
        }


def _named(counts: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    return {f"{side}_{name}": number for side, of in counts.items() for name, number in of.items()}
