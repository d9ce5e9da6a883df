"""``kip30 simulate``: the core on simulated threads, against a store and a bad network."""

from functools import partial
from pathlib import Path
from typing import Any

import click

from kip30.cli import _conformance_import, _parameters
from kip30.cli._exit_codes import Status
from kip30.cli._store_options import StoreChoice, opens_store


def _seeds(_context: click.Context, _option: click.Parameter, given: str) -> tuple[int, int]:
    """Return the first and the last seed."""
    first, dash, last = given.partition("-")
    if first.isdecimal() and (last.isdecimal() or not dash) and int(first) <= int(last or first):
        return int(first), int(last or first)
    raise click.BadParameter(f"{given!r} is not a range: write 1-500, or one number")


@click.command("simulate")
@click.option(
    "--seeds",
    metavar="FIRST-LAST",
    default="1-100",
    show_default=True,
    callback=_seeds,
    help="Which runs.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0),
    metavar="NUMBER",
    help="Start no further run after that time.",
)
@click.option(
    "--plan",
    type=_parameters.FilePath(dir_okay=False, exists=True),
    metavar="FILE",
    help="Run the plan in FILE instead.",
)
@click.option(
    "--without",
    metavar="KIND",
    multiple=True,
    help="Leave out the faults of a kind, such as kill or pause. May be repeated.",
)
@click.option("--timeline", "shows", is_flag=True, help="Print what happens in the first run.")
@click.option(
    "--out",
    metavar="FOLDER",
    type=_parameters.FilePath(file_okay=False),
    default=Path("simulation-plans"),
    show_default=True,
    help="Where the smallest plans of runs that broke a promise go.",
)
@opens_store
def command(  # noqa: PLR0913  one argument per option
    choice: StoreChoice,
    *,
    seeds: tuple[int, int],
    seconds: float | None,
    plan: Path | None,
    without: tuple[str, ...],
    shows: bool,
    out: Path,
) -> int:
    """Run the core in virtual time, with faults, and judge its promises.

    In each run some processes take part in an election and a group on a modelled store, and some
    share a lock or divide items. Requests and answers are lost or late, clocks run apart, processes
    are paused and killed. A seed decides all of it. Exits with 0 if every promise was kept, and 1
    if one was broken: then the smallest plan in which that happens is written, and `--plan` repeats
    it.

    With an option of the store the runs are made on that store instead, behind the same network. It
    must be kept in this process, and wait by means of Python alone. Without such an option no
    configuration is read.

    Needs the extra "simulation".
    """
    simulate = _conformance_import.part("simulation.simulate", extra="simulation")
    plans = [_plan(simulate, plan)] if plan is not None else simulate.of_seeds(*seeds)
    plans = _without(simulate, plans, without)
    is_chosen = choice != StoreChoice(settings={})
    store = simulate.SimulatedStore(choice.properties()) if is_chosen else None
    if shows:
        failures = simulate.timeline(next(iter(plans)), click.echo, store)
        return Status.REFUSED if failures else Status.OK
    report = partial(_report, simulate, out=out, is_chosen=is_chosen)
    summary = simulate.simulate(plans, seconds=seconds, store=store, report=report)
    click.echo(str(summary))
    return Status.REFUSED if summary.broken else Status.OK


def _plan(simulate: Any, file: Path) -> Any:
    try:
        return simulate.of_file(file)
    except ValueError as error:
        raise click.BadParameter(f"{file}: {error}", param_hint="--plan") from error


def _without(simulate: Any, plans: Any, kinds: tuple[str, ...]) -> Any:
    try:
        return simulate.without(plans, kinds)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--without") from error


def _report(simulate: Any, broken: Any, *, out: Path, is_chosen: bool) -> None:
    """Print what *broken* has broken, and write its smallest plan."""
    for line in simulate.described(broken):
        click.echo(line)
    out.mkdir(parents=True, exist_ok=True)
    file = out / f"seed-{broken.plan.seed}.json"
    file.write_text(simulate.text_of(broken.smallest))
    same = ", with the options of the store" if is_chosen else ""
    click.echo(f"  repeat it: kip30 simulate --plan {file} --timeline{same}")
