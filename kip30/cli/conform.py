"""``kip30 conform``: the conformance suite against the configured store."""

from importlib import import_module
from pathlib import Path
from typing import Any

import click

from kip30.cli.opening import StoreChoice, opens_store

_SUITE = "kip30_conformance.conform"


@click.command("conform")
@click.option(
    "--level",
    type=click.Choice(("core", "fault", "scale")),
    default="core",
    show_default=True,
    help="How much to prove.",
)
@click.option("--case", "cases", metavar="ID", multiple=True, help="Only this case, such as S03.")
@click.option(
    "--out",
    "out_dir",
    metavar="FOLDER",
    type=click.Path(path_type=Path),
    default=Path("conform-report"),
    show_default=True,
    help="Where the reports go.",
)
@click.option("--seed", type=int, metavar="NUMBER", help="What chance begins with.")
@opens_store
def command(
    choice: StoreChoice, *, level: str, cases: tuple[str, ...], out_dir: Path, seed: int | None
) -> int:
    """Prove that the store keeps kip30's promises.

    Runs the conformance suite against the configured store, in namespaces of its own, and writes
    reports for people and for machines. Exits with 0 if every case passed, 1 if some failed, and
    3 if nothing was proven.
    """
    suite: Any = import_module(_SUITE)  # the core rests on no suite, so this is found late
    properties = choice.properties()
    summary = suite.run(properties, level=level, out_dir=out_dir, cases=cases, seed=seed)
    status: int = summary.exit_code
    return status
