"""``kip30 pipeline``: the Spark jobs.

Spark is imported when a job begins, and a job checks all of its arguments before Spark starts.
"""

from collections.abc import Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from kip30.cli import _output, _parameters
from kip30.cli._exit_codes import Status
from kip30.cli._failures import say
from kip30.cli._groups import Commands
from kip30.cli._output import Output, Row
from kip30.cli._pipeline_call import JobCall, job_module, job_options
from kip30.driver.scanning import Layout
from kip30.errors import UsageError
from kip30.pipeline.run.manifest import MANIFEST_NAME
from kip30.pipeline.stores.endpoints import (
    Endpoint,
    SnapshotEndpoint,
    StoreEndpoint,
    store_endpoint,
    target_endpoint,
)
from kip30.pipeline.stores.foreign_hint import with_hint
from kip30.pipeline.stores.same_store import is_same_store

_NAMED = ("NAME", "VALUE")
_left = click.argument("a")
_right = click.argument("b")
_into = click.option(
    "--into", metavar="NAMESPACE", help="Where the keys of a raw source go; required for one."
)
_no_fence = click.option(
    "--no-fence",
    is_flag=True,
    help="Write without a fence: cheaper, but a driver that was replaced may still write.",
)
_rate_option = click.option(
    "--rate", metavar="NUMBER", type=float, help="Maximum number of writes per second, in total."
)
_accept_store = click.option(
    "--accept-store",
    "accept_stores",
    metavar="ID",
    multiple=True,
    help="Resume with a store that was replaced; the error shows the ID.",
)


@click.group("pipeline", cls=Commands, no_args_is_help=False)
def command() -> None:
    """Copy, compare and follow the data of stores, with Spark.

    An endpoint is [raw:]PATH[#UNDER]: PATH is a properties file of a store, the folder of a
    snapshot, or - for the store of --config, --backend and --set. raw: reads what is in a store as
    it is, whichever program wrote it. UNDER is a namespace; of a raw endpoint, a path, a prefix or
    a table of Cassandra.
    """


@command.command("snapshot")
@_left
@click.option(
    "--show-claims",
    is_flag=True,
    help="Also write down members, leaders and epochs, for people to look at.",
)
@job_options
def snapshot(call: JobCall, a: str, *, show_claims: bool) -> int:
    """Write what is in the store A into Parquet files that a manifest lists.

    Every key is in it exactly once, with the consistency that the store offers. Exits with 1 if
    something was rejected: keys of another program below the root of kip30's, or damaged values.
    """
    source = store_endpoint(call.endpoint(a))
    job = call.job("transfer.snapshot")
    options = call.options(job.SnapshotOptions, source=source, show_claims=show_claims)
    return call.run(job, options, partial(with_hint, source=source))


def _copies(copy: Any) -> Any:
    for option in (
        job_options,
        _accept_store,
        _no_fence,
        _rate_option,
        click.option(
            "--on-conflict",
            type=click.Choice(["keep", "replace", "fail"]),
            default="keep",
            show_default=True,
            help="What to do with a key of B that has another value.",
        ),
        click.option(
            "--map",
            "moves",
            metavar="FROM=TO",
            multiple=True,
            help="Write the keys of the namespace FROM, and of those below it, into TO.",
        ),
        _into,
        _right,
        _left,
    ):
        copy = option(copy)
    return copy


@command.command("restore")
@_copies
def restore(call: JobCall, a: str, b: str, **how: Any) -> int:
    """Write the keys of the snapshot or store A into the store B, where they are missing.

    A key that B has is not overwritten unless --on-conflict says so: it is counted as the same, or
    named as a conflict. Only values are copied; members, leaders and epochs are not. A rerun writes
    nothing twice.
    """
    return _copy(call, call.endpoint(a), b, how)


@command.command("migrate")
@_copies
def migrate(call: JobCall, a: str, b: str, **how: Any) -> int:
    """Copy the keys of the live store A into the store B, as restore does with a snapshot."""
    return _copy(call, store_endpoint(call.endpoint(a)), b, how)


def _copy(call: JobCall, source: Endpoint, b: str, how: dict[str, Any]) -> int:
    target = target_endpoint(call.endpoint(b))
    _check_different(source, target)
    _check_into(source, how["into"])
    own = {"into": how["into"], "rate": _rate(how["rate"]), "fence": not how["no_fence"]}
    own |= {"accept_stores": how["accept_stores"], "moves": _moves(how["moves"])}
    job = call.job("transfer.restore_and_migrate")
    own["on_conflict"] = job.OnConflict(how["on_conflict"])
    options = call.options(job.RestoreOptions, source=source, target=target, **own)
    return call.run(job, options, partial(with_hint, source=source))


@command.command("diff")
@_left
@_right
@_into
@click.option("--full", is_flag=True, help="Compare the values themselves, not their digests.")
@click.option("--allow-empty", is_flag=True, help="Exit with 0 even if neither A nor B has a key.")
@job_options
def diff(  # noqa: PLR0913  an argument for each option
    call: JobCall, a: str, b: str, *, into: str | None, full: bool, allow_empty: bool
) -> int:
    """Compare two stores or snapshots, and write the keys that differ. Exits with 1 if any do.

    Differences between live stores are read again, so that a key that was just written is not
    taken for one.
    """
    left, right = call.endpoint(a), call.endpoint(b)
    job = call.job("compare.diff")
    own = {"into": into, "full": full, "allow_empty": allow_empty}
    return call.run(job, call.options(job.DiffOptions, left=left, right=right, **own))


@command.command("repair")
@click.argument("diff_run", metavar="DIFF", type=_parameters.FilePath())
@click.option("--apply", is_flag=True, help="Apply the plan; without it, only make the plan.")
@click.option(
    "--delete-extra", is_flag=True, help="Also delete keys that only B has; needs --plan."
)
@click.option(
    "--plan",
    metavar="RUN",
    type=_parameters.FilePath(),
    help="Apply exactly the plan of this run without --apply.",
)
@_rate_option
@_no_fence
@job_options
def repair(  # noqa: PLR0913  an argument for each option
    call: JobCall,
    diff_run: Path,
    *,
    apply: bool,
    delete_extra: bool,
    plan: Path | None,
    rate: float | None,
    no_fence: bool,
) -> int:
    """Make B of the finished run DIFF equal to A, by compare-and-set at the versions it saw."""
    if not (diff_run / MANIFEST_NAME).exists():
        raise UsageError(f"{diff_run} is not a run of diff: it has no manifest.json")
    if delete_extra and apply and plan is None:
        raise click.UsageError("--delete-extra needs --plan, the plan of a run without --apply")
    if plan is not None and not (plan / MANIFEST_NAME).exists():
        raise UsageError(f"--plan {plan}: there is no run in it")
    job = call.job("compare.repair")
    own = {"diff": diff_run, "apply": apply, "delete_extra": delete_extra, "plan": plan}
    own |= {"rate": _rate(rate), "fence": not no_fence}
    return call.run(job, call.options(job.RepairOptions, **own))


@command.command("feed")
@_left
@click.argument("b", required=False)
@click.option(
    "--after",
    metavar="RUN",
    type=_parameters.FilePath(),
    help="Begin at the position of this run of snapshot or migrate.",
)
@_into
@click.option("--once", is_flag=True, help="End when it has caught up.")
@click.option(
    "--interval",
    metavar="SECONDS",
    type=click.FloatRange(min=1.0),
    default=10.0,
    show_default=True,
    help="How often a store without a log of changes is scanned.",
)
@click.option(
    "--max-delete",
    metavar="N",
    type=click.IntRange(min=0),
    help="Stop before a scan deletes more than N keys; by default a tenth, and at least 100.",
)
@click.option(
    "--overwrite",
    is_flag=True,
    help="Also replace and delete what programs wrote at B; else it is a conflict.",
)
@_rate_option
@_accept_store
@job_options
def feed(  # noqa: PLR0913  an argument for each option
    call: JobCall,
    a: str,
    b: str | None,
    *,
    after: Path | None,
    into: str | None,
    once: bool,
    interval: float,
    max_delete: int | None,
    overwrite: bool,
    rate: float | None,
    accept_stores: tuple[str, ...],
) -> int:
    """Follow the changes of the store A, into files below RUN or into the store B.

    Without --once until interrupted; the run can be resumed. What a program wrote at B stays, and
    is a conflict. Exits with 1 if this call found one, a key that cannot be read or written, or
    changes that are missing.
    """
    if call.remote is not None:
        raise click.UsageError("feed runs in the driver: it does not take --remote")
    source = store_endpoint(call.endpoint(a))
    target = None if b is None else target_endpoint(call.endpoint(b))
    if target is not None:
        _check_different(source, target)
    if after is not None and not (after / MANIFEST_NAME).exists():
        raise UsageError(f"--after {after}: there is no run in it")
    job = call.job("follow.feed")
    own = {
        "source": source,
        "target": target,
        "into": into,
        "after": after,
        "once": once,
        "interval": interval,
        "max_delete": max_delete,
        "overwrite": overwrite,
        "rate": _rate(rate),
        "accept_stores": accept_stores,
    }
    return call.run(job, call.options(job.FeedOptions, **own))


@command.command("preflight")
@_left
@click.argument("b", required=False)
@job_options
def preflight(call: JobCall, a: str, b: str | None) -> int:
    """Try out whether a job from A, into B if it is given, would work. Nothing is written.

    Connects from every executor slot, looks for the files of TLS there, and for keys and values
    that B would not take. Exits with 1 if something is wrong.
    """
    source = call.here(a)
    target = None if b is None else target_endpoint(call.here(b))
    job = call.job("transfer.preflight")
    own = {"source": source, "target": target, "master": call.master, "remote": call.remote}
    return call.run(job, call.options(job.PreflightOptions, **own))


@command.command("verify")
@click.argument("run", metavar="RUN", type=_parameters.FilePath())
@_output.prints_records
def verify(run: Path, *, output: Output) -> int:
    """Read all files of the run in RUN, such as a snapshot, and compare them with their checksums.

    Needs no store and no Spark. Exits with 1 if a file is missing or was changed, and names it.
    """
    files = size = 0
    damaged: list[str] = []
    for one in import_module("kip30.pipeline.run.checks").verify(run):
        files += 1
        size += one.size
        if one.damage:
            damaged.append(one.damage)
    rows: list[Row] = [("files", files), ("bytes", size)]
    rows += [("damaged", damage) for damage in damaged]
    lines = output.lines(_NAMED, widths=(16,), outlives_reader=True)
    lines.print(rows, lambda: {"files": files, "bytes": size, "damaged": damaged})
    return Status.REFUSED if damaged else Status.OK


@command.command("status")
@click.argument("run", metavar="RUN", type=_parameters.FilePath())
@_output.prints_records
def status(run: Path, *, output: Output) -> None:
    """Show how far the run in RUN is, and whether a process works in it."""
    found: dict[str, Any] = import_module("kip30.pipeline.run.checks").status(run)
    output.lines(_NAMED, widths=(24,)).print(_status_rows(found, ""), lambda: found)


def _status_rows(found: dict[str, Any], prefix: str) -> Iterator[Row]:
    own = {name: value for name, value in found.items() if name not in {"counts", "parts"}}
    for name, value in {**own, **found["counts"]}.items():
        if value is not None:
            yield f"{prefix}{name}", str(value)
    for part in found["parts"]:
        yield from _status_rows(part, f"{part['job']}.")


@command.command("bundle")
@click.option(
    "--out",
    metavar="FOLDER",
    type=_parameters.FilePath(),
    default=Path("kip30-bundle"),
    show_default=True,
    help="Where the files go.",
)
@_output.prints_records
def bundle(out: Path, *, output: Output) -> None:
    """Write kip30.zip and kip30-job.py for a cluster, and print how spark-submit is called.

    The libraries of the stores are not in it: they have to be on every machine, as has Python.
    """
    made = job_module("spark.bundle").write_bundle(out)
    if output.is_chosen:
        record = {"files": [str(one) for one in made.files], "command": made.command}
        output.line(("COMMAND",), (made.command,), record)
    else:
        for file in made.files:
            say(f"wrote {file}")
        click.echo(made.command)


@command.command("prepare")
@_output.prints_records
def prepare(*, output: Output) -> None:
    """Make jobs on this machine start faster: write an archive of Spark's classes for Java.

    It is for the Spark and the Java that are here, goes into ${XDG_CACHE_HOME:-~/.cache}/kip30,
    and takes about a minute and 200 MB. Jobs with a local master use it. To undo it, delete the
    file.
    """
    made = job_module("prepare").prepare()
    record = {"file": str(made.file), "bytes": made.bytes, "seconds": round(made.seconds, 1)}
    rows: list[Row] = [("file", made.file), ("bytes", made.bytes), ("seconds", record["seconds"])]
    output.lines(_NAMED, widths=(16,)).print(rows, lambda: record)


def _check_different(source: Endpoint, target: StoreEndpoint) -> None:
    if isinstance(source, SnapshotEndpoint) or source.layout is Layout.RAW:
        return
    if is_same_store(source.config, target.config):
        raise UsageError(f"{source.text} and {target.text} are the same store and namespace")


def _rate(written: float | None) -> float | None:
    if written is None or 0 < written < float("inf"):
        return written
    raise click.UsageError(f"--rate {written:g} is not a number of writes per second above 0")


def _moves(written: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    moves: list[tuple[str, str]] = []
    for one in written:
        old, sign, new = one.partition("=")
        if not sign:
            raise click.UsageError(f"--map {one}: write it as FROM=TO")
        moves.append((old, new))
    return tuple(moves)


def _check_into(source: Endpoint, into: str | None) -> None:
    if isinstance(source, StoreEndpoint) and source.layout is Layout.RAW and into is None:
        raise click.UsageError(f"{source.text} is raw: --into says in which namespace its keys go")
