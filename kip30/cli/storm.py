"""``kip30 servers storm``: random faults on real servers and their clients, and a verdict."""

from pathlib import Path

import click

from kip30.cli import _conformance_import, _parameters


@click.command("storm")
@click.argument("store")
@click.option(
    "--nodes",
    type=int,
    default=3,
    show_default=True,
    help="Number of servers; with 1 there are no faults between servers.",
)
@click.option(
    "--minutes",
    metavar="NUMBER",
    type=_parameters.minutes,
    default=30.0,
    show_default=True,
    help="How long faults are injected; starting, ending and judging take extra time.",
)
@click.option("--seed", type=int, metavar="NUMBER", help="Seed of all random choices.")
@click.option(
    "--out",
    metavar="FOLDER",
    type=_parameters.FilePath(),
    default=Path("storm-report"),
    show_default=True,
    help="Where the report and the records go.",
)
@click.option(
    "--neighbour/--no-neighbour",
    default=True,
    show_default=True,
    help="Whether another program also writes records, which kip30 cannot read.",
)
@click.option(
    "--members",
    type=click.IntRange(min=0),
    metavar="NUMBER",
    default=10,
    show_default=True,
    help="How many members, over all clients, divide work among themselves; 0 for none.",
)
def command(  # noqa: PLR0913  one for each option
    store: str,
    *,
    nodes: int,
    minutes: float,
    seed: int | None,
    out: Path,
    neighbour: bool,
    members: int,
) -> int:
    """Inject random faults into STORE and its clients, and judge the results.

    Ctrl-C ends it early; what happened until then is judged. Exits with 0 if every invariant
    held, 1 if one was violated, and 3 if one was not put to the test.
    """
    storm = _conformance_import.part("storm")
    summary = storm.run(
        store,
        nodes=nodes,
        seconds=60 * minutes,
        seed=seed,
        out=out,
        neighbour=neighbour,
        members=members,
    )
    status: int = summary.exit_code
    return status
