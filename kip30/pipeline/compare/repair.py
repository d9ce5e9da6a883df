"""The job ``repair``: make the right side of a diff, a store, like the left one."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from typing import Any, ClassVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from kip30.driver.records import Fence
from kip30.errors import Kip30Error, UsageError
from kip30.pipeline.compare.comparison import LEFT, RIGHT, SIDES, UNSETTLED
from kip30.pipeline.compare.repair_plan import (
    ACTIONS,
    DELETE,
    DiffFound,
    count_actions,
    find_diff,
    plan_of,
    read_plan,
)
from kip30.pipeline.compare.repair_writes import (
    with_values_of_rows,
    with_values_of_store,
    write_plan,
)
from kip30.pipeline.run.directory import RunDirectory
from kip30.pipeline.run.job_errors import IncompleteRunError, JobFailedError
from kip30.pipeline.run.manifest import DataFile
from kip30.pipeline.run.progress import NoProgress, Progress
from kip30.pipeline.run.report import MOST_FINDINGS, JobEnding, Report, conclude
from kip30.pipeline.spark.bulk_write import (
    OUTCOMES,
    BulkWrite,
    check_whole,
    outcome_counts,
    outcome_findings,
)
from kip30.pipeline.spark.errors import translating
from kip30.pipeline.spark.session import slots
from kip30.pipeline.spark.wave_files import only_wave, read_parquet, write_files
from kip30.pipeline.stores.endpoints import StoreEndpoint
from kip30.pipeline.stores.identity import identity_text
from kip30.pipeline.write.outcomes import WriteOutcome
from kip30.pipeline.write.run_leader import RunLeader, drive_fenced

JOB = "repair"
_PLAN = "plan"
_OUTCOMES = "outcomes"
_ATTEMPTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairOptions:
    """Arguments of the job ``repair``.

    Attributes:
        diff: The folder of a diff that is done.
        out: The folder of the run.
        apply: Whether to write to the store. Without it only the plan is written to files.
        delete_extra: Whether to delete keys that only the right side has; with *apply* and *plan*.
        plan: The folder of a repair of the same diff without *apply*: exactly its plan is followed.
        resume: Whether to continue the run in *out*.
        rate: How many writes a second all tasks together may do; None: as many as they can.
        fence: Whether a former driver of this run can write nothing once another has begun.
    """

    diff: Path
    out: Path
    apply: bool = False
    delete_extra: bool = False
    plan: Path | None = None
    resume: bool = False
    rate: float | None = None
    fence: bool = True

    job: ClassVar[str] = JOB

    def arguments(self) -> dict[str, Any]:
        """Return what decides the result."""
        return {
            "diff": str(self.diff.absolute()),
            "apply": self.apply,
            "delete_extra": self.delete_extra,
            "plan": None if self.plan is None else str(self.plan.absolute()),
        }

    def check(self) -> None:
        """Raise if these contradict each other.

        Raises:
            UsageError: They do; the message says what to write. Or the diff cannot be repaired.
            UnsupportedError: The right side cannot compare and set.
            StoreError: Files of the diff are missing or damaged.
        """
        if self.rate is not None and not self.rate > 0:
            raise UsageError(f"a rate of {self.rate} writes a second: give more than 0")
        if self.plan is not None and not self.apply:
            raise UsageError("--plan names the plan to follow: give --apply, too")
        if self.delete_extra and self.plan is None:
            raise UsageError(
                "--delete-extra deletes what the plan of a dry run says: give --apply and --plan"
            )
        find_diff(self.diff)


def run(spark: SparkSession, options: RepairOptions, progress: Progress | None = None) -> Report:
    """Plan, or write, the changes that make the right side like the left one.

    Every write is done only if the right side still has the version that the diff saw, or still
    does not have the key; and only the value that the diff saw on the left side is written. A key
    that changed since on either side, or that the left side cannot read by now, is a *conflict*,
    and stays as it is. Unsettled keys are left alone. A raw store on the left side is scanned again
    before the first write, so a change there during the writes is not seen.

    The ending is `JobEnding.DONE` if the sides were equal or, as far as the diff can tell, are now.
    A record that the diff could not read is a finding, because it was not compared.

    Raises:
        UsageError: The arguments contradict each other; the diff is not done, or of something that
            cannot be repaired, or of other stores than its files name by now, or another one than
            the run was begun with. Nothing was written.
        UnsupportedError: The store cannot compare and set, or not fence. Nothing was written.
        StoreError: Files of the diff or of the snapshot are damaged. Nothing was written.
        NotElectedError: Another process runs this repair. Nothing was written.
        Kip30Error: A store cannot be used. Nothing was written.
    """
    options.check()
    found = find_diff(options.diff)
    with RunDirectory(options.out, JOB, options.arguments(), resume=options.resume) as directory:
        job = _Repair(spark, options, found, directory)
        (progress or NoProgress()).begin(directory.manifest)
        return job.apply() if options.apply else job.plan()


class _Repair:
    """One run of the job."""

    def __init__(
        self,
        spark: SparkSession,
        options: RepairOptions,
        found: DiffFound,
        directory: RunDirectory,
    ) -> None:
        self._spark = spark
        self._options = options
        self._diff = found
        self._run = directory
        self._left = directory.path / LEFT
        self._begun = time.monotonic()
        self._unsettled = found.manifest.counts[UNSETTLED]
        _check_resumed(directory, found)
        directory.manifest.source = {
            "diff": found.manifest.run,
            "is_plan": not options.apply,
            LEFT: found.manifest.source[LEFT],
            RIGHT: found.manifest.source[RIGHT],
        }
        directory.save()

    def plan(self) -> Report:
        with translating():
            rows = plan_of(self._diff.differences(self._spark))
            files = write_files(self._run, _PLAN, 0, rows)
            plan = read_parquet(self._spark, self._run.path, files, rows.schema)
            findings = [
                {"key": row.key, "outcome": row.action, "detail": "planned"}
                for row in plan.limit(MOST_FINDINGS).collect()
            ]
            return self._done(files, count_actions(plan), findings)

    def apply(self) -> Report:
        self._diff.check_stores()
        with translating():
            planned = self._planned()
            actions = count_actions(planned)
            extra = 0 if self._options.delete_extra else actions.pop(DELETE)
        counts = actions | {"extra": extra}
        config, run = self._diff.right.config, self._run.manifest.run
        with drive_fenced(config, run, self._right, fence=self._options.fence) as leader:
            try:
                files, outcomes, found = self._written(planned, leader)
                check_whole(self._run.path, found, sum(actions.values()))
            except (Kip30Error, IncompleteRunError, JobFailedError) as error:
                return self._incomplete(str(error))
        counts |= {outcome.value: found[outcome.value] for outcome in WriteOutcome}
        if counts["fenced"] or counts["unknown"]:
            self._run.manifest.counts = counts
            return self._incomplete(f"{counts['fenced']} fenced, {counts['unknown']} unknown")
        return self._done(files, counts, outcome_findings(outcomes))

    @property
    def _right(self) -> str:
        """The identity of the right side when it was compared."""
        facts = self._diff.manifest.source[RIGHT]
        return identity_text(facts["store"], facts["position"][0], facts["namespace"])

    def _planned(self) -> DataFrame:
        if self._options.plan is None:
            return plan_of(self._diff.differences(self._spark))
        return read_plan(self._spark, self._options.plan, self._diff)

    def _written(
        self, planned: DataFrame, leader: RunLeader | None
    ) -> tuple[tuple[DataFile, ...], DataFrame, dict[str, int]]:
        """Return the files of the outcomes, their rows, and the number of each outcome.

        If the session of this process was lost meanwhile, all of it is repeated with the fence of
        the next term, which changes nothing that was written.
        """
        attempt = 1
        while True:
            files = self._write(planned, None if leader is None else leader.fence())
            outcomes = read_parquet(self._spark, self._run.path, files, OUTCOMES)
            found = outcome_counts(outcomes)
            if not found["fenced"] or attempt == _ATTEMPTS:
                return files, outcomes, found
            attempt += 1

    def _write(self, planned: DataFrame, fence: Fence | None) -> tuple[DataFile, ...]:
        tasks = slots(self._spark)
        writing = BulkWrite(
            target=self._diff.right.config,
            run=self._run.manifest.run,
            fence=fence,
            rate=self._options.rate,
            slots=tasks,
        )
        if not self._options.delete_extra:
            planned = planned.where(f.col("action") != DELETE)
        try:
            with translating():
                rows = self._with_values(planned.repartition(tasks, "key"))
                return write_files(self._run, _OUTCOMES, 0, writing.outcomes(rows, write_plan))
        finally:
            rmtree(self._left, ignore_errors=True)

    def _with_values(self, planned: DataFrame) -> DataFrame:
        """Return *planned* with values, and the reason why a key is not as the diff saw it.

        Keys of a raw store cannot be read one by one, so all of it is scanned again.
        """
        left = self._diff.left
        if isinstance(left, StoreEndpoint) and self._diff.into is None:
            return with_values_of_store(planned, left.config)
        rmtree(self._left, ignore_errors=True)  # of a process that was killed: it is too old
        return with_values_of_rows(planned, self._diff.left_now(self._spark, self._left))

    def _done(
        self,
        files: tuple[DataFile, ...],
        counts: Mapping[str, int],
        findings: list[dict[str, str]],
    ) -> Report:
        manifest = self._run.manifest
        rows = sum(counts.get(action, 0) for action in ACTIONS)
        manifest.waves = [only_wave(files, rows, time.monotonic() - self._begun)]
        unread = {f"{side}_rejected": self._unread(side) for side in SIDES}
        manifest.counts = {**counts, UNSETTLED: self._unsettled, **unread}
        found = [*self._findings_of_diff(), *findings][:MOST_FINDINGS]
        is_left = found or self._unsettled or counts.get("extra")
        ending = JobEnding.FINDINGS if is_left else JobEnding.DONE
        return conclude(self._run, Report.of(manifest, ending, found))

    def _unread(self, side: str) -> int:
        """Return how many records the diff could not read on *side*, or has no key for."""
        return self._diff.manifest.counts.get(f"{side}_rejected", 0)

    def _findings_of_diff(self) -> Iterator[dict[str, str]]:
        """Yield a finding for each side with records that the diff could not compare."""
        for side in SIDES:
            if number := self._unread(side):
                detail = f"{number} on the {side} side could not be compared: see the diff's report"
                yield {"key": "", "outcome": "rejected", "detail": detail}

    def _incomplete(self, reason: str) -> Report:
        return Report.of(self._run.manifest, JobEnding.INCOMPLETE, reason=reason)


def _check_resumed(directory: RunDirectory, found: DiffFound) -> None:
    """Require that *found* is the diff with which the run in *directory* was begun, if it was.

    Raises:
        UsageError: It is another one.
    """
    begun_with = directory.manifest.source.get("diff", found.manifest.run)
    if begun_with != found.manifest.run:
        raise UsageError(
            f"{directory.path} repairs what diff {begun_with} has found, and the folder named"
            f" holds diff {found.manifest.run}: begin a new run, without --resume"
        )
