"""``kip30 conform``: the conformance suite against the configured store."""

from pathlib import Path
from typing import Any

import click

from kip30.cli import _conformance_import, _parameters
from kip30.cli._exit_codes import Status
from kip30.cli._output import Output
from kip30.cli._signals import InterruptingOnSignals
from kip30.cli._store_options import StoreChoice, opens_store

_TITLES = ("CASE", "LEVEL", "CHECK", "PROVES")


def _split(
    _context: click.Context, _option: click.Parameter, given: tuple[str, ...]
) -> tuple[str, ...]:
    """Return the ids in all values, each of which may have several with commas between."""
    return tuple(one.strip() for value in given for one in value.split(",") if one.strip())


@click.command("conform")
@click.option(
    "--level",
    type=click.Choice(("core", "coordinator", "fault", "scale")),
    default="core",
    show_default=True,
    help="Which checks to run; each level includes those before it.",
)
@click.option(
    "--case",
    "cases",
    metavar="ID[,ID...]",
    multiple=True,
    callback=_split,
    help="Only these cases, such as S03,L10. May be repeated.",
)
@click.option("--failed", is_flag=True, help="Only the cases that failed in the last run of --out.")
@click.option("--list", "lists", is_flag=True, help="Print all checks, and run none.")
@click.option(
    "--out",
    "out_dir",
    metavar="FOLDER",
    type=_parameters.FilePath(),
    default=Path("conform-report"),
    show_default=True,
    help="Where the reports go.",
)
@click.option("--seed", type=int, metavar="NUMBER", help="Seed of all random choices.")
@click.option("--server", metavar="STORE", help="Start servers of STORE, test those, and end them.")
@_parameters.nodes
@opens_store
def command(
    choice: StoreChoice,
    *,
    lists: bool,
    failed: bool,
    server: str | None,
    nodes: int,
    **options: Any,
) -> int:
    """Prove that the store keeps kip30's promises.

    Runs the conformance suite against the configured store, in namespaces of its own, or with
    --server against servers of its own, where more faults can be injected. Writes reports for
    people and for machines. Exits with 0 if every case that could be tested passed, 1 if some
    failed, and 3 if nothing was proven; the last line counts the checks that could not
    run, by reason.

    Needs the extra "conformance".
    """
    if server is not None and choice != StoreChoice(settings={}):
        raise click.UsageError("--server brings its own settings: give either, not both")
    if failed and options["cases"]:
        raise click.UsageError("--failed and --case exclude each other: give one")
    catalogue = _conformance_import.part("catalogue")
    if lists:
        checks = [(one.case, one.level.value, one.name, one.about) for one in catalogue.listed()]
        Output().table(_TITLES, checks)
        return Status.OK
    if failed:
        options["cases"] = catalogue.failed_in(options["out_dir"])
        if not options["cases"]:
            click.echo(f"nothing failed in the last run of {options['out_dir']}", err=True)
            return Status.OK
    with InterruptingOnSignals():
        summary = _run(choice, server, nodes, options)
    if cases := summary.failed_cases():
        again = f"--failed, or with --case {','.join(cases)} --seed {summary.seed}"
        click.echo(f"to repeat what failed, run the same with {again}", err=True)
    status: int = summary.exit_code
    return status


def _run(choice: StoreChoice, server: str | None, nodes: int, options: dict[str, Any]) -> Any:
    conform = _conformance_import.part("conform")
    if server is None:
        return conform.run(choice.properties(), **options)
    with _conformance_import.part("servers").start(server, nodes) as ensemble:
        return conform.run_on(ensemble, **options)
