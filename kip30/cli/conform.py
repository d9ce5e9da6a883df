"""``kip30 conform``: the conformance suite against the configured store."""

from pathlib import Path
from typing import Any

import click

from kip30.cli import _parameters, _suite
from kip30.cli._store_options import StoreChoice, opens_store


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
@click.option("--server", metavar="STORE", help="Start servers of STORE, test those, and end them.")
@_parameters.nodes
@opens_store
def command(choice: StoreChoice, *, server: str | None, nodes: int, **options: Any) -> int:
    """Prove that the store keeps kip30's promises.

    Runs the conformance suite against the configured store, in namespaces of its own, or with
    --server against servers of its own, where more faults can be injected. Writes reports for
    people and for machines. Exits with 0 if every case that could be tested passed, 1 if some
    failed, and 3 if nothing was proven; the last line counts what could not be tested, by reason.

    Needs the extra "conformance": in a checkout of kip30, pip install '.[conformance]'.
    """
    conform = _suite.part("conform")
    if server is None:
        return _status(conform.run(choice.properties(), **options))
    if choice != StoreChoice(settings={}):
        raise click.UsageError("--server brings its own settings: give either, not both")
    servers = _suite.part("servers")
    with servers.start(server, nodes) as ensemble:
        return _status(conform.run_on(ensemble, **options))


def _status(summary: Any) -> int:
    status: int = summary.exit_code
    return status
