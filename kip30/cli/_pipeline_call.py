"""Shared code of the pipeline's commands: options, Spark session, and the end of a job."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import click

from kip30.cli import _output, _parameters
from kip30.cli._exit_codes import Status
from kip30.cli._failures import say
from kip30.cli._output import Output
from kip30.cli._pipeline_progress import shown
from kip30.cli._store_options import StoreChoice, opens_store
from kip30.errors import StoreError, UsageError
from kip30.pipeline.run.directory import check_usable, read_manifest
from kip30.pipeline.run.job_errors import JobFailedError
from kip30.pipeline.run.manifest import MANIFEST_NAME
from kip30.pipeline.run.report import JobEnding, Report
from kip30.pipeline.spark.settings import MASTER, settings_in, settings_of
from kip30.pipeline.spark.worker_config import is_shared, shipped
from kip30.pipeline.stores.config import StoreConfig
from kip30.pipeline.stores.endpoints import Endpoint, parse_endpoint

R = TypeVar("R")

_ENDINGS: Mapping[JobEnding, Status] = {
    JobEnding.DONE: Status.OK,
    JobEnding.FINDINGS: Status.REFUSED,
    JobEnding.INCOMPLETE: Status.INCOMPLETE,
}
_FINDING = ("outcome", "key", "detail")
_MOST_SHOWN = 20
_SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""Set by spark-submit, which then has decided on the master."""
_SCANNING_OPTIONS = ("request_seconds", "span_rows")


def job_module(name: str, remote: str | None = None) -> Any:
    """Return the module *name* of the pipeline.

    Raises:
        UsageError: What jobs run on is not installed, or does not fit.
    """
    import_module("kip30.pipeline.spark.requirements").check_requirements(java=remote is None)
    return import_module(f"kip30.pipeline.{name}")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCall:
    """The common options of jobs."""

    choice: StoreChoice
    out: Path | None
    resume: bool
    master: str | None
    remote: str | None
    output: Output
    request_seconds: float | None
    span_rows: int | None
    conf: tuple[str, ...]
    properties_file: Path | None

    def endpoint(self, text: str) -> Endpoint:
        """Return what *text* names, ready for the workers of the master.

        Raises:
            UsageError: There is no such store or snapshot, or workers could not reach it.
            ConfigError: Its configuration is wrong, or may not leave this machine.
        """
        found = self.here(text)
        return found if is_shared(self.master, self.remote) else shipped(found)

    def here(self, text: str) -> Endpoint:
        """Return what *text* names, as this process reads it."""
        is_chosen = text.removeprefix("raw:").partition("#")[0] == "-"
        return parse_endpoint(text, self._chosen() if is_chosen else None)

    def job(self, name: str) -> Any:
        """Return the module of the job *name*; raises as `job_module` does."""
        return job_module(name, self.remote)

    def options(self, options_class: Any, **own: object) -> Any:
        """Return the options of a job: its *own* ones, and those of the common ones that it has.

        Raises:
            UsageError: An option was given that this job has not, or --out was not given.
        """
        known = {field.name for field in fields(options_class)}
        if "out" in known and self.out is None:
            raise click.UsageError("Missing option '--out'.")
        if "out" not in known and (self.out is not None or self.resume):
            raise UsageError("this job makes no run: leave out --out and --resume")
        common = {"out": self.out, "resume": self.resume}
        given = {name: getattr(self, name) for name in _SCANNING_OPTIONS}
        for name, value in given.items():
            if value is not None and name not in known:
                raise UsageError(f"this job has no --{name.replace('_', '-')}")
        common |= {name: value for name, value in given.items() if value is not None}
        return options_class(
            **{name: value for name, value in common.items() if name in known}, **own
        )

    def run(self, job: Any, options: Any, finish: Callable[[Report], Report] | None = None) -> int:
        """Run *job* in a session of its own, write its report, and return the exit code.

        Args:
            job: The module of the job.
            options: Its options.
            finish: What else is determined once the job has ended.
        """
        self._check(options)
        try:
            report = self._run(job, options)
        except JobFailedError as error:
            raise StoreError(f"the Spark job failed: {error}") from error
        except KeyboardInterrupt:
            if self.out is not None:
                say("interrupted — the same with --resume continues")
            raise
        return self.end(finish(report) if finish else report)

    def end(self, report: Report) -> int:
        """Write and show *report*, and return the exit code."""
        if self.out is not None:
            self.out.mkdir(mode=0o700, parents=True, exist_ok=True)
            page = import_module("kip30.pipeline.run.report_files").write_report(self.out, report)
            if not self.output.is_objects:
                say(f"report: {page}")
        show_report(report, self.output)
        return _ENDINGS[report.ending]

    def _run(self, job: Any, options: Any) -> Report:
        session = self.job("spark.session").running_session(
            self.master,
            remote=self.remote,
            conf=settings_of(self.conf),
            properties_file=self.properties_file,
        )
        with session as spark, shown(self.output) as progress:
            try:
                report: Report = job.run(spark, options, progress)
            except Exception as error:
                reason = self.job("spark.session").why_ended()
                if not reason:
                    raise
                return self._stopped(reason, error)
            if report.ending is JobEnding.INCOMPLETE:
                reason = self.job("spark.session").why_ended()
                report = replace(report, reason=reason or report.reason)
        return report

    def _stopped(self, reason: str, error: Exception) -> Report:
        """Return the report on a run whose Spark session has ended, from the run's manifest.

        Raises:
            JobFailedError: There is no run yet.
        """
        if self.out is None or not (self.out / MANIFEST_NAME).exists():
            raise JobFailedError(reason) from error
        manifest = read_manifest(self.out)
        return Report.of(manifest, JobEnding.INCOMPLETE, reason=reason)

    def _check(self, options: Any) -> None:
        """Check the options and the run directory before Spark starts, which takes seconds."""
        if hasattr(options, "check"):
            options.check()
        if self.out is not None:
            check_usable(self.out, options.job, options.arguments(), resume=self.resume)

    def _chosen(self) -> StoreConfig:
        if self.choice.file and not (self.choice.backend or self.choice.settings):
            return StoreConfig.of_file(self.choice.file)
        # Each endpoint "-" reads the file.
        return StoreConfig.of_properties(self.choice.properties(may_wait=False))


def job_options(command: Callable[..., R]) -> Callable[..., R]:
    """Give *command* the common options, as its first argument, a `JobCall`."""

    @click.option(
        "--out",
        metavar="RUN",
        type=_parameters.FilePath(),
        help="Folder of the run: its data, manifest and report. It holds values: mode 0700.",
    )
    @click.option("--resume", is_flag=True, help="Continue the run in RUN.")
    @click.option(
        "--master",
        metavar="URL",
        help="Spark's master; else local[*], or the one that spark-submit was given.",
    )
    @click.option(
        "--remote", metavar="URL", help="Address of a Spark Connect server, instead of a master."
    )
    @click.option(
        "--request-seconds",
        metavar="NUMBER",
        type=_parameters.seconds,
        help="How long a request of a scan may take; else the operation timeout of the store.",
    )
    @click.option(
        "--span-rows",
        metavar="NUMBER",
        type=click.IntRange(min=1),
        help="About how many rows a span has, the unit of a resume.",
    )
    @click.option(
        "--conf",
        metavar="KEY=VALUE",
        multiple=True,
        help="A Spark setting, such as spark.driver.memory=2g; it overrides the file.",
    )
    @click.option(
        "--properties-file",
        metavar="FILE",
        type=_parameters.FilePath(),
        help="File with Spark settings, in the format of spark-submit's --properties-file.",
    )
    @_output.prints_records
    @opens_store
    @wraps(command)
    def with_call(choice: StoreChoice, *args: Any, **options: Any) -> R:
        common = {field.name: options.pop(field.name) for field in fields(JobCall)[1:]}
        return command(_checked(JobCall(choice=choice, **common)), *args, **options)

    return with_call


def _checked(call: JobCall) -> JobCall:
    if call.master and call.remote:
        raise click.UsageError("--master and --remote contradict each other: give one of them")
    if call.request_seconds == 0:
        raise click.UsageError("--request-seconds 0 is too short")
    call = _with_master(call)
    if _SUBMITTED in os.environ and not (call.master or call.remote):
        return replace(call, master=call.job("spark.session").submitted_master())
    return call


def _with_master(call: JobCall) -> JobCall:
    """Return *call* with the master that the settings of Spark's name, if it names none itself."""
    settings = {} if call.properties_file is None else settings_in(call.properties_file)
    settings |= settings_of(call.conf)
    if call.remote and settings:
        raise click.UsageError(
            "--remote takes no --conf and no --properties-file: its server has settings of its own"
        )
    return replace(call, master=call.master or settings.get(MASTER))


def show_report(report: Report, output: Output) -> None:
    """Print *report*: as an object, or its counts, and then its first findings if it has any."""
    counts = output.lines(("COUNT", "NUMBER"), widths=(16,), outlives_reader=True)
    counts.print(report.counts.items(), report.record)
    if output.is_objects:
        return
    if report.findings:
        findings = [
            [one.get(name, "") for name in _FINDING] for one in report.findings[:_MOST_SHOWN]
        ]
        titles = [name.upper() for name in _FINDING]
        output.lines(titles, outlives_reader=True).print(findings)
    if len(report.findings) > _MOST_SHOWN:
        say(f"and {len(report.findings) - _MOST_SHOWN} more findings, which the report names")
    _say_ending(report)


def _say_ending(report: Report) -> None:
    because = f": {report.reason}" if report.reason else ""
    advice = " — the same with --resume continues" if report.ending is JobEnding.INCOMPLETE else ""
    if report.ending is JobEnding.INCOMPLETE or because:
        say(f"{report.job} is {report.ending.value}{because}{advice}")
